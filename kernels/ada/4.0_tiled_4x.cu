// Kernel 4.0, past the article: a K step of 64.
//
// New:        3.1's tiles with K steps of 64: a row of a tile is 128 bytes, a line of its own, and half as many barriers
//             remain. ldmatrix brings two fragments of B at once. Addresses are made before the loop; a step of K flips
//             bits of the place that ldmatrix reads. Pieces beyond k become zeros in the copy itself, and rows beyond a
//             matrix are read from its last row, so that any m and n will do.
// Parameters: C tile 128x128, K step 64, three stages of 32 KB: 96 KB a block, all that Ada gives, two blocks on a
//             multiprocessor of Hopper, for which a thread may have 128 registers, half of them sums.
// Expected:   an H200 asks 1024 cycles of shared memory a step (768 to read, 256 to write), as much an element of K as
//             in 3.1, where its mma take 781: at most three quarters of the ceiling. 7 to 18% over 3.1.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k a multiple of
//             8. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/cp_async.cuh"
#include "common/mma.cuh"

constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 4, MMA_N = 4;         // tiles of 16 x 8 a warp
constexpr int STAGES = 3;                   // slots of the ring
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int THREADS = WARPS_M * WARPS_N * 32;  // 256
constexpr int PIECES = BK / 8;                   // pieces of 16 bytes in a row of a tile
constexpr int ROW = 16 * PIECES;                 // bytes of a row
constexpr int SLOT = (BM + BN) * ROW;            // bytes of a slot: the rows of A, then those of B
constexpr int ROWS = THREADS / PIECES;           // rows that a pass copies
static_assert(PIECES == 8, "a row is 128 bytes");
static_assert(BM % ROWS == 0 && BN % ROWS == 0 && ROWS % 8 == 0, "threads copy the tiles in whole passes");
static_assert(WN % 16 == 0, "ldmatrix brings two fragments of B");
static_assert(STAGES >= 2, "one slot is multiplied while another is filled");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
tiled_4x(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    extern __shared__ __align__(128) unsigned char ring[];  // [STAGES][BM + BN][PIECES] of 16 bytes

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    const int steps = (k + BK - 1) / BK;

    // The first piece that this thread copies of each pass, and where it goes in a slot.
    const int copy_row = threadIdx.x / PIECES, copy_piece = threadIdx.x % PIECES;
    const unsigned copy_to = shared_offset(ring) + copy_row * ROW + (copy_piece ^ copy_row % 8) * 16;
    unsigned a_from[BM / ROWS], b_from[BN / ROWS];  // in elements
#pragma unroll
    for (int i = 0; i < BM / ROWS; ++i) {
        a_from[i] = min(block_row + copy_row + i * ROWS, m - 1) * k + copy_piece * 8;
    }
#pragma unroll
    for (int i = 0; i < BN / ROWS; ++i) {
        b_from[i] = min(block_col + copy_row + i * ROWS, n - 1) * k + copy_piece * 8;
    }

    // Start the copies of step t; past the last step there is nothing to copy, and the group stays empty.
    auto copy_step = [&](int t, int slot) {
        if (t < steps) {
            const bool inside = t * BK + copy_piece * 8 < k;
#pragma unroll
            for (int i = 0; i < BM / ROWS; ++i) {
                copy16(copy_to + slot * SLOT + i * ROWS * ROW, &A[a_from[i] + t * BK], inside);
            }
#pragma unroll
            for (int i = 0; i < BN / ROWS; ++i) {
                copy16(copy_to + slot * SLOT + (BM + i * ROWS) * ROW, &B[b_from[i] + t * BK], inside);
            }
        }
        copy_commit();
    };

    // Where this lane's row of the first fragment stands in a slot. A: 8 x 8 blocks are rows 0 to 7 and 8 to 15 of one
    // piece, then of the next. B: columns 0 to 7 of one piece and of the next, then columns 8 to 15.
    const int a_row = warp_row + lane % 16, b_row = warp_col + lane / 16 * 8 + lane % 8;
    const unsigned a_at = shared_offset(ring) + a_row * ROW + (lane / 16 ^ a_row % 8) * 16;
    const unsigned b_at = shared_offset(ring) + (BM + b_row) * ROW + (lane / 8 % 2 ^ b_row % 8) * 16;

#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) {
        copy_step(t, t);
    }
    float sums[MMA_M][MMA_N][4] = {};
    int slot = 0;
    for (int t = 0; t < steps; ++t) {
        copy_wait<STAGES - 2>();  // this thread's part of step t is there
        __syncthreads();          // everyone's is, and everyone is done with step t - 1
        copy_step(t + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);

#pragma unroll
        for (int s = 0; s < PIECES; s += 2) {  // 16 columns of A, two pieces; p ^ s is a place, s being even
            Word a[MMA_M][4], b[MMA_N][2];
#pragma unroll
            for (int i = 0; i < MMA_M; ++i) {
                ldmatrix(a[i][0], a[i][1], a[i][2], a[i][3], (a_at + slot * SLOT ^ s * 16) + i * 16 * ROW);
            }
#pragma unroll
            for (int j = 0; j < MMA_N; j += 2) {
                ldmatrix(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], (b_at + slot * SLOT ^ s * 16) + j * 8 * ROW);
            }
#pragma unroll
            for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
                for (int j = 0; j < MMA_N; ++j) {
                    mma(sums[i][j], a[i], b[j]);
                }
            }
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            store_tile(C, m, n, block_row + warp_row + 16 * i, block_col + warp_col + 8 * j, sums[i][j]);
        }
    }
}
