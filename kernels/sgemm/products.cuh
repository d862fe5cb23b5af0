// C = alpha A B + beta C from slices of A and B: products of slices, small ones first, promoted step by step.
//
// A step is 128 bytes of k. Its products of slices i and j with i + j <= CUT are added in the tensor core, which cuts sums
// off instead of rounding them; so each step begins a new sum, and fp32 additions join the steps (if there is more than
// one slice: without a second the products are coarser than the sums). While one consumer adds a step, the other
// multiplies: they take turns, step by step.
//
// A slot of the ring holds one slice of a step of A and of B; slices come smallest first. What takes slice i and none
// that is smaller is one group of wgmma, and the groups follow in that order: so a slot is free when its group is done.

#pragma once

#include "common/tma.cuh"
#include "sgemm/slices.cuh"

constexpr int BM = 128, BN = 128;
constexpr int SLOTS = 6;
constexpr int GROUP = 8;      // rows of tiles that are walked together
constexpr int CONSUMERS = 2;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int SLOT_BYTES = 128 * 128;  // of A, and of B
constexpr int NEXT_SLOT = SLOT_BYTES >> 4;

struct Shared {
    unsigned char A[SLOTS][SLOT_BYTES];
    unsigned char B[SLOTS][SLOT_BYTES];
    Barrier full[SLOTS], empty[SLOTS];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next step
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
extern __shared__ __align__(1024) unsigned char shared_bytes[];

struct Tile {
    int row, col;  // counted in tiles
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

__device__ __forceinline__ void multiply_slices(tf32, float (&sums)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_tf32(sums, a, b, add);
}
__device__ __forceinline__ void multiply_slices(bf16, float (&sums)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma<BN, bf16>(sums, a, b, add);
}

// slices_a: SLICES x [m, pitch]   slices_b: SLICES x [n, pitch]   C: [m, n], rows ldc apart
// grid: any number of blocks   block: THREADS
template <class Element, int SLICES, int CUT>
__device__ __forceinline__ void multiply_tiles(const TensorMap& slices_a, const TensorMap& slices_b,
                                               const int* exponents_a, const int* exponents_b, float* c, int ldc, int m,
                                               int n, int k, float alpha, float beta) {
    constexpr int BK = 128 / sizeof(Element);
    static_assert(SLICES <= 3 && SLOTS % SLICES == 0, "a step's slots lie side by side");
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int steps = (k + BK - 1) / BK, tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CONSUMERS);
        }
        for (int i = 0; i < CONSUMERS; ++i) {
            barrier_init(&shared.turn[i], 4);  // the other consumer's warps
        }
        barrier_init_fence();
    }
    __syncthreads();

    int slot = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            tma_prefetch(slices_a);
            tma_prefetch(slices_b);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    for (int slice = SLICES - 1; slice >= 0; --slice) {
                        barrier_wait(&shared.empty[slot], parity ^ 1);
                        barrier_expect(&shared.full[slot], 2 * SLOT_BYTES);
                        // Below a slice stands the next one: what is multiplied there belongs to no element of C.
                        tma_load(shared.A[slot], slices_a, &shared.full[slot], p * BK, slice * m + tile.row * BM);
                        tma_load(shared.B[slot], slices_b, &shared.full[slot], p * BK, slice * n + tile.col * BN);
                        if (++slot == SLOTS) {
                            slot = 0, parity ^= 1;
                        }
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float sums[BN / 2] = {}, part[BN / 2] = {};
        int begun = warpgroup ^ 1;  // parity of the turn: the first consumer need not wait for its first
        int before = 0;             // the slot of the step before

        const auto release = [&](int which) {
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[which]);
            }
        };
        // d = products of slices i and j of the step that begins at `slot`; slice i lies SLICES - 1 - i slots further.
        const auto multiply = [&](float (&d)[BN / 2], int i, int j, bool add) {
            const Descriptor a = describe(&shared.A[slot][warpgroup * 64 * 128]) + (SLICES - 1 - i) * NEXT_SLOT;
            const Descriptor b = describe(shared.B[slot]) + (SLICES - 1 - j) * NEXT_SLOT;
#pragma unroll
            for (int s = 0; s < 4; ++s) {  // 32 bytes of k each
                multiply_slices(Element{}, d, a + 2 * s, b + 2 * s, add || s > 0);
            }
        };

        for (int t = blockIdx.x; t < tiles; t += blocks) {
            if constexpr (SLICES > 1) {
#pragma unroll
                for (int i = 0; i < BN / 2; ++i) {
                    sums[i] = 0.0f;
                }
            }
            for (int p = 0; p < steps; ++p) {
#pragma unroll
                for (int i = 0; i < SLICES; ++i) {
                    barrier_wait(&shared.full[slot + i], parity);
                }
                if constexpr (SLICES == 1) {
                    wgmma_fence();
                    multiply(sums, 0, 0, p > 0);
                    wgmma_commit();
                    wgmma_wait<1>();
                    if (p > 0) {
                        release(before);
                    }
                    before = slot;
                } else {
                    barrier_wait(&shared.turn[warpgroup], begun);
                    begun ^= 1;
                    wgmma_fence();
#pragma unroll
                    for (int i = SLICES - 1; i >= 0; --i) {
                        if (i == 0 && lane == 0) {  // the last group is long enough to hide that the other one begins
                            barrier_arrive(&shared.turn[warpgroup ^ 1]);
                        }
#pragma unroll
                        for (int j = min(i, CUT - i); j >= 0; --j) {
                            multiply(part, j, i, i < SLICES - 1 || j < min(i, CUT - i));
                            if (j < i) {
                                multiply(part, i, j, true);
                            }
                        }
                        wgmma_commit();
                    }
                    if constexpr (SLICES == 3) {
                        wgmma_wait<2>();
                        release(slot);
                    }
                    wgmma_wait<1>();
                    release(slot + SLICES - 2);
                    wgmma_finish(part);
                    release(slot + SLICES - 1);
#pragma unroll
                    for (int i = 0; i < BN / 2; ++i) {
                        sums[i] += part[i];
                    }
                }
                slot += SLICES;
                if (slot == SLOTS) {
                    slot = 0, parity ^= 1;
                }
            }
            if constexpr (SLICES == 1) {
                wgmma_finish(sums);
                release(before);
            }

            const Tile tile = tile_at(t, rows, cols);
            const int row = tile.row * BM + warp * 16 + lane / 4, col = tile.col * BN + lane % 4 * 2;
            const bool aligned = ldc % 2 == 0 && reinterpret_cast<size_t>(c) % 8 == 0;
            int s[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                s[half] = row + 8 * half < m ? exponents_a[row + 8 * half] : 0;
            }
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                const int column = col + 8 * j;
                const bool both = column + 1 < n;
                const int one = column < n ? exponents_b[column] : 0, other = both ? exponents_b[column + 1] : 0;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (row + 8 * half < m && column < n) {
                        float* to = c + static_cast<size_t>(row + 8 * half) * ldc + column;
                        const float* d = &sums[4 * j + 2 * half];
                        const float left = finished(d[0], s[half], one, alpha, beta, to);
                        const float right = both ? finished(d[1], s[half], other, alpha, beta, to + 1) : 0.0f;
                        store_pair(to, left, right, both, aligned);
                    }
                }
            }
        }
    }
}
