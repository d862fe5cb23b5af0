// The ring of in_turn.cuh for tiles that a list names: a consumer a tile, sums of any wgmma on bytes.

#pragma once

#include "common/tma.cuh"
#include "crt/instructions.cuh"

using Element = unsigned char;
constexpr int BM = 128, BN = 192, BK = 128;
constexpr int STAGES = 5;
constexpr int GROUP = 16;     // rows of tiles that are walked together
constexpr int CONSUMERS = 2;  // warpgroups; the producer follows them
constexpr int WARPS = BM / 16;  // parts of 16 rows that a tile's sums are stored in
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int HALVES = BM / 64;  // of a tile: what one wgmma multiplies
constexpr int PARTS = BN / 32;   // 16-byte parts of a thread's residues, of a half

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next tile
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
extern __shared__ __align__(1024) unsigned char shared_bytes[];

// Row and column of a tile, counted in tiles; and what is multiplied there: the first rows of both factors.
struct Tile {
    int row, col;
};
struct Corner {
    int row_a, row_b;
};

// The t-th tile: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

__device__ __forceinline__ void multiply_half(int (&sums)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_int8<BN, Element>(sums, a, b, add);
}
__device__ __forceinline__ void multiply_half(float (&sums)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_e5m2(sums, a, b, add);
}

// `tiles` products of BM x BN, `steps` of BK along K each: place(t) is the t-th one's Corner, finish(sums, t, warp, lane)
// gets its sums, warp being one of the consumer's four. Any number of blocks of THREADS.
template <class Sum, class Place, class Finish>
__device__ __forceinline__ void walk_in_turn(const TensorMap& left, const TensorMap& right, int tiles, int steps,
                                             const Place& place, const Finish& finish) {
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const int blocks = gridDim.x, warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], 1);
        }
        for (int c = 0; c < CONSUMERS; ++c) {
            barrier_init(&shared.turn[c], 4);  // the other consumer's warps
        }
        barrier_init_fence();
    }
    __syncthreads();

    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            int stage = 0, parity = 0;  // where in the ring, and how often round it
            tma_prefetch(left);
            tma_prefetch(right);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Corner corner = place(t);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next one: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], left, &shared.full[stage], p * BK, corner.row_a);
                    tma_load(shared.B[stage], right, &shared.full[stage], p * BK, corner.row_b);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        Sum sums[HALVES][BN / 2] = {};
        int first = warpgroup * steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;      // parity of the turn: the first consumer need not wait for its first

        for (int t = blockIdx.x + warpgroup * blocks; t < tiles; t += CONSUMERS * blocks) {
            int stage = first % STAGES, parity = first / STAGES % 2, before = 0;
            const auto release = [&] {
                if (threadIdx.x % 128 == 0) {
                    barrier_arrive(&shared.empty[before]);
                }
            };
            barrier_wait(&shared.turn[warpgroup], begun);
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(shared.A[stage]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 32; ++s) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        constexpr int NEXT_HALF = 64 * BK >> 4;
                        multiply_half(sums[half], a + half * NEXT_HALF + s * NEXT_K32, b + s * NEXT_K32, p > 0 || s > 0);
                    }
                }
                wgmma_commit();
                wgmma_wait<1>();
                if (p > 0) {
                    release();
                }
                before = stage;
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
            if (lane == 0) {
                barrier_arrive(&shared.turn[warpgroup ^ 1]);
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                wgmma_finish(sums[half]);
            }
            release();
            finish(sums, t, warp, lane);
            first += CONSUMERS * steps, begun ^= 1;
        }
    }
}
