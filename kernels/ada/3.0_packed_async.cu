// Kernel 3.0, the article's: a ring of tiles filled by cp.async.
//
// New:        pieces travel from global to shared memory by cp.async, without registers, into a ring of STAGES slots:
//             while step t is multiplied, steps t + 1 and t + 2 are on their way. A thread's copies of a step are a
//             group; when at most STAGES - 2 groups are open, step t is there. One barrier a step instead of two: behind
//             it step t has arrived for all, and the slot of step t - 1 is free. All fragments of a step are read before
//             its mma, those of B once, too.
// Parameters: the tiles of 2.0; three stages of 8 KB. The author's code takes the last step of k = 4096 for the last
//             one there is; this one takes k's.
// Expected:   a step has two steps' products to arrive, and neither registers nor stores carry tiles. The
//             well-known implementation makes 223 TFLOP/s on an H200: 1.5 times 2.1, where the article has 1.03, as mma
//             is faster here and memory no nearer.
// Published:  137.4 TFLOP/s, 89.5% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; m and n multiples of 64, k of
//             32. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/cp_async.cuh"
#include "common/mma_ada.cuh"

constexpr int BM = 64, BN = 64, BK = 32;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 2, MMA_N = 2;     // tiles of 16 x 8 a warp
constexpr int STAGES = 3;                 // slots of the ring
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
packed_async(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
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
