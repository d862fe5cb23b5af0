// Level F3: additions run under wgmma.
//
// New:        a consumer's 64 x 192 sums are two halves of 96 columns, and the tensor cores always have one half's four
//             wgmma in hand while the consumer adds the other's: no addition is waited for, whether or not the two
//             consumers are out of step. As sums and fresh ones are two sets anyway, a finished tile is stored while
//             the first step of the next one is multiplied, both halves of it, as in level H9, in no registers of its
//             own.
// Parameters: as level F2, EVERY = 1.
// Expected:   a half's wgmma take 192 cycles; 48 FADDs, some 60 cycles until they may begin and the next barrier fit
//             under them. A finished tile has 2 * 384 cycles of both consumers for its epilogue. So cycles as F1 or
//             fewer: the tile loads 5/6 of F1's bytes. m64n96k32 reads 5 KB in 48 cycles, 107 of 128 bytes a cycle; F1
//             reads 96. 1.00 of cublasLt's accurate mode from 8192 on, 0.92 at 4096, which makes 5.33 waves.
// Takes:      as level F1.

#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BN = 192, BK = 128;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 5;
constexpr int GROUP = 8;            // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int HALF = BN / 2;        // columns that a wgmma multiplies
constexpr int PIECE = 48;           // a warp stores 16 rows of C in pieces of 48 columns
constexpr int BUFFERS = 2;          // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");
static_assert(HALF % PIECE == 0 && PIECE % 16 == 0, "whole pieces of a half, of pairs of 16-byte chunks");

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
hidden(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
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
        float sums[2][HALF / 2] = {};   // of each half
        float fresh[2][HALF / 2] = {};  // what the tensor cores add to

        const auto multiply = [&](float(&d)[HALF / 2], Descriptor a, Descriptor b) {
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 32; ++s) {
                wgmma_e4m3<HALF>(d, a + s * NEXT_K32, b + s * NEXT_K32, s > 0);
            }
            wgmma_commit();
        };
        const auto add = [](float(&to)[HALF / 2], const float(&from)[HALF / 2]) {
#pragma unroll
            for (int i = 0; i < HALF / 2; ++i) {
                to[i] += from[i];
            }
        };
        const auto store = [&](Tile tile) {
            const int row = tile.row * BM + warp * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                const int half = piece / (HALF / PIECE), part = piece % (HALF / PIECE);
                Result* const staged = shared.C[warp][piece % BUFFERS];
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Result)) + lane / 16 * 16;
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    float* const d = &sums[half][part * PIECE / 2 + chunk * 4];
                    stmatrix(to + chunk * 16, pack<Result>(d[0], d[1]), pack<Result>(d[2], d[3]),
                             pack<Result>(d[4], d[5]), pack<Result>(d[6], d[7]));
#pragma unroll
                    for (int i = 0; i < 8; ++i) {
                        d[i] = 0;  // for the next tile
                    }
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, staged, col + piece * PIECE, row);
                    tma_store_commit();
                }
            }
        };

        constexpr int NEXT_HALF = HALF * BK >> 4;
        const int total = (tiles - blockIdx.x + blocks - 1) / blocks * steps;  // of this block
        int t = blockIdx.x, p = 0;  // the tile whose sums these are, and how many of its steps they hold
        barrier_wait(&shared.full[0], 0);
        const Descriptor a0 = describe(&shared.A[0][warpgroup * 64 * BK]), b0 = describe(shared.B[0]);
        multiply(fresh[0], a0, b0);
        multiply(fresh[1], a0, b0 + NEXT_HALF);
        wgmma_arrived<1>(fresh[0]);
        add(sums[0], fresh[0]);
        for (int i = 1; i < total; ++i) {
            const int before = stage;
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
            barrier_wait(&shared.full[stage], parity);
            const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
            wgmma_arrived<0>(fresh[1]);
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[before]);
            }
            multiply(fresh[0], a, b);
            add(sums[1], fresh[1]);
            multiply(fresh[1], a, b + NEXT_HALF);
            if (++p == steps) {
                store(tile_at(t, rows, cols));
                t += blocks, p = 0;
            }
            wgmma_arrived<1>(fresh[0]);
            add(sums[0], fresh[0]);
        }
        wgmma_arrived<0>(fresh[1]);
        add(sums[1], fresh[1]);
        store(tile_at(t, rows, cols));
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}
