// Level H11: the last wave of tiles is split along K (stream-K).
//
// New:        tiles come in waves, one for each cluster, and the last wave is seldom full: at 8192 it has 34 tiles for
//             66 clusters. So the tiles of that wave and of one full wave more are laid end to end, as one long way
//             along K, and cut into as many equal ranges as there are clusters. A range is at least as long as a tile,
//             so a tile is cut once at most. Whoever has its end does that first, hands its sums over through global
//             memory and raises a flag; whoever has its beginning does that last, adds the sums and keeps the tile. All
//             other tiles follow as in level H9, whose kernel this is.
//             It is safe: nobody waits before it has handed over, and a cluster waits only for the one with the number
//             before, which started earlier. It is repeatable: two sums are added in one order. Where cutting would
//             save fewer than WORTH steps, nothing is cut. Sums and flags are handed over in memory of the caller, who
//             gives launches that may overlap memory of their own.
// Parameters: as level H7; WORTH = 48 steps; the producer keeps 56 registers, consumers have 224.
// Expected:   62 of 2048 steps saved at 8192, 3%, 240 of 16128 at 16384, 1.5%; handing 128 KB over and adding it costs
//             a block some 6 steps. (Measured: 15 to 40 steps, hence WORTH; at 8192 0.6 to 1.4% is gained.)
// Takes:      as level H1, and 17 MB of workspace.

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
constexpr int SLOTS = 132;  // blocks that take part, at most
constexpr int WORTH = 48;   // steps that a cluster must save before tiles are cut
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int PIECES = BN / 64;  // a warp stores 16 rows of C in pieces of 64 columns
constexpr int BUFFERS = 2;       // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
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

// What a cluster computes, part by part: steps `from` to `to` of a tile's way along K.
struct Walk {
    int tile, from, to;
    int steps, clusters;
    int end;    // of the range, in steps from the first tile's first
    int whole;  // the next tile that is not cut

    __device__ __forceinline__ Walk(int tiles, int steps, int clusters, int cluster)
        : steps(steps), clusters(clusters) {
        const int over = tiles % clusters;  // tiles of the last wave
        const int saved = over > 0 ? (clusters - over) * steps / clusters : 0;
        const int cut = saved < WORTH ? 0 : clusters + over;  // tiles that are laid end to end
        const int place = clusters - 1 - cluster;
        const int begin = place * cut * steps / clusters;
        end = (place + 1) * cut * steps / clusters;
        whole = cut + cluster;
        tile = begin / steps, from = begin % steps, to = min(steps, end - tile * steps);
        if (cut == 0) {
            next();
        }
        if (cluster >= clusters) {
            tile = tiles;  // more clusters than tiles or SLOTS: nothing to do
        }
    }

    __device__ __forceinline__ void next() {
        from = 0, to = steps;
        if (++tile * steps < end) {
            to = min(steps, end - tile * steps);
        } else {
            tile = whole;
            whole += clusters;
        }
    }
};

using Handed = float4[4 * CONSUMERS][BN / 8][32];  // a block's sums, by warp and lane, as threads hold them
using Flags = unsigned[4 * CONSUMERS];             // of a block's warps: all down (0) before and after a launch

// All that this warp stored before is seen by whoever sees the flag.
__device__ __forceinline__ void raise(unsigned* flag) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

// Wait for the flag, and take it down for the next launch.
__device__ __forceinline__ void await(unsigned* flag) {
    unsigned up;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(up) : "l"(flag) : "memory");
    } while (!up);
    *flag = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
stream_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, Handed* handed, Flags* ready, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of clusters   block: THREADS
    // handed: [SLOTS], undefined   ready: [SLOTS], zero; both of this launch
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM), cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = rows * cols, cluster = blockIdx.x / CLUSTER, rank = cluster_rank();
    const int clusters = min(min(static_cast<int>(gridDim.x), SLOTS) / CLUSTER, tiles);
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
            for (Walk part(tiles, steps, clusters, cluster); part.tile < tiles; part.next()) {
                const Tile tile = tile_at(part.tile, rows, cols);
                for (int p = part.from; p < part.to; ++p) {
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

        bool keeps = false;  // whether a tile waits in `kept`
        for (Walk part(tiles, steps, clusters, cluster); part.tile < tiles; part.next()) {
            const int length = part.to - part.from;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                if (piece < length) {
                    multiply(piece);
                }
                if (keeps) {
                    store(piece);
                }
            }
            for (int p = PIECES; p < length; ++p) {
                multiply(p);
            }
            wgmma_finish(sums);
            release();

            if (part.from > 0) {  // the end of a tile
#pragma unroll
                for (int i = 0; i < BN / 8; ++i) {
                    const float* four = &sums[4 * i];
                    __stcg(&handed[blockIdx.x][warp][i][lane], make_float4(four[0], four[1], four[2], four[3]));
                }
                __syncwarp();
                if (lane == 0) {
                    raise(&ready[blockIdx.x][warp]);
                }
                keeps = false;
                continue;
            }
            if (part.to < steps) {  // the beginning of a tile; this warp's twin in the cluster before has the rest
                const int twin = blockIdx.x - CLUSTER;
                if (lane == 0) {
                    await(&ready[twin][warp]);
                }
                __syncwarp();
#pragma unroll
                for (int i = 0; i < BN / 8; ++i) {
                    const float4 rest = __ldcg(&handed[twin][warp][i][lane]);
                    kept[2 * i] = pack<Element>(sums[4 * i] + rest.x, sums[4 * i + 1] + rest.y);
                    kept[2 * i + 1] = pack<Element>(sums[4 * i + 2] + rest.z, sums[4 * i + 3] + rest.w);
                }
            } else {
#pragma unroll
                for (int i = 0; i < BN / 4; ++i) {
                    kept[i] = pack<Element>(sums[2 * i], sums[2 * i + 1]);
                }
            }
            const Tile tile = tile_at(part.tile, rows, cols);
            row = (tile.row * CLUSTER + rank) * BM + warp * 16, col = tile.col * BN;
            keeps = true;
        }
        if (keeps) {
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
