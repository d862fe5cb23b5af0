// Level 7.4: TMA loads B, and A goes through registers again.
//
// New:        every copy instruction of level 7.3 takes an issue slot from an FFMA, and so does its address; on sm_90
//             each cp.async drags three empty instructions behind it besides. B lies in memory as the tile needs it,
//             so TMA loads it: one thread names a tile of 16 x 256, and its arrival is counted on an mbarrier. A must
//             be transposed, which TMA cannot do with floats. It is loaded as float4 while a tile is multiplied and
//             stored, transposed, three quarters through.
// Parameters: C tile 128x256, eight warps of 64x64: a wider tile has fewer copies per multiplication, and one block
//             fills an SM. Two stages: a tile takes 4000 cycles, several times the latency of memory. A warp takes 32
//             rows of A, one a lane, so that its stores fall into 32 banks.
// Expected:   94% of the loop is FFMA, from 90%: three or four per cent more than level 7.3 on an H200 (NOTES.md).
// Takes:      m a multiple of 128, n of 256, k of 16; each matrix below 2^31 elements and aligned to 16 bytes. C is not
//             read when beta is 0, A and B are not read when alpha is 0. Compute capability 9.0 or later.

#include "common/tma.cuh"

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 128, BN = 256, BK = 16, WM = 64, WN = 64, WNITER = 4, TM = 8, TN = 4, STORE_AT = 12
#endif
constexpr int PARAMETERS;                                  // A is stored to shared memory in step STORE_AT of a tile
constexpr int WMITER = WM * WN / (32 * TM * TN * WNITER);  // 1: sub-tiles along M
constexpr int SUBM = WM / WMITER, SUBN = WN / WNITER;      // a sub-tile is 64 x 16
constexpr int THREADS = BM / WM * (BN / WN) * 32;          // 256
constexpr int A_COLUMNS = THREADS / BM * 4;                // 8 columns of the A tile are copied at a time
constexpr int A_FLOAT4S = BK / A_COLUMNS;                  // 2 float4 of A a thread and tile
static_assert(BM % WM == 0 && BN % WN == 0, "warps tile the block's tile exactly");
static_assert(WMITER * WNITER * 32 * TM * TN == WM * WN, "sub-tiles tile the warp's tile exactly");
static_assert(SUBM % TM == 0 && SUBN % TN == 0 && SUBM / TM * (SUBN / TN) == 32, "a warp's lanes tile a sub-tile");
static_assert(TM % 4 == 0 && TN % 4 == 0, "fragments are read four at a time");
static_assert(THREADS % BM == 0 && BK % A_COLUMNS == 0 && BM % 32 == 0, "threads copy the A tile in whole passes");
static_assert(BK % 2 == 0, "the last step of a tile uses the second set of registers, the next tile's first the first");
static_assert(BN <= 256 && BK <= 256, "the largest box of TMA");
static_assert(STORE_AT < BK - 1, "A is stored before the barrier that precedes its first use");

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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tma(int m, int n, int k, float alpha, const float* A, const __grid_constant__ TensorMap B, float beta, float* C) {
    // A: [m, k]   B: boxes [BK, BN] of [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    extern __shared__ __align__(128) float4 dynamic_shared[];
    float* Bs = reinterpret_cast<float*>(dynamic_shared);              // [2][BK][BN]: [slot, p, column of C]
    float* As = Bs + 2 * BK * BN;                                      // [2][BK][BM]: [slot, p, row of C]
    Barrier* arrived = reinterpret_cast<Barrier*>(As + 2 * BK * BM);  // [2]: [slot] of B

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (BN / WN) * WM + lane / (SUBN / TN) * TM;  // corner of this thread's outputs in the first
    const int col = warp % (BN / WN) * WN + lane % (SUBN / TN) * TN;  // sub-tile; the others lie SUBM and SUBN apart
    const int a_row = threadIdx.x % BM, a_col = threadIdx.x / BM * 4;  // the first float4 it copies of A
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    float* a_to = &As[a_col * BM + a_row];

    auto copy_b = [&](int slot, int t) {
        if (threadIdx.x == 0) {
            barrier_expect(&arrived[slot], BK * BN * sizeof(float));
            tma_load(&Bs[slot * BK * BN], B, &arrived[slot], block_col, t * BK);
        }
    };
    float4 a_next[A_FLOAT4S];
    auto load_a = [&]() {
#pragma unroll
        for (int c = 0; c < A_FLOAT4S; ++c) {
            a_next[c] = load4(&a_from[c * A_COLUMNS]);
        }
        a_from += BK;
    };
    auto store_a = [&](int slot) {
#pragma unroll
        for (int c = 0; c < A_FLOAT4S; ++c) {
            float* to = &a_to[slot * BK * BM + c * A_COLUMNS * BM];
            to[0 * BM] = a_next[c].x, to[1 * BM] = a_next[c].y, to[2 * BM] = a_next[c].z, to[3 * BM] = a_next[c].w;
        }
    };
    float a[2][WMITER * TM], b[2][WNITER * TN];  // operands of the step at hand and of the next one
    auto read_fragments = [&](int set, int slot, int p) {
        const float* a_tile = &As[slot * BK * BM + row];
        const float* b_tile = &Bs[slot * BK * BN + col];
#pragma unroll
        for (int i = 0; i < WMITER * TM; i += 4) {
            read4(&a[set][i], &a_tile[p * BM + i / TM * SUBM + i % TM]);
        }
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            read4(&b[set][j], &b_tile[p * BN + j / TN * SUBN + j % TN]);
        }
    };

    if (threadIdx.x == 0) {
        barrier_init(&arrived[0], 1);
        barrier_init(&arrived[1], 1);
        barrier_init_fence();
    }
    const int tiles = k / BK;
    if (tiles > 0) {
        copy_b(0, 0);
        load_a();
        store_a(0);
        __syncthreads();  // the barriers are initialised, and A is stored
        barrier_wait(&arrived[0], 0);
    }
    read_fragments(0, 0, 0);  // if there is no tile: of nothing, and never used

    float sums[WMITER * TM][WNITER * TN] = {};
#pragma unroll 1
    for (int t = 0, slot = 0; t < tiles; ++t, slot ^= 1) {
        const bool more = t + 1 < tiles;
        if (more) {  // into the slot of tile t - 1, which everyone has left
            copy_b(slot ^ 1, t + 1);
            load_a();
        }

#pragma unroll
        for (int p = 0; p < BK; ++p) {
            if (p < BK - 1) {
                read_fragments((p + 1) % 2, slot, p + 1);
            } else {
                if (more) {
                    barrier_wait(&arrived[slot ^ 1], (t + 1) / 2 % 2);
                }
                __syncthreads();                 // everyone has stored A, and has read the last of tile t
                read_fragments(0, slot ^ 1, 0);  // past the last tile: what the slot holds, and never used
            }
            if (p == STORE_AT) {
                store_a(slot ^ 1);
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
