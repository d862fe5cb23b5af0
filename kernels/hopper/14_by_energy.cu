// Level H14: the form is chosen by time and energy.
//
// New:        at the power cap a joule saved becomes clock, so the winner of a sustained run need not be the kernel with
//             the fewest cycles: alone at 4096, level H13 needs 4% fewer cycles than level H10 and is 4% slower. So the
//             host chooses by both (`_Form.seconds` in family.py), among two kinds of forms:
//               own tile     the two consumers of level H13, each with a tile of its own, one storing while the other
//                            multiplies. Here they walk two steps of K per group of wgmma where six stages hold them:
//                            both stages are waited for first, and the price of a group, some 14 cycles, is paid half
//                            as often. An odd number of steps has one more, which TMA fills with zeros. Tiles of 200
//                            columns come with tiles of 192, as many of each as make up C's columns.
//               shared tile  the two consumers of level H9, one below the other, which share a tile of B; in 256 x 192
//                            with 128 rows each, 22% fewer bytes than H10's at 16384. No registers are left to keep a
//                            finished tile of that width in, so it is stored at once.
//             A launch may begin before the kernel ahead of it on the stream has ended: it sets up its barriers and
//             descriptors, and waits before it reads or writes anything of the caller's.
// Parameters: as levels H10 and H13, but for the tiles, and the stages that fit beside them.
// Expected:   sustained 1.01, 1.02, 1.03 and 1.04 of cublasLt at 2048, 4096, 8192, 16384; an early launch 10% at 1024.
// Takes:      as level H1, and the counters of level H10; `best_form` in family.py chooses.

#include "common/tma.cuh"
#include "hopper/wgmma_200.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BK = 64;        // a consumer walks K in steps of BK
constexpr int CONSUMERS = 2;  // warpgroups; the producer follows them
constexpr int PATIENCE = 100;  // how often a block looks for the others before it goes on without them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

// A block's tile of C is BM x BN, or BM x NARROW where tiles of BN would reach beyond C; a warp stores 16 rows of it in
// pieces of PIECE columns, BUFFERS at a time. CLUSTER blocks, one above the other, share tiles of B; UNIT steps of K are one
// group of wgmma; the producers of all blocks meet before every EVERY-th tile, or never (0).
template <int BM_, int BN_, int STAGES_, int PIECE_, int BUFFERS_, int GROUP_, int CLUSTER_, int UNIT_, int EVERY_,
          int NARROW_ = BN_>
struct Form {
    static constexpr int BM = BM_, BN = BN_, NARROW = NARROW_, STAGES = STAGES_, PIECE = PIECE_, BUFFERS = BUFFERS_;
    static constexpr int GROUP = GROUP_;  // rows of tiles that are walked together
    static constexpr int CLUSTER = CLUSTER_, UNIT = UNIT_, EVERY = EVERY_;
    static constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
    static_assert(SHARE % 8 == 0, "a share is whole blocks of eight swizzled rows");
    static_assert(BN % PIECE == 0 && (PIECE == 64 || PIECE / 8 % 2 == 1), "pieces without bank conflicts");
};

template <class F>
struct Shared {
    Element A[F::STAGES][F::BM * BK];
    Element B[F::STAGES][F::BN * BK];
    Element C[4 * CONSUMERS][F::BUFFERS][16 * F::PIECE];  // of each warp
    Barrier full[F::STAGES], empty[F::STAGES];
    Barrier turn[CONSUMERS];  // of each consumer with tiles of its own: it may begin its next
};

struct Tile {
    int row, col;  // counted in tiles of a cluster
};

// What all warps of a block know of the problem.
template <class F>
struct Walk {
    int rows, cols, steps;  // tiles of a cluster, and steps of a tile
    int tiles, cluster, clusters, rank;
    int wide;  // columns of tiles that are BN wide; the others, behind them, are NARROW

