// Level 7.2: fragments prefetched one step ahead.
//
// New:        each thread reads the operands of step p + 1 from shared memory while it multiplies those of step p, in
//             two sets of registers, and does not stop at a tile's edge: before the last step of a tile it waits for
//             the next tile. So no multiplication waits for shared memory right behind a barrier.
// Parameters: those of level 7.1, with the products of a step in serpentine order over the thread's tile: column by
//             column, down and up, so that each differs from the one before in one operand, and the other comes from
//             the operand reuse cache. An FFMA then reads two registers; the register file delivers two a cycle, one
//             from each bank.
// Expected:   46 to 48 TFLOP/s on an H200 (NOTES.md).
// Takes:      m and n multiples of 128, k of 16; each matrix below 2^31 elements and aligned to 16 bytes. C is not
//             read when beta is 0, A and B are not read when alpha is 0.

#include <cuda_pipeline.h>

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 128, BN = 128, BK = 16, WM = 64, WN = 64, WNITER = 4, TM = 8, TN = 4, STAGES = 4, BLOCKS = 2
#endif
constexpr int PARAMETERS;
constexpr int WMITER = WM * WN / (32 * TM * TN * WNITER);  // 1: sub-tiles along M
constexpr int SUBM = WM / WMITER, SUBN = WN / WNITER;      // a sub-tile is 64 x 16
constexpr int THREADS = BM / WM * (BN / WN) * 32;          // 128
constexpr int A_LANES = 8;                                 // lanes along a row of A, one float each
constexpr int A_ROWS = THREADS / A_LANES;                  // 16 rows of the A tile are copied at a time
constexpr int B_ROWS = THREADS / (BN / 4);                 // 4 rows of the B tile
constexpr int PITCH = BM + 32 / A_LANES;                   // floats from one row of the transposed A tile to the next
static_assert(BM % WM == 0 && BN % WN == 0, "warps tile the block's tile exactly");
static_assert(WMITER * WNITER * 32 * TM * TN == WM * WN, "sub-tiles tile the warp's tile exactly");
static_assert(SUBM % TM == 0 && SUBN % TN == 0 && SUBM / TM * (SUBN / TN) == 32, "a warp's lanes tile a sub-tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PITCH % 4 == 0, "fragments are read four at a time");
static_assert(BK % A_LANES == 0 && BM % A_ROWS == 0 && BK % B_ROWS == 0, "threads copy the tiles in whole passes");
static_assert(STAGES >= 2, "one slot is multiplied while another is filled");
static_assert(BK % 2 == 0, "the last step of a tile uses the second set of registers, the next tile's first the first");

__device__ __forceinline__ float4 load4(const float* from) {
    return *reinterpret_cast<const float4*>(from);
}

__device__ __forceinline__ void store4(float* to, float4 value) {
    *reinterpret_cast<float4*>(to) = value;
}

// Four floats of shared memory into four registers of an array.
__device__ __forceinline__ void read4(float* registers, const float* shared) {
    const float4 v = load4(shared);
    registers[0] = v.x, registers[1] = v.y, registers[2] = v.z, registers[3] = v.w;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fragments(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    extern __shared__ float4 dynamic_shared[];
    float* As = reinterpret_cast<float*>(dynamic_shared);  // [STAGES][BK][PITCH]: [slot, p, row of C]
    float* Bs = As + STAGES * BK * PITCH;                  // [STAGES][BK][BN]: [slot, p, column of C]

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (BN / WN) * WM + lane / (SUBN / TN) * TM;  // corner of this thread's outputs in the first
    const int col = warp % (BN / WN) * WN + lane % (SUBN / TN) * TN;  // sub-tile; the others lie SUBM and SUBN apart
    const int a_row = threadIdx.x / A_LANES, a_col = threadIdx.x % A_LANES;        // the first float it copies of A
    const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;  // and the first float4 of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    const int tiles = alpha == 0.0f ? 0 : k / BK;  // as in BLAS, A and B are not read if alpha is 0
    // Start the copies of tile t; past the last tile there is nothing to copy, and the group stays empty.
    auto copy_tile = [&](int t) {
        if (t < tiles) {
            float* a_to = &As[t % STAGES * BK * PITCH + a_col * PITCH + a_row];
            float* b_to = &Bs[t % STAGES * BK * BN + b_row * BN + b_col];
#pragma unroll
            for (int r = 0; r < BM; r += A_ROWS) {
#pragma unroll
                for (int c = 0; c < BK; c += A_LANES) {
                    __pipeline_memcpy_async(&a_to[c * PITCH + r], &a_from[t * BK + r * k + c], 4);
                }
            }
#pragma unroll
            for (int r = 0; r < BK; r += B_ROWS) {
                __pipeline_memcpy_async(&b_to[r * BN], &b_from[(t * BK + r) * n], 16);
            }
        }
        __pipeline_commit();
    };

    for (int t = 0; t < STAGES - 1; ++t) {
        copy_tile(t);
    }
    float a[2][WMITER * TM], b[2][WNITER * TN];  // operands of the step at hand and of the next one
    auto read_fragments = [&](int set, int t, int p) {
        const float* a_tile = &As[t % STAGES * BK * PITCH + row];
        const float* b_tile = &Bs[t % STAGES * BK * BN + col];
#pragma unroll
        for (int i = 0; i < WMITER * TM; i += 4) {
            read4(&a[set][i], &a_tile[p * PITCH + i / TM * SUBM + i % TM]);
        }
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            read4(&b[set][j], &b_tile[p * BN + j / TN * SUBN + j % TN]);
        }
    };

    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    read_fragments(0, 0, 0);
    float sums[WMITER * TM][WNITER * TN] = {};
    for (int t = 0; t < tiles; ++t) {
        copy_tile(t + STAGES - 1);  // into the slot of tile t - 1, which everyone has left

#pragma unroll
        for (int p = 0; p < BK; ++p) {
            if (p < BK - 1) {
                read_fragments((p + 1) % 2, t, p + 1);
            } else {
                __pipeline_wait_prior(STAGES - 2);  // this thread's part of tile t + 1 is there
                __syncthreads();                    // everyone's is, and everyone has read the last of tile t
                read_fragments(0, t + 1, 0);        // past the last tile: what the slot holds, and never used
            }
#pragma unroll
            for (int j = 0; j < WNITER * TN; ++j) {
#pragma unroll
                for (int down = 0; down < WMITER * TM; ++down) {
                    const int i = j % 2 == 0 ? down : WMITER * TM - 1 - down;
                    sums[i][j] += a[p % 2][i] * b[p % 2][j];
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < WMITER * TM; ++i) {
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            float* out = &C[(block_row + row + i / TM * SUBM + i % TM) * n + block_col + col + j / TN * SUBN + j % TN];
            const float4 old = beta == 0.0f ? float4{} : load4(out);
            store4(out, {alpha * sums[i][j + 0] + beta * old.x, alpha * sums[i][j + 1] + beta * old.y,
                         alpha * sums[i][j + 2] + beta * old.z, alpha * sums[i][j + 3] + beta * old.w});
        }
    }
}
