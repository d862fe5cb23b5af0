// Level F6: scales arrive with the tiles.
//
// New:        a step's scales lie in the ring beside its tiles: a second warp of the producer copies them there by
//             cp.async, in words, since a row of scales may begin at any of them, and they arrive at the barrier of the
//             tiles. So a scale that comes from DRAM has as many steps to do so as a tile has, and threads read it from
//             shared memory when it is needed; level F5 asks for it one step ahead.
//             A tile of 128 columns lies in one block of B; one of 192 in two, and where the second begins, after 64 or
//             128 columns, depends on the tile: the scale of the 64 columns in the middle is either's.
// Parameters: as F4, but C is staged in pieces of 32 columns, three a warp, for the tile of 128 columns: two of 64 and
//             six stages leave no room for scales.
// Expected:   F4's cycles with this tile and 1% more: 3 LDS and 2 FMUL a step of 128 x 128, 5 and 6 of 128 x 192. 1.05 of
//             cublasLt's block-scaled mode or more.
// Takes:      as level F5; `best_ring_tile` in family.py chooses.

#include "common/cp_async_word.cuh"
#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BK = 128;   // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int BLOCK = 128;          // columns of B that share a scale
constexpr int GROUP = 8;            // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

// A warp stores 16 rows of C in pieces of PIECE columns, BUFFERS of which wait for the copy engine.
template <int BN, int STAGES, int PIECE, int BUFFERS>
struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[4 * CONSUMERS][BUFFERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
    float of_a[STAGES][BM], of_b[STAGES][BN == BLOCK ? 1 : 3];  // scales
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
template <int BN, int PARTS, int STAGES, int PIECE, int BUFFERS>
__device__ __forceinline__ void multiply_tiles(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                               const float* scale_a, const float* scale_b, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   scale_a: [depth, m]   scale_b: [blocks of B, pitch]   grid: any
    // block: THREADS
    constexpr int PART = BN / PARTS;             // columns that a wgmma multiplies
    constexpr int SCALES_B = BN == BLOCK ? 1 : 3;  // a step's: of the columns at the left, in the middle, at the right
    using Shared = ::Shared<BN, STAGES, PIECE, BUFFERS>;
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
    static_assert(PART % PIECE == 0 && PIECE % 16 == 0, "whole pieces of a part, of pairs of 16-byte chunks");
    static_assert((BN == BLOCK && PARTS == 1) || (BN == 192 && PARTS == 2), "where scales of B change");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int depth = (k + BK - 1) / BK, pitch = (depth + 3) / 4 * 4;  // steps that have scales
    const int rounds = PARTS == 1 ? (depth + 1) / 2 : depth;            // of two sets of fresh sums
    const int steps = PARTS == 1 ? 2 * rounds : rounds;
    const int tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1 + 32);
            barrier_init(&shared.empty[s], 4 * CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    const int lane = threadIdx.x % 32;
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
        if (warp == 0 && lane == 0) {
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
        } else if (warp == 1) {
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                const float* from_a[BM / 32];
#pragma unroll
                for (int i = 0; i < BM / 32; ++i) {
                    from_a[i] = scale_a + min(tile.row * BM + i * 32 + lane, m - 1);  // what lies beyond is not stored
                }
                // Of three the lanes 0 to 2 copy those of the first column, of the 64 in the middle, and of the last.
                const int column = tile.col * BN + (SCALES_B == 1 ? 0 : lane * 64);
                const float* from_b = scale_b + static_cast<size_t>(min(column, n - 1) / BLOCK) * pitch;
                for (int p = 0; p < steps; ++p) {
                    const bool real = p < depth;  // the step of zeros has no scales
                    barrier_wait(&shared.empty[stage], parity ^ 1);
#pragma unroll
                    for (int i = 0; i < BM / 32; ++i) {
                        copy_word(&shared.of_a[stage][i * 32 + lane], from_a[i], real);
                        from_a[i] += real ? m : 0;
                    }
                    if (lane < SCALES_B) {
                        copy_word(&shared.of_b[stage][lane], from_b + (real ? p : 0), real);
                    }
                    barrier_arrive_copied(&shared.full[stage]);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int warp = threadIdx.x / 32;
        float sums[PARTS][PART / 2] = {};
        float fresh[2][PART / 2] = {};  // what the tensor cores add to
        int buffer = 0;                 // the next piece's
        // Of each set of fresh sums: by which its upper and its lower rows are multiplied, in one block of B and in the
        // next.
        float scales[2][PARTS][2];

        // The products of this stage's scales.
        const auto fetch_steps = [&](float(&s)[PARTS][2]) {
            const float of_b = shared.of_b[stage][0];
            s[0][0] = shared.of_a[stage][warp * 16 + lane / 4] * of_b;
            s[0][1] = shared.of_a[stage][warp * 16 + lane / 4 + 8] * of_b;
        };
        const auto fetch_halves = [&] {
            const float upper = shared.of_a[stage][warp * 16 + lane / 4];
            const float lower = shared.of_a[stage][warp * 16 + lane / 4 + 8];
#pragma unroll
            for (int half = 0; half < PARTS; ++half) {
#pragma unroll
                for (int side = 0; side < PARTS; ++side) {
                    const float of_b = shared.of_b[stage][half + side];
                    scales[half][side][0] = upper * of_b, scales[half][side][1] = lower * of_b;
                }
            }
        };
        const auto multiply = [&](float(&d)[PART / 2], Descriptor a, Descriptor b) {
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 32; ++s) {
                wgmma_e4m3<PART>(d, a + s * NEXT_K32, b + s * NEXT_K32, s > 0);
            }
            wgmma_commit();
        };
        // Columns of `from` from the FIRST on have the scales of the next block of B.
        const auto add = [](float(&to)[PART / 2], const float(&from)[PART / 2], const float(&s)[PARTS][2], int first) {
#pragma unroll
            for (int i = 0; i < PART / 2; ++i) {
                to[i] += from[i] * s[i * 2 < first ? 0 : PARTS - 1][i % 4 / 2];
            }
        };
        const auto release = [&](int freed) {
            __syncwarp();
            if (lane == 0) {
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
                Result* const staged = shared.C[warp][buffer];
                buffer = buffer + 1 < BUFFERS ? buffer + 1 : 0;
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks. In
                // pieces of 32 columns, chunks change places by the 64-byte swizzle.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Result));
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    float* const d = &sums[part][within * PIECE / 2 + chunk * 4];
                    const int mine = chunk + lane / 16;
                    stmatrix(to + (PIECE == 32 ? mine ^ lane / 2 % 4 : mine) * 16, pack<Result>(d[0], d[1]),
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
            fetch_steps(scales[0]);
            advance();
        }
        multiply(fresh[1], tile_a(), tile_b() + NEXT_PART);
        if constexpr (PARTS == 1) {
            fetch_steps(scales[1]);
        } else {
            fetch_halves();
        }
        wgmma_arrived<1>(fresh[0]);
        if constexpr (PARTS == 1) {
            release(0);
        }
        add(sums[0], fresh[0], scales[0], 64);
        for (int i = 1; i < total; ++i) {
            int before = advance();
            wgmma_arrived<0>(fresh[1]);
            release(before);
            multiply(fresh[0], tile_a(), tile_b());
            if constexpr (PARTS == 1) {
                fetch_steps(scales[0]);
            }
            add(sums[PARTS - 1], fresh[1], scales[1], 32);
            if constexpr (PARTS == 1) {
                before = advance();
            }
            multiply(fresh[1], tile_a(), tile_b() + NEXT_PART);
            if constexpr (PARTS == 1) {
                fetch_steps(scales[1]);
            } else {
                fetch_halves();
            }
            if (++p == rounds) {
                store(tile_at(t, rows, cols));
                t += blocks, p = 0;
            }
            wgmma_arrived<1>(fresh[0]);
            if constexpr (PARTS == 1) {
                release(before);
            }
            add(sums[0], fresh[0], scales[0], 64);
        }
        wgmma_arrived<0>(fresh[1]);
        add(sums[PARTS - 1], fresh[1], scales[1], 32);
        store(tile_at(t, rows, cols));
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}

#define OPERANDS                                                                      \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, \
        const __grid_constant__ TensorMap map_c, const float *scale_a, const float *scale_b, int m, int n, int k

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x128(OPERANDS) {
    multiply_tiles<128, 1, 6, 32, 3>(map_a, map_b, map_c, scale_a, scale_b, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x192(OPERANDS) {
    multiply_tiles<192, 2, 5, 48, 2>(map_a, map_b, map_c, scale_a, scale_b, m, n, k);
}