    __device__ __forceinline__ Walk(int m, int n, int k)
        : rows((m + F::CLUSTER * F::BM - 1) / (F::CLUSTER * F::BM)), cols((n + F::BN - 1) / F::BN),
          steps((k + F::UNIT * BK - 1) / (F::UNIT * BK) * F::UNIT), tiles(rows * cols),
          cluster(blockIdx.x / F::CLUSTER), clusters(gridDim.x / F::CLUSTER),
          rank(F::CLUSTER > 1 ? cluster_rank() : 0), wide(cols) {
        if constexpr (F::NARROW < F::BN) {
            wide -= min(cols, (cols * F::BN - n) / (F::BN - F::NARROW));
        }
    }

    // The t-th tile: groups of GROUP rows, in a group column by column.
    __device__ __forceinline__ Tile at(int t) const {
        const int group = t / (F::GROUP * cols), within = t % (F::GROUP * cols);
        const int height = min(F::GROUP, rows - group * F::GROUP);
        return {group * F::GROUP + within % height, within / height};
    }

    // The first column of C of a column of tiles.
    __device__ __forceinline__ int start(int col) const {
        return F::NARROW < F::BN ? col * F::NARROW + min(col, wide) * (F::BN - F::NARROW) : col * F::BN;
    }
};

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

// The next kernel on the stream may be launched as soon as multiprocessors are free.
__device__ __forceinline__ void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Wait until the kernel before on the stream has ended, and see what it wrote. Every block's producer does, and whatever
// the block stores follows from what the producer loads.
__device__ __forceinline__ void wait_for_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The four warps of a consumer meet.
__device__ __forceinline__ void consumer_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
}

// Barriers of the ring, each of whose stages `releases` warpgroups of a block release, and all threads' part in it.
template <class F>
__device__ __forceinline__ void set_up(Shared<F>& shared, int releases) {
    let_next_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < F::STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], F::CLUSTER * releases);
        }
        for (int c = 0; c < CONSUMERS; ++c) {
            barrier_init(&shared.turn[c], 4);  // the other consumer's warps
        }
        barrier_init_fence();
    }
    if constexpr (F::CLUSTER > 1) {
        cluster_sync();  // nobody's engine writes here before the barriers are ready
    } else {
        __syncthreads();
    }
}

// The producer's thread: loads the steps of this block's tiles, in order, into the ring.
template <class F>
__device__ __forceinline__ void produce(Shared<F>& shared, const TensorMap& map_a, const TensorMap& map_b,
                                        Meeting* meeting, const Walk<F>& walk) {
    int stage = 0, parity = 0;  // where in the ring, and how often round it
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    wait_for_previous();
    for (int t = walk.cluster; t < walk.tiles; t += walk.clusters) {
        if constexpr (F::EVERY > 0) {
            const int wave = t / walk.clusters;  // how many tiles this block has loaded
            if (wave > 0 && wave % F::EVERY == 0 && (wave + 1) * walk.clusters <= walk.tiles) {
                meet(meeting, wave / F::EVERY * gridDim.x);  // every block has one more
            }
        }
        const Tile tile = walk.at(t);
        for (int p = 0; p < walk.steps; ++p) {
            barrier_wait(&shared.empty[stage], parity ^ 1);
            barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
            tma_load(shared.A[stage], map_a, &shared.full[stage], p * BK, (tile.row * F::CLUSTER + walk.rank) * F::BM);
            if constexpr (F::CLUSTER > 1) {
                tma_load_multicast(&shared.B[stage][walk.rank * F::SHARE * BK], map_b, &shared.full[stage], p * BK,
                                   walk.start(tile.col) + walk.rank * F::SHARE, (1 << F::CLUSTER) - 1);
            } else {
                tma_load(shared.B[stage], map_b, &shared.full[stage], p * BK, walk.start(tile.col));
            }
            if (++stage == F::STAGES) {
                stage = 0, parity ^= 1;
            }
        }
    }
    if constexpr (F::EVERY > 0) {
        __threadfence();
        if (atomicInc(&meeting->done, gridDim.x - 1) == gridDim.x - 1) {
            meeting->met = 0;  // everyone is done (and atomicInc has just set `done` back to 0)
        }
    }
}

