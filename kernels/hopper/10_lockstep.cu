// Level H10: blocks keep in step.
//
// New:        nothing holds the blocks of the grid together, and they drift: at 16384, where each walks 62 tiles, some
//             are soon so far ahead that what they load has left the L2 when the others want it. So the producers meet
//             before every fourth tile, on a counter in global memory. It is a courtesy, not a barrier: a block that
//             has looked in vain PATIENCE times goes on, so nothing depends on all blocks being resident, and no result
//             depends on it. The counters belong to the caller, who gives launches that may overlap counters of their
//             own; the last block to finish sets them back.
// Parameters: as level H7; a meeting every EVERY = 4 tiles.
// Expected:   132 tiles at a time that share all they can need (2048 + 2112) * 32 KB from DRAM at 16384, 8.4 GB in all;
//             H9 reads 20 GB. DRAM costs power, and power is clock.
// Takes:      as level H1.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BM = 128, BN = 256, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 4;
constexpr int GROUP = 8;    // rows of tiles that are walked together
constexpr int CLUSTER = 2;  // blocks, one above the other, that share tiles of B
constexpr int EVERY = 4;    // tiles of a block from one meeting to the next
constexpr int PATIENCE = 100;  // how often a block looks for the others before it goes on without them
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int PIECES = BN / 64;  // a warp stores 16 rows of C in pieces of 64 columns
constexpr int BUFFERS = 2;       // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Element C[4 * CONSUMERS][BUFFERS][16 * 64];  // of each warp
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Tile {
    int row, col;  // counted in tiles of a cluster
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

// What the producers of a launch count in global memory: zero before a launch and after it.
struct Meeting {
    unsigned met;   // producers that came to a meeting since the launch began
    unsigned done;  // producers that have loaded all their tiles
};

// Wait until `expected` producers came to this meeting and those before it, or until patience is at its end.
__device__ __forceinline__ void meet(Meeting* meeting, unsigned expected) {
    atomicAdd(&meeting->met, 1);
#pragma unroll 1
    for (int look = 0; look < PATIENCE && *static_cast<volatile unsigned*>(&meeting->met) < expected; ++look) {
        __nanosleep(20);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
lockstep(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, Meeting* meeting, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   meeting: one, of this launch   grid: any number of clusters   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM), cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int rank = cluster_rank();
    const int warpgroup = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CLUSTER * CONSUMERS);
        }
        barrier_init_fence();
    }
    cluster_sync();  // nobody's engine writes here before the barriers are ready

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
                const int wave = t / (gridDim.x / CLUSTER);  // how many tiles this block has loaded
                const bool all = (wave + 1) * gridDim.x <= rows * cols * CLUSTER;  // whether every block has one more
                if (wave > 0 && wave % EVERY == 0 && all) {
                    meet(meeting, wave / EVERY * gridDim.x);
                }
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    tma_load(shared.A[stage], map_a, &shared.full[stage], p * BK, (tile.row * CLUSTER + rank) * BM);
                    tma_load_multicast(&shared.B[stage][rank * SHARE * BK], map_b, &shared.full[stage], p * BK,
                                       tile.col * BN + rank * SHARE, (1 << CLUSTER) - 1);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
            __threadfence();
            if (atomicInc(&meeting->done, gridDim.x - 1) == gridDim.x - 1) {
                meeting->met = 0;  // everyone is done (and atomicInc has just set `done` back to 0)
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float sums[BN / 2] = {};
        Word kept[BN / 4];     // the tile before, rounded
        int row = 0, col = 0;  // and where this warp's part of it begins in C
        int before = 0;        // the stage of the step before

        const auto release = [&] {
            if (threadIdx.x % 128 < CLUSTER) {
                barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
            }
        };
        const auto multiply = [&](int p) {
            barrier_wait(&shared.full[stage], parity);
            const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) {
                wgmma<BN, Element>(sums, a + s * NEXT_K16, b + s * NEXT_K16, p > 0 || s > 0);
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
        };
        const auto store = [&](int piece) {
            Element* const staged = shared.C[warp][piece % BUFFERS];
            if (lane == 0) {
                tma_store_wait_read<BUFFERS - 1>();
            }
            __syncwarp();
            // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
            const unsigned to = shared_address(staged) + lane % 16 * 128;
#pragma unroll
            for (int chunk = 0; chunk < 8; chunk += 2) {
                const Word* w = &kept[piece * 16 + chunk * 2];
                stmatrix(to + ((chunk + lane / 16) ^ lane % 8) * 16, w[0], w[1], w[2], w[3]);
            }
            shared_fence();
            __syncwarp();
            if (lane == 0) {
                tma_store(map_c, staged, col + piece * 64, row);
                tma_store_commit();
            }
        };

        bool first = true;
        for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                if (piece < steps) {
                    multiply(piece);
                }
                if (!first) {
                    store(piece);
                }
            }
            for (int p = PIECES; p < steps; ++p) {
                multiply(p);
            }
            wgmma_finish(sums);
            release();

#pragma unroll
            for (int i = 0; i < BN / 4; ++i) {
                kept[i] = pack<Element>(sums[2 * i], sums[2 * i + 1]);
            }
            const Tile tile = tile_at(t, rows, cols);
            row = (tile.row * CLUSTER + rank) * BM + warp * 16, col = tile.col * BN;
            first = false;
        }
        if (!first) {  // a cluster beyond the tiles has nothing to store
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                store(piece);
            }
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}
