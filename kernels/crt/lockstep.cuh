// The ring of in_turn.cuh and listed.cuh for producers that keep in step: a consumer a tile, sums of any wgmma on bytes.
//
// What one block loads, others want at about the same time, unless they have drifted apart by more than the L2 holds. The 132
// tiles of a wave are 16 rows and 8.25 columns, so a step of K takes (16 * 128 + 8.25 * 192) * 128 bytes = 465 KB, however
// long K is. The L2's 63 MB are two halves, and what processors of both sides read may be kept in each: that is 31 MB, or 67
// steps. Producers that meet every 64 are not further apart. The steps are counted through a block's tiles: 64 are eight
// tiles, two, or half of one.
//
// This is to replace both: then what in_turn.cuh declares moves here, a multiply_half for sums of floats joins the one below,
// and a launch whose blocks need not meet takes a pace that does nothing.

#pragma once

#include "common/tma.cuh"
#include "crt/in_turn.cuh"

#ifndef EVERY
#define EVERY 64
#endif
constexpr int PATIENCE = 100;  // how often a producer looks for the others before it goes on without them

// The first rows of both factors of a tile.
struct Corner {
    int row_a, row_b;
};

// What the producers of a launch count in global memory: zero before a launch and after it.
struct Meeting {
    unsigned met;   // producers that came to a meeting since the launch began
    unsigned done;  // producers that have loaded all their tiles
};

// Before every EVERY-th step producers wait until all have come, or until patience is at its end. A courtesy, not a barrier:
// nothing depends on all blocks being resident, and no result depends on it. One that waited in vain looks half as often the
// next time, so that where blocks never meet each loses 200 looks and one a meeting. The last one to end sets the counters
// back.
struct InStep {
    Meeting* meeting;
    int common;  // steps that every block has
    int patience = PATIENCE;

    // loaded: steps that this producer has loaded so far.
    __device__ __forceinline__ void before(int loaded) {
        if (loaded == 0 || loaded % EVERY != 0 || loaded >= common) {
            return;
        }
        const unsigned expected = loaded / EVERY * gridDim.x;
        atomicAdd(&meeting->met, 1);
#pragma unroll 1
        for (int looks = 0; looks <= patience; ++looks) {
            if (*static_cast<volatile unsigned*>(&meeting->met) >= expected) {
                patience = PATIENCE;
                return;
            }
            __nanosleep(20);
        }
        patience /= 2;
    }
    __device__ __forceinline__ void end() {
        __threadfence();
        if (atomicInc(&meeting->done, gridDim.x - 1) == gridDim.x - 1) {
            meeting->met = 0;  // everyone is done (and atomicInc has just set `done` back to 0)
        }
    }
};

__device__ __forceinline__ void multiply_half(int (&sums)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_int8<BN, Element>(sums, a, b, add);
}

// `tiles` products of BM x BN, `steps` of BK along K each: place(t) is the t-th one's Corner, finish(sums, t, warp, lane)
// gets its sums, warp being one of the consumer's four. pace.before(loaded) is called before each step that a producer loads,
// pace.end() when it has loaded its last. Any number of blocks of THREADS.
template <class Sum, class Place, class Finish, class Pace>
__device__ __forceinline__ void walk_in_step(const TensorMap& left, const TensorMap& right, int tiles, int steps,
                                             const Place& place, const Finish& finish, Pace pace) {
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
            int stage = 0, parity = 0, loaded = 0;  // where in the ring, how often round it, and steps in all
            tma_prefetch(left);
            tma_prefetch(right);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Corner corner = place(t);
                for (int p = 0; p < steps; ++p) {
                    pace.before(loaded++);
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
            pace.end();
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
