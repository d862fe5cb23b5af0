// Kernel 2.0, the article's: 128-bit loads, two rows packed into a line and permuted, ldmatrix.
//
// New:        B comes K-major, so A and B are both contiguous along K, and eight elements, 16 bytes, are the unit: a
//             thread loads and stores whole pieces, four threads a row of 32 elements. Two rows share a line of 128
//             bytes, permuted by XOR (kernels/common/mma_ada.cuh), so neither the stores nor ldmatrix meet a bank twice.
// Parameters: C tile 64x64 and eight warps of 2x2 tiles, now side by side; K step 32, in 8 KB of shared memory. A
//             thread moves one piece of each matrix a step. Fragments are read again for every mma.
// Expected:   two instructions bring what 1.1 reads in twelve, without conflicts; left is the wait for global memory
//             between two barriers, and a ldmatrix of each kind before every mma. 130 TFLOP/s; the well-known
//             implementation makes 136 on an H200.
// Published:  127.3 TFLOP/s, 82.9% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; m and n multiples of 64, k of
//             32. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/mma_ada.cuh"

constexpr int BM = 64, BN = 64, BK = 32;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 2, MMA_N = 2;       // tiles of 16 x 8 a warp
constexpr int THREADS = 256;
constexpr int WARPS_N = 4;
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int PIECES = BK / 8;  // pieces of 16 bytes in a row of a tile
static_assert(BM * PIECES == THREADS && BN * PIECES == THREADS, "a thread copies one piece of each tile");

extern "C" __global__ void __launch_bounds__(THREADS)
packed(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM)   block: (16, 16)
    __shared__ uint4 As[BM / 2][8];
    __shared__ uint4 Bs[BN / 2][8];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's

    const int copy_row = thread / PIECES, copy_piece = thread % PIECES;
    const uint4* a_from = reinterpret_cast<const uint4*>(A + (block_row + copy_row) * k) + copy_piece;
    const uint4* b_from = reinterpret_cast<const uint4*>(B + (block_col + copy_row) * k) + copy_piece;
    uint4* const a_to = &As[copy_row / 2][place(copy_row, copy_piece)];
    uint4* const b_to = &Bs[copy_row / 2][place(copy_row, copy_piece)];

    // This lane's row and piece of the first fragment. A: 8 x 8 blocks are rows 0 to 7 and 8 to 15 of one piece, then of
    // the next. B: columns 0 to 7 of one piece, then of the next. Places of the next two pieces differ by 2 in XOR.
    const int a_row = warp_row + lane % 16, a_place = place(a_row, lane / 16);
    const int b_row = warp_col + lane % 8, b_place = place(b_row, lane / 8 % 2);

    float sums[MMA_M][MMA_N][4] = {};
    for (int p = 0; p < k / 8; p += PIECES) {
        *a_to = a_from[p];
        *b_to = b_from[p];
        __syncthreads();

#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
                for (int s = 0; s < PIECES; s += 2) {
                    Word a[4], b[2];
                    ldmatrix(a[0], a[1], a[2], a[3], shared_offset(&As[a_row / 2 + i * 8][a_place ^ s]));
                    ldmatrix2(b[0], b[1], shared_offset(&Bs[b_row / 2 + j * 4][b_place ^ s]));
                    mma(sums[i][j], a, b);
                }
            }
        }
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            const int row = block_row + warp_row + i * 16, col = block_col + warp_col + j * 8;
            store_pairs(&C[first_pair(n, row, col, lane)], n, sums[i][j]);
        }
    }
}
