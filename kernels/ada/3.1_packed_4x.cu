// Kernel 3.1, the article's last: four by four tiles a warp.
//
// New:        nothing but sizes. A warp makes 4 x 4 tiles of 16 x 8, 64x32 of C, and the eight warps 128x128: a
//             fragment of A meets four of B instead of two, and every element loaded meets twice as many.
// Parameters: C tile 128x128, K step 32, three stages of 16 KB: the 48 KB of shared memory that a block may have without
//             asking for more. A thread copies two pieces of each matrix a step.
// Expected:   half the bytes a product from the L2, three quarters of those from shared memory. There an H200 asks 512
//             cycles of shared memory a step (384 to read, 128 to write) where its mma take 390, and a barrier stands
//             every 390: the project's form with a K step of 64 reaches 0.65 of the mma.sync loop, this one 7 to 18%
//             less. The well-known implementation makes 354 TFLOP/s on an H200.
// Published:  153.6 TFLOP/s, as fast as cuBLAS, 93% of the chip's peak (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; m and n multiples of 128, k
//             of 32. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/cp_async.cuh"
#include "common/mma_ada.cuh"

constexpr int BM = 128, BN = 128, BK = 32;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 4, MMA_N = 4;       // tiles of 16 x 8 a warp
constexpr int STAGES = 3;                   // slots of the ring
constexpr int THREADS = 256;
constexpr int WARPS_N = 4;
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int PIECES = BK / 8;          // pieces of 16 bytes in a row of a tile
constexpr int ROW = 16 * PIECES;        // bytes of a row; two make a line
constexpr int SLOT = BM * ROW;          // bytes of a slot of A, and of one of B
constexpr int ROWS = THREADS / PIECES;  // rows that a pass copies
static_assert(BM == BN, "slots of A and B are of one size");
static_assert(BM % ROWS == 0 && BN % ROWS == 0, "threads copy the tiles in whole passes");

extern "C" __global__ void __launch_bounds__(THREADS)
packed_4x(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM)   block: (16, 16)
    __shared__ __align__(128) uint4 As[STAGES * BM / 2][8];
    __shared__ __align__(128) uint4 Bs[STAGES * BN / 2][8];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    const int c_at = first_pair(n, block_row + warp_row, block_col + warp_col, lane);
    const int steps = k / BK;

    const int copy_row = thread / PIECES, copy_piece = thread % PIECES;
    const int a_from = (block_row + copy_row) * k + copy_piece * 8;  // in elements
    const int b_from = (block_col + copy_row) * k + copy_piece * 8;

    const unsigned a_to = shared_offset(&As[copy_row / 2][place(copy_row, copy_piece)]);
    const unsigned b_to = shared_offset(&Bs[copy_row / 2][place(copy_row, copy_piece)]);

    // Start the copies of step t into a slot.
    auto copy_step = [&](int t, int slot) {
#pragma unroll
        for (int r = 0; r < BM; r += ROWS) {
            copy16_line(a_to + slot * SLOT + r * ROW, &A[a_from + r * k + t * BK]);
        }
#pragma unroll
        for (int r = 0; r < BN; r += ROWS) {
            copy16_line(b_to + slot * SLOT + r * ROW, &B[b_from + r * k + t * BK]);
        }
        copy_commit();
    };

    // This lane's row and piece of the first fragment. A: 8 x 8 blocks are rows 0 to 7 and 8 to 15 of one piece, then of
    // the next. B: columns 0 to 7 of one piece, then of the next. The next two pieces stand at ^ 2, 32 bytes.
    const int a_row = warp_row + lane % 16, b_row = warp_col + lane % 8;
    const unsigned a_at = shared_offset(&As[a_row / 2][place(a_row, lane / 16)]);
    const unsigned b_at = shared_offset(&Bs[b_row / 2][place(b_row, lane / 8 % 2)]);

    for (int t = 0; t < STAGES - 1; ++t) {
        copy_step(min(t, steps - 1), t);
    }
    float sums[MMA_M][MMA_N][4] = {};
    for (int t = 0; t < steps; ++t) {
        copy_wait<STAGES - 2>();  // this thread's part of step t is there
        __syncthreads();          // everyone's is, and everyone is done with step t - 1

        const int slot = t % STAGES;
        Word a[MMA_M][PIECES / 2][4], b[MMA_N][PIECES / 2][2];
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int s = 0; s < PIECES / 2; ++s) {
                Word(&to)[4] = a[i][s];
                ldmatrix(to[0], to[1], to[2], to[3], (a_at + slot * SLOT ^ s * 32) + i * 16 * ROW);
            }
        }
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
            for (int s = 0; s < PIECES / 2; ++s) {
                ldmatrix2(b[j][s][0], b[j][s][1], (b_at + slot * SLOT ^ s * 32) + j * 8 * ROW);
            }
        }
        // Past the last step its tiles are copied again, which nobody reads.
        copy_step(min(t + STAGES - 1, steps - 1), (t + STAGES - 1) % STAGES);

#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
                for (int s = 0; s < PIECES / 2; ++s) {
                    mma(sums[i][j], a[i][s], b[j][s]);
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            store_pairs(&C[c_at + i * 16 * n + j * 8], n, sums[i][j]);
        }
    }
}
