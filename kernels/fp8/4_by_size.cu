// Level F4: the tile is chosen by the size of the problem.
//
// New:        the kernel of level F3 for two tiles, an entry point each; the host takes the one whose waves of 132 end
//             sooner. 128 x 192 makes 20.85 waves of 8192, 128 x 128 makes 7.76 of 4096 and 124.1 of 16384. Halves of a
//             tile of 128 columns would be too narrow: m64n64k32 reads 128 bytes a cycle, all that shared memory has.
//             So there the two sets of fresh sums belong to two steps instead: one step is multiplied while the other's
//             sums are added. Steps come in pairs; where K has an odd number of them, the last is one of zeros, which
//             TMA supplies beyond the matrix.
// Parameters: 128 x 128 with 6 stages, 128 x 192 with 5; GROUP = 8.
// Expected:   4096 in 8 waves of 16.4k cycles, not 6 of 24.6k: 11% fewer cycles than F3. 8192 as F3, 16384 0.8% fewer.
//             1.00 of cublasLt's accurate mode at all three.
// Takes:      as level F1; `best_tile` in family.py chooses.

#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BK = 128;   // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int GROUP = 8;            // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int BUFFERS = 2;          // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

// A warp stores 16 rows of C in pieces of PIECE columns.
template <int BN, int STAGES, int PIECE>
struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[4 * CONSUMERS][BUFFERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
};

struct Tile {
    int row, col;  // counted in tiles
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

// PARTS 2: fresh sums are those of the two halves of the tile's columns, of one step. PARTS 1: of two steps.
template <int BN, int PARTS, int STAGES, int PIECE>
__device__ __forceinline__ void multiply_tiles(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                               int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of blocks   block: THREADS
    constexpr int PART = BN / PARTS;  // columns that a wgmma multiplies
    constexpr bool SWIZZLED = PIECE == 64;
    using Shared = ::Shared<BN, STAGES, PIECE>;
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
    static_assert(PART % PIECE == 0 && PIECE % 16 == 0, "whole pieces of a part, of pairs of 16-byte chunks");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int rounds = PARTS == 1 ? (k + 2 * BK - 1) / (2 * BK) : (k + BK - 1) / BK;  // of two sets of fresh sums
    const int steps = PARTS == 1 ? 2 * rounds : rounds;
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
        float sums[PARTS][PART / 2] = {};
        float fresh[2][PART / 2] = {};  // what the tensor cores add to

        const auto multiply = [&](float(&d)[PART / 2], Descriptor a, Descriptor b) {
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 32; ++s) {
                wgmma_e4m3<PART>(d, a + s * NEXT_K32, b + s * NEXT_K32, s > 0);
            }
            wgmma_commit();
        };
        const auto add = [](float(&to)[PART / 2], const float(&from)[PART / 2]) {
#pragma unroll
            for (int i = 0; i < PART / 2; ++i) {
                to[i] += from[i];
            }
        };
        const auto release = [&](int freed) {
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[freed]);
            }
        };
        // The next step's stage, once it is full; the one before.
        const auto advance = [&] {
            const int before = stage;
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
            barrier_wait(&shared.full[stage], parity);
            return before;
        };
        const auto tile_a = [&] { return describe(&shared.A[stage][warpgroup * 64 * BK]); };
        const auto tile_b = [&] { return describe(shared.B[stage]); };
        const auto store = [&](Tile tile) {
            const int row = tile.row * BM + warp * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                const int part = piece / (PART / PIECE), within = piece % (PART / PIECE);
                Result* const staged = shared.C[warp][piece % BUFFERS];
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Result));
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    float* const d = &sums[part][within * PIECE / 2 + chunk * 4];
                    const int mine = chunk + lane / 16;
                    stmatrix(to + (SWIZZLED ? mine ^ lane % 8 : mine) * 16, pack<Result>(d[0], d[1]),
                             pack<Result>(d[2], d[3]), pack<Result>(d[4], d[5]), pack<Result>(d[6], d[7]));
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

        constexpr int NEXT_PART = PARTS == 1 ? 0 : PART * BK >> 4;  // added to a descriptor of B
        const int total = (tiles - blockIdx.x + blocks - 1) / blocks * rounds;  // of this block
        int t = blockIdx.x, p = 0;  // the tile whose sums these are, and how many of its rounds they hold
        barrier_wait(&shared.full[0], 0);
        multiply(fresh[0], tile_a(), tile_b());
        if constexpr (PARTS == 1) {
            advance();
        }
        multiply(fresh[1], tile_a(), tile_b() + NEXT_PART);
        wgmma_arrived<1>(fresh[0]);
        if constexpr (PARTS == 1) {
            release(0);
        }
        add(sums[0], fresh[0]);
        for (int i = 1; i < total; ++i) {
            int before = advance();
            wgmma_arrived<0>(fresh[1]);
            release(before);
            multiply(fresh[0], tile_a(), tile_b());
            add(sums[PARTS - 1], fresh[1]);
            if constexpr (PARTS == 1) {
                before = advance();
            }
            multiply(fresh[1], tile_a(), tile_b() + NEXT_PART);
            if (++p == rounds) {
                store(tile_at(t, rows, cols));
                t += blocks, p = 0;
            }
            wgmma_arrived<1>(fresh[0]);
            if constexpr (PARTS == 1) {
                release(before);
            }
            add(sums[0], fresh[0]);
        }
        wgmma_arrived<0>(fresh[1]);
        add(sums[PARTS - 1], fresh[1]);
        store(tile_at(t, rows, cols));
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}

#define OPERANDS                                                                      \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, \
        const __grid_constant__ TensorMap map_c, int m, int n, int k

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x128(OPERANDS) {
    multiply_tiles<128, 1, 6, 64>(map_a, map_b, map_c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x192(OPERANDS) {
    multiply_tiles<192, 2, 5, 48>(map_a, map_b, map_c, m, n, k);
}
