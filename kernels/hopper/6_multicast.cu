// Level H6: two blocks share what they load.
//
// New:        blocks come in clusters of two, one above the other: they multiply different rows of A by the same
//             columns of B. Each loads half of the tile of B and the engine writes it into both (multicast). A stage
//             may be overwritten only when the consumers of both blocks have read it, so each consumer arrives at the
//             `empty` barrier of its own block and at that of its neighbour.
// Parameters: C tile 128x256 a block, 256x256 a cluster; K step 64, STAGES = 4, GROUP = 8 rows of clusters' tiles; 384
//             threads, 192 KB.
// Expected:   128 + 128 elements a k loaded by each block for 128 x 256 outputs: a third less from the L2. B is the
//             larger tile, so sharing B saves twice what sharing A would.
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
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
multicast(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C,
          int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of clusters   block: THREADS
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
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        float sums[BN / 2] = {};
        for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 16; ++s) {
                    wgmma<BN, Element>(sums, a + s * NEXT_K16, b + s * NEXT_K16, p > 0 || s > 0);
                }
                wgmma_commit();
                wgmma_wait<0>();
                if (threadIdx.x % 128 < CLUSTER) {
                    barrier_arrive_at(&shared.empty[stage], threadIdx.x % 128);
                }
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
            wgmma_finish(sums);

            const Tile tile = tile_at(t, rows, cols);
            const int row = (tile.row * CLUSTER + rank) * BM + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
            const int col = tile.col * BN + threadIdx.x % 4 * 2;
#pragma unroll
            for (int i = 0; i < BN / 2; i += 2) {
                const int r = row + i / 2 % 2 * 8, c = col + i / 4 * 8;
                if (r < m && c < n) {
                    *reinterpret_cast<Word*>(&C[static_cast<size_t>(r) * n + c]) = pack<Element>(sums[i], sums[i + 1]);
                }
            }
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}
