// Level H8: the next step is issued before the last one has ended.
//
// New:        the wait moves back by one step of K. Level H7 waited for a step's four wgmma before it looked at the
//             next stage, so a warpgroup's queue ran empty at each step; now it issues the next four first, and only
//             then waits for the four before and releases their stage.
// Parameters: as level H7.
// Expected:   H7's two consumers fill each other's gaps, so little is left to gain: 1 to 2%.
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
constexpr int PIECES = 2;  // of 16 rows and 64 columns of C, in which a warp stores
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Element C[4 * CONSUMERS][PIECES][16 * 64];  // of each warp
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
in_flight(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
          const __grid_constant__ TensorMap map_c, int m, int n, int k) {
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
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float sums[BN / 2] = {};
        for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
            int before = stage;  // the stage of the step before
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 16; ++s) {
                    wgmma<BN, Element>(sums, a + s * NEXT_K16, b + s * NEXT_K16, p > 0 || s > 0);
                }
                wgmma_commit();
                wgmma_wait<1>();
                if (p > 0 && threadIdx.x % 128 < CLUSTER) {
                    barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
                }
                before = stage;
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
            wgmma_finish(sums);
            if (threadIdx.x % 128 < CLUSTER) {
                barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
            }

            const Tile tile = tile_at(t, rows, cols);
            const int row = (tile.row * CLUSTER + rank) * BM + warp * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / 64; ++piece) {
                Element* const staged = shared.C[warp][piece % PIECES];
                if (lane == 0) {
                    tma_store_wait_read<PIECES - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * 128;
#pragma unroll
                for (int chunk = 0; chunk < 8; chunk += 2) {
                    const float* d = &sums[piece * 32 + chunk * 4];
                    stmatrix(to + ((chunk + lane / 16) ^ lane % 8) * 16, pack<Element>(d[0], d[1]),
                             pack<Element>(d[2], d[3]), pack<Element>(d[4], d[5]), pack<Element>(d[6], d[7]));
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, staged, col + piece * 64, row);
                    tma_store_commit();
                }
            }
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}
