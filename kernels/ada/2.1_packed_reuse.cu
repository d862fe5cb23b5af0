// Kernel 2.1, the article's: fragments of A are read once.
//
// New:        the "register tweak": both fragments of A of a K step stay in eight registers while the tiles of a row of
//             C are made; 2.0 reads them again for every tile. Four ldmatrix a K step instead of eight for A, eight for B
//             as before.
// Parameters: all of 2.0's.
// Expected:   12 instead of 16 ldmatrix a K step of a warp, where waiting for global memory binds: 3 to 5% over 2.0.
// Published:  133.4 TFLOP/s, 86.9% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
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
packed_reuse(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
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
            Word a[PIECES / 2][4];
#pragma unroll
            for (int s = 0; s < PIECES / 2; ++s) {
                Word(&to)[4] = a[s];
                ldmatrix(to[0], to[1], to[2], to[3], shared_offset(&As[a_row / 2 + i * 8][a_place ^ 2 * s]));
            }
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
                for (int s = 0; s < PIECES / 2; ++s) {
                    Word b[2];
                    ldmatrix2(b[0], b[1], shared_offset(&Bs[b_row / 2 + j * 4][b_place ^ 2 * s]));
                    mma(sums[i][j], a[s], b);
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