// Write 16 x PIECE of a warp, the sums `word(0)`, `word(1)`, ... two to a word, to `staged`, and store it from there.
template <class F, class Words>
__device__ __forceinline__ void store(const TensorMap& map_c, Element* staged, int col, int row, const Words& word) {
    constexpr int PIECE = F::PIECE;
    const int lane = threadIdx.x % 32;
    // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
    const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Element));
#pragma unroll
    for (int chunk = 0; chunk + 1 < PIECE / 8; chunk += 2) {
        const int mine = chunk + lane / 16;
        stmatrix(to + (PIECE == 64 ? mine ^ lane % 8 : mine) * 16, word(chunk * 2), word(chunk * 2 + 1),
                 word(chunk * 2 + 2), word(chunk * 2 + 3));
    }
    if constexpr (PIECE / 8 % 2 == 1) {
        stmatrix_two(to + (PIECE / 8 - 1) * 16, word(PIECE / 4 - 2), word(PIECE / 4 - 1));
    }
    shared_fence();
    __syncwarp();
    if (lane == 0) {
        tma_store(map_c, staged, col, row);
        tma_store_commit();
    }
}

constexpr int NEXT_HALF = 64 * BK * sizeof(Element) >> 4;  // added to a descriptor: the next 64 rows of A

// The t-th tile, WIDTH columns wide, by a consumer alone: multiply it when its turn comes, hand the turn over, and store it.
// warpgroup: the consumer   first: the step of this block with which it begins   begun: parity of `turn`
template <class F, int WIDTH>
__device__ __forceinline__ void multiply_alone(Shared<F>& shared, const TensorMap& map_c, const Walk<F>& walk, int t,
                                               int warpgroup, int first, int begun) {
    constexpr int HALVES = F::BM / 64;  // of a tile: what one wgmma multiplies
    constexpr int PIECE = F::PIECE, PARTS = (WIDTH + PIECE - 1) / PIECE, PIECES = HALVES * PARTS, UNIT = F::UNIT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, steps = walk.steps;
    float sums[HALVES][WIDTH / 2] = {};
    int stage = first % F::STAGES, parity = first / F::STAGES % 2;
    int before[UNIT] = {};  // stages of the group before
    const auto release = [&] {
        if (threadIdx.x % 128 == 0) {
#pragma unroll
            for (int u = 0; u < UNIT; ++u) {
                barrier_arrive(&shared.empty[before[u]]);
            }
        }
    };
    barrier_wait(&shared.turn[warpgroup], begun);
    for (int p = 0; p < steps; p += UNIT) {
        int at[UNIT];
#pragma unroll
        for (int u = 0; u < UNIT; ++u) {
            at[u] = stage;
            barrier_wait(&shared.full[stage], parity);
            if (++stage == F::STAGES) {
                stage = 0, parity ^= 1;
            }
        }
        wgmma_fence();
#pragma unroll
        for (int u = 0; u < UNIT; ++u) {
            const Descriptor a = describe(shared.A[at[u]]), b = describe(shared.B[at[u]]);
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) {
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    wgmma_of_form<WIDTH, Element>(sums[half], a + half * NEXT_HALF + s * NEXT_K16, b + s * NEXT_K16,
                                                  p > 0 || u > 0 || s > 0);
                }
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (p > 0) {
            release();
        }
#pragma unroll
        for (int u = 0; u < UNIT; ++u) {
            before[u] = at[u];
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

    const Tile tile = walk.at(t);
    const int row = tile.row * F::BM + warp % 4 * 16, col = walk.start(tile.col);
    const bool last = t + walk.clusters >= walk.tiles && steps >= F::STAGES;  // and every stage was this tile's
    if (last) {
        consumer_sync(warpgroup);  // all four warps are done with the ring
    }
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        const int half = piece / PARTS, left = min(piece % PARTS * PIECE, WIDTH - PIECE);  // the last may overlap
        Element* staged = shared.C[warp][0];
        if (last) {
            staged = shared.A[0] + (warp % 4 * PIECES + piece) * 16 * PIECE;
        } else if (lane == 0) {
            tma_store_wait_read<0>();
        }
        __syncwarp();
        const float* const d = &sums[half][left / 2];
        store<F>(map_c, staged, col + left, row + half * 64,
                 [&](int i) { return pack<Element>(d[2 * i], d[2 * i + 1]); });
    }
}

template <class F>
__device__ __forceinline__ void own_tile(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                         Meeting* meeting, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of blocks   block: THREADS
    static_assert(sizeof(Shared<F>) <= 227 * 1024, "a block's shared memory");
    static_assert(F::BM * F::BN * sizeof(Element) <= sizeof(Shared<F>::A), "the last tile is staged where A was");
    static_assert(F::CLUSTER == 1 && F::BUFFERS == 1 && F::STAGES > 2 * F::UNIT, "a group is loaded behind two others");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared<F>& shared = *reinterpret_cast<Shared<F>*>(shared_bytes);

    const Walk<F> walk(m, n, k);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(shared, 1);
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            produce(shared, map_a, map_b, meeting, walk);
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int blocks = walk.clusters;
        int first = warpgroup * walk.steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;           // the first consumer need not wait for its first turn

        for (int t = walk.cluster + warpgroup * blocks; t < walk.tiles; t += CONSUMERS * blocks) {
            if (F::NARROW == F::BN || walk.at(t).col < walk.wide) {
                multiply_alone<F, F::BN>(shared, map_c, walk, t, warpgroup, first, begun);
            } else {
                multiply_alone<F, F::NARROW>(shared, map_c, walk, t, warpgroup, first, begun);
            }
            first += CONSUMERS * walk.steps, begun ^= 1;
        }
        if (threadIdx.x % 32 == 0) {
            tma_store_wait<0>();
        }
    }
}

