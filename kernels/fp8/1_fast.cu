// Level F1: e4m3, the sums left in the tensor core.
//
// New:        level H12 of the Hopper ladder in 8-bit floats. The bytes of a step are the same, so are ring, turns and
//             epilogue; a step is 128 elements of K instead of 64, in as many cycles. C is fp16: 11 bits show what the
//             sums have lost, of which bf16's 8 would hide the most.
// Parameters: BM = BN = 128, BK = 128, STAGES = 6, GROUP = 8.
// Expected:   cublasLt's fast mode takes as long. A step costs 512 cycles and some 14 more, the last wave of 4096 and
//             8192 is 76 and 3% full: 0.94 to 0.98 of it.
// Takes:      A [m, k] row-major, B [n, k] (K-major), C [m, n] row-major in fp16; n a multiple of 8, k of 16.

#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BN = 128, BK = 128;  // a tile of C is BM x BN; a consumer walks K in steps of BK
constexpr int STAGES = 6;
constexpr int GROUP = 8;         // rows of tiles that are walked together
constexpr int HALVES = BM / 64;  // of a tile: what one wgmma multiplies
constexpr int PIECE = 64;        // a warp stores 16 rows of C in pieces of 64 columns
constexpr int CONSUMERS = 2;     // warpgroups; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[4 * CONSUMERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next tile
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
fast(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
     const __grid_constant__ TensorMap map_c, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of blocks   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
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
        float sums[HALVES][BN / 2] = {};
        int first = warpgroup * steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;      // parity of `turn`: the first consumer need not wait for its first

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
                        wgmma_e4m3<BN>(sums[half], a + half * NEXT_HALF + s * NEXT_K32, b + s * NEXT_K32,
                                       p > 0 || s > 0);
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

            const Tile tile = tile_at(t, rows, cols);
            const int row = tile.row * BM + warp % 4 * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < HALVES * BN / PIECE; ++piece) {
                const int half = piece / (BN / PIECE), part = piece % (BN / PIECE);
                Result* const staged = shared.C[warp];
                if (lane == 0) {
                    tma_store_wait_read<0>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * 128;
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    const float* d = &sums[half][part * PIECE / 2 + chunk * 4];
                    stmatrix(to + ((chunk + lane / 16) ^ lane % 8) * 16, pack<Result>(d[0], d[1]),
                             pack<Result>(d[2], d[3]), pack<Result>(d[4], d[5]), pack<Result>(d[6], d[7]));
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, staged, col + part * PIECE, row + half * 64);
                    tma_store_commit();
                }
            }
            first += CONSUMERS * steps, begun ^= 1;
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}
