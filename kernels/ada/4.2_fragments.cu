// Kernel 4.2, past the article: fragments one slice ahead.
//
// New:        a second set of fragments. ldmatrix for the next 16 columns is given before this slice's 32 mma, so its
//             answer has their time to come, and the last slice of a step fetches the first of the next: the barrier
//             stands there, behind the fetches and before the mma that need nothing new.
// Parameters: all of 4.1's; 32 registers more.
// Expected:   4.1's warps wait for ldmatrix four times a step, and one other warp a scheduler fills in. 5 to 10%.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k a multiple of
//             8. A and B aligned to 16 bytes, C to 8; every matrix below 2^31 elements.

#include "common/cp_async.cuh"
#include "common/mma.cuh"

constexpr int BM = 256, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 4, MMA_N = 8;         // tiles of 16 x 8 a warp
constexpr int STAGES = 3;                   // slots of the ring
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int THREADS = WARPS_M * WARPS_N * 32;  // 256
constexpr int PIECES = BK / 8;                   // pieces of 16 bytes in a row of a tile
constexpr int ROW = 16 * PIECES;                 // bytes of a row
constexpr int SLOT = (BM + BN) * ROW;            // bytes of a slot: the rows of A, then those of B
constexpr int ROWS = THREADS / PIECES;           // rows that a pass copies
static_assert(PIECES == 8, "a row is 128 bytes, and four slices use the two sets in turn");
static_assert(BM % ROWS == 0 && BN % ROWS == 0 && ROWS % 8 == 0, "threads copy the tiles in whole passes");
static_assert(WN % 16 == 0, "ldmatrix brings two fragments of B");
static_assert(STAGES >= 2, "one slot is multiplied while another is filled");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fragments(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
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

    Word a[2][MMA_M][4], b[2][MMA_N][2];
    auto fetch = [&](int set, int slot, int s) {  // pieces s and s + 1; p ^ s is a place, s being even
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
            Word(&to)[4] = a[set][i];
            ldmatrix(to[0], to[1], to[2], to[3], (a_at + slot * SLOT ^ s * 16) + i * 16 * ROW);
        }
#pragma unroll
        for (int j = 0; j < MMA_N; j += 2) {
            Word(&to)[2] = b[set][j], (&and_to)[2] = b[set][j + 1];
            ldmatrix(to[0], to[1], and_to[0], and_to[1], (b_at + slot * SLOT ^ s * 16) + j * 8 * ROW);
        }
    };

#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) {
        copy_step(t, t);
    }
    copy_wait<STAGES - 2>();
    __syncthreads();
    fetch(0, 0, 0);
    float sums[MMA_M][MMA_N][4] = {};
    int slot = 0;
    for (int t = 0; t < steps; ++t) {
        copy_step(t + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);
#pragma unroll
        for (int s = 0; s < PIECES; s += 2) {
            if (s + 2 < PIECES) {
                fetch(s / 2 % 2 ^ 1, slot, s + 2);
            } else {
                copy_wait<STAGES - 2>();  // this thread's part of step t + 1 is there
                __syncthreads();          // everyone's is, and everyone has fetched all of step t
                slot = slot + 1 == STAGES ? 0 : slot + 1;
                fetch(0, slot, 0);
            }
#pragma unroll
            for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
                for (int j = 0; j < MMA_N; ++j) {
                    const int column = i % 2 ? MMA_N - 1 - j : j;  // there and back: one operand stays
                    mma(sums[i][column], a[s / 2 % 2][i], b[s / 2 % 2][column]);
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            store_tile(C, m, n, block_row + warp_row + 16 * i, block_col + warp_col + 8 * j, sums[i][j]);
        }
    }
}
