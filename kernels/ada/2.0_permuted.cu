// Kernel 2.0: 128-bit loads, permuted shared memory, ldmatrix.
//
// New:        A and B are both contiguous along K, so eight elements, 16 bytes, are the unit: a thread loads and stores
//             whole pieces, neighbouring threads neighbouring pieces. A row of a tile is eight pieces, 128 bytes, all
//             32 banks; piece p of row r stands at place p ^ r % 8. So eight rows' pieces p, which ldmatrix reads at
//             once, lie in eight different groups of banks, and so do the eight pieces of a row, which eight threads
//             write at once.
// Parameters: C tile 64x64 and eight warps of 2x2 tiles, as in 1.1; K step 64, one row of 128 bytes, in 16 KB of shared
//             memory. A thread moves two pieces of each matrix a step.
// Expected:   a warp reads 16 x 16 of A by one instruction, where 1.1 takes four, and no bank conflict is left: bound
//             by waiting for global memory between two barriers. The well-known implementation makes 136 TFLOP/s on an
//             H200.
// Published:  127.3 TFLOP/s, 82.9% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k a multiple of
//             8. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/mma.cuh"

constexpr int BM = 64, BN = 64, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 2, MMA_N = 2;       // tiles of 16 x 8 a warp
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int THREADS = WARPS_M * WARPS_N * 32;  // 256
constexpr int PIECES = BK / 8;                   // pieces of 16 bytes in a row of a tile
constexpr int ROWS = THREADS / PIECES;           // rows that a pass copies
static_assert(PIECES == 8, "a row is 128 bytes");
static_assert(BM % ROWS == 0 && BN % ROWS == 0 && ROWS % 8 == 0, "threads copy the tiles in whole passes");
static_assert(WN % 16 == 0, "ldmatrix brings two fragments of B");

extern "C" __global__ void __launch_bounds__(THREADS)
permuted(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    __shared__ uint4 As[BM][PIECES];
    __shared__ uint4 Bs[BN][PIECES];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    const int copy_row = threadIdx.x / PIECES, copy_piece = threadIdx.x % PIECES;

    float sums[MMA_M][MMA_N][4] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
        const int p = p0 + copy_piece * 8;
#pragma unroll
        for (int r = copy_row; r < BM; r += ROWS) {
            const bool inside = block_row + r < m && p < k;
            const fp16* from = &A[static_cast<size_t>(block_row + r) * k + p];
            As[r][copy_piece ^ r % 8] = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
        }
#pragma unroll
        for (int r = copy_row; r < BN; r += ROWS) {
            const bool inside = block_col + r < n && p < k;
            const fp16* from = &B[static_cast<size_t>(block_col + r) * k + p];
            Bs[r][copy_piece ^ r % 8] = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
        }
        __syncthreads();

#pragma unroll
        for (int s = 0; s < PIECES; s += 2) {  // 16 columns of A, two pieces
            Word a[MMA_M][4], b[MMA_N][2];
#pragma unroll
            for (int i = 0; i < MMA_M; ++i) {  // 8 x 8 blocks: rows 0 to 7 and 8 to 15 of piece s, the same of s + 1
                const int r = warp_row + 16 * i + lane % 16, piece = s + lane / 16;
                ldmatrix(a[i][0], a[i][1], a[i][2], a[i][3], shared_offset(&As[r][piece ^ r % 8]));
            }
#pragma unroll
            for (int j = 0; j < MMA_N; j += 2) {  // columns 0 to 7 of pieces s and s + 1, then 8 to 15
                const int r = warp_col + 8 * j + lane / 16 * 8 + lane % 8, piece = s + lane / 8 % 2;
                ldmatrix(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], shared_offset(&Bs[r][piece ^ r % 8]));
            }
#pragma unroll
            for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
                for (int j = 0; j < MMA_N; ++j) {
                    mma(sums[i][j], a[i], b[j]);
                }
            }
        }
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            store_tile(C, m, n, block_row + warp_row + 16 * i, block_col + warp_col + 8 * j, sums[i][j]);
        }
    }
}