template <class F>
__device__ __forceinline__ void shared_tile(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                            Meeting* meeting, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of clusters   block: THREADS
    // meeting: one, of this launch
    constexpr int ROWS = F::BM / CONSUMERS, HALVES = ROWS / 64;  // of a consumer
    constexpr int BN = F::BN, PIECE = F::PIECE, PIECES = HALVES * BN / PIECE;
    constexpr bool KEEPS = HALVES * BN <= 256;  // there are registers for a tile that waits to be stored
    static_assert(sizeof(Shared<F>) <= 227 * 1024, "a block's shared memory");
    static_assert(F::UNIT == 1, "one consumer multiplies while the other waits");
    static_assert(PIECES % F::BUFFERS == 0, "a buffer that a tile begins with is the one used longest ago");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared<F>& shared = *reinterpret_cast<Shared<F>*>(shared_bytes);

    const Walk<F> walk(m, n, k);
    const int warpgroup = threadIdx.x / 128;
    set_up(shared, CONSUMERS);
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            produce(shared, map_a, map_b, meeting, walk);
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, steps = walk.steps;
        int stage = 0, parity = 0;  // where in the ring, and how often round it
        int before = 0;             // the stage of the step before
        float sums[HALVES][BN / 2] = {};
        Word kept[KEEPS ? HALVES : 1][BN / 4] = {};  // the tile before, rounded
        int row = 0, col = 0;                        // and where this warp's part of it begins in C

        const auto release = [&] {
            if (threadIdx.x % 128 < F::CLUSTER) {
                if constexpr (F::CLUSTER > 1) {
                    barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
                } else {
                    barrier_arrive(&shared.empty[before]);
                }
            }
        };
        const auto multiply = [&](int p) {
            barrier_wait(&shared.full[stage], parity);
            const Descriptor a = describe(&shared.A[stage][warpgroup * ROWS * BK]), b = describe(shared.B[stage]);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) {
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    wgmma_of_form<BN, Element>(sums[half], a + half * NEXT_HALF + s * NEXT_K16, b + s * NEXT_K16,
                                                p > 0 || s > 0);
                }
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (p > 0) {
                release();
            }
            before = stage;
            if (++stage == F::STAGES) {
                stage = 0, parity ^= 1;
            }
        };
        const auto store_piece = [&](int piece) {
            const int half = piece / (BN / PIECE), part = piece % (BN / PIECE);
            if (lane == 0) {
                tma_store_wait_read<F::BUFFERS - 1>();
            }
            __syncwarp();
            const float* const d = &sums[half][part * PIECE / 2];
            store<F>(map_c, shared.C[warp][piece % F::BUFFERS], col + part * PIECE, row + half * 64, [&](int i) {
                if constexpr (KEEPS) {
                    return kept[half][part * PIECE / 4 + i];
                } else {
                    return pack<Element>(d[2 * i], d[2 * i + 1]);
                }
            });
        };

        bool keeps = false;  // whether a tile waits to be stored
        for (int t = walk.cluster; t < walk.tiles; t += walk.clusters) {
            int done = 0;
            if constexpr (KEEPS) {
#pragma unroll
                for (int piece = 0; piece < PIECES; ++piece) {
                    if (piece < steps) {
                        multiply(piece);
                    }
                    if (keeps) {
                        store_piece(piece);
                    }
                }
                done = PIECES;
            }
            for (int p = done; p < steps; ++p) {
                multiply(p);
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                wgmma_finish(sums[half]);
            }
            release();

            const Tile tile = walk.at(t);
            row = (tile.row * F::CLUSTER + walk.rank) * F::BM + warpgroup * ROWS + warp % 4 * 16, col = tile.col * BN;
            if constexpr (KEEPS) {
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                    for (int i = 0; i < BN / 4; ++i) {
                        kept[half][i] = pack<Element>(sums[half][2 * i], sums[half][2 * i + 1]);
                    }
                }
                keeps = true;
            } else {
#pragma unroll
                for (int piece = 0; piece < PIECES; ++piece) {
                    store_piece(piece);
                }
            }
        }
        if (keeps) {  // a cluster beyond the tiles has nothing to store
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                store_piece(piece);
            }
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
    if constexpr (F::CLUSTER > 1) {
        cluster_sync();  // nobody leaves while a neighbour may still write to it
    }
}

#define OPERANDS                                                                               \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,          \
        const __grid_constant__ TensorMap map_c, Meeting* meeting, int m, int n, int k

extern "C" __global__ void __launch_bounds__(THREADS, 1) own_64x128(OPERANDS) {
    own_tile<Form<64, 128, 8, 64, 1, 8, 1, 2, 0>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) own_128x128(OPERANDS) {
    own_tile<Form<128, 128, 6, 64, 1, 8, 1, 2, 0>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) own_128x144(OPERANDS) {
    own_tile<Form<128, 144, 6, 72, 1, 12, 1, 2, 0>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) own_128x192(OPERANDS) {
    own_tile<Form<128, 192, 5, 64, 1, 16, 1, 1, 0>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) own_128x200(OPERANDS) {
    own_tile<Form<128, 200, 5, 40, 1, 16, 1, 1, 0, 192>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) shared_128x256(OPERANDS) {
    shared_tile<Form<128, 256, 4, 64, 2, 8, 2, 1, 4>>(map_a, map_b, map_c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) shared_256x192(OPERANDS) {
    shared_tile<Form<256, 192, 3, 64, 3, 8, 1, 1, 4>>(map_a, map_b, map_c, meeting, m, n, k);
}
