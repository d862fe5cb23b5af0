// Level F2: every 128 of K the sums are added to fp32 ones.
//
// New:        the four wgmma of a step begin anew, the consumer waits for them and adds what they leave to a second set
//             of sums by FADD, which rounds to 24 bits. So an element loses what four instructions lose, however long K
//             is. Two sets of a tile of 128 x 128 would take 256 registers a thread, more than there are; so two
//             consumers share a tile of 128 x 192, 96 registers a set, and there are no turns. C is staged in pieces of
//             48 columns, two a warp, which fit beside five stages; they lie unswizzled.
//             EVERY steps pass from one addition to the next, an argument, so that an experiment can vary it.
// Parameters: BM = 128, BN = 192, BK = 128, STAGES = 5, GROUP = 8; EVERY = 1.
// Expected:   FADDs take 4096 / (128 * 128) = 1/4 of the cycles of the wgmma, whatever the tile: 0.80 of F1 where
//             nothing hides them, as cuTile's kernel has it. Here one consumer's run under the other's wgmma as far as
//             the two are out of step: 0.85 to 0.95 of cublasLt's accurate mode.
// Takes:      as level F1.

#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BN = 192, BK = 128;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 5;
constexpr int GROUP = 8;            // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int PIECE = 48;           // a warp stores 16 rows of C in pieces of 48 columns
constexpr int BUFFERS = 2;          // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");
static_assert(BN % PIECE == 0 && PIECE % 16 == 0, "whole pieces, of pairs of 16-byte chunks");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[4 * CONSUMERS][BUFFERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Tile {
    int row, col;  // counted in tiles
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
promoted(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, int m, int n, int k, int every) {
    // A: [m, k]   B: [n, k]   C: [m, n]   every: steps, 1 or more   grid: any number of blocks   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            tma_prefetch(map_a);
            tma_prefetch(map_b);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    tma_load(shared.A[stage], map_a, &shared.full[stage], p * BK, tile.row * BM);
                    tma_load(shared.B[stage], map_b, &shared.full[stage], p * BK, tile.col * BN);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float fresh[BN / 2] = {};  // what the tensor cores add to
        for (int t = blockIdx.x; t < tiles; t += blocks) {
            float sums[BN / 2] = {};
            int left = every;  // steps until the next addition
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 32; ++s) {
                    wgmma_e4m3<BN>(fresh, a + s * NEXT_K32, b + s * NEXT_K32, left < every || s > 0);
                }
                wgmma_commit();
                wgmma_finish(fresh);
                if (threadIdx.x % 128 == 0) {
                    barrier_arrive(&shared.empty[stage]);
                }
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
                if (--left == 0 || p == steps - 1) {
#pragma unroll
                    for (int i = 0; i < BN / 2; ++i) {
                        sums[i] += fresh[i];
                    }
                    left = every;
                }
            }

            const Tile tile = tile_at(t, rows, cols);
            const int row = tile.row * BM + warp * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                Result* const staged = shared.C[warp][piece % BUFFERS];
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Result)) + lane / 16 * 16;
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    const float* d = &sums[piece * PIECE / 2 + chunk * 4];
                    stmatrix(to + chunk * 16, pack<Result>(d[0], d[1]), pack<Result>(d[2], d[3]),
                             pack<Result>(d[4], d[5]), pack<Result>(d[6], d[7]));
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, staged, col + piece * PIECE, row);
                    tma_store_commit();
                }
            }
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}
