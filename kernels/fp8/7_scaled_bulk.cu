// Level F7: the copy engine brings the scales, and one set of fresh sums serves tiles twice as large.
//
// New:        one thread asks for a step's scales, by a bulk copy for A and one for B, where F6's warp asks word by word
//             and each of its lanes arrives at the barrier. Threads read a step's scales while the step before is
//             multiplied, so that no wgmma waits for them.
//             A consumer adds its fresh sums, 64 x 128, before it multiplies on; others' wgmma run meanwhile. So tiles
//             are 128 columns wide: their wgmma read 96 bytes of shared memory a cycle for 107 of 96 columns, and TMA
//             writes 48 or 53. Two consumers of two such halves have 256 x 128 of C, three of one have 192 x 128.
//             A finished half is stored under the wgmma of the next tile's.
//             Stages are unrolled, since an address in the ring is then a constant; what is left of the last STAGES
//             steps is skipped by all.
// Parameters: BN = BK = 128, STAGES = 4, GROUP = 8 rows of tiles; C in pieces of 32 columns, three a warp.
// Expected:   sustained 1.12, 1.14, 1.13 of block-scaled cublasLt at 4096, 8192, 16384; without clusters 1.09 to 1.11.
// Takes:      as level F5, and m a multiple of 4, which a bulk copy asks for; `best_bulk_tile` in family.py chooses.

#include "common/bulk.cuh"
#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BN = 128, BK = 128;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 4;
constexpr int GROUP = 8;                // rows of tiles that are walked together
constexpr int HALF = 64;                // rows that a warpgroup multiplies at once
constexpr int PIECE = 32, BUFFERS = 3;  // a warp stores 16 rows of C in pieces of PIECE columns, BUFFERS of which wait
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(STAGES == 4, "B's scales of the steps in the ring are 16 bytes");

template <int BM>
struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[BM / 16 / (BM == 256 ? 2 : 1)][BUFFERS][16 * PIECE];  // of each warp
    float of_a[STAGES][BM], of_b[STAGES][STAGES];                  // scales; B's of the four steps in the ring
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

// CONSUMERS: warpgroups, of HALVES x HALF rows each; the producer follows them.
template <int CONSUMERS, int HALVES, int PRODUCER_REGISTERS, int CONSUMER_REGISTERS>
__device__ __forceinline__ void multiply_tiles(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                               const float* scale_a, const float* scale_b, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   scale_a: [depth, m]   scale_b: [cols, pitch]   grid: any
    // block: 128 * (CONSUMERS + 1)
    constexpr int OWN = HALVES * HALF, BM = CONSUMERS * OWN;
    using Shared = ::Shared<BM>;
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
    static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int depth = (k + BK - 1) / BK, pitch = (depth + 3) / 4 * 4;  // steps that have scales
    const int tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], 4 * CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int parity = 0;  // how often round the ring; a tile begins at its first stage
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            tma_prefetch(map_a);
            tma_prefetch(map_b);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                const float* of_a = scale_a + tile.row * BM;
                const float* const of_b = scale_b + static_cast<size_t>(tile.col) * pitch;
                const int bytes_a = static_cast<int>(sizeof(float)) * min(BM, m - tile.row * BM);
                for (int p = 0; p < depth; p += STAGES, parity ^= 1) {
#pragma unroll
                    for (int s = 0; s < STAGES; ++s) {
                        barrier_wait(&shared.empty[s], parity ^ 1);
                        if (p + s < depth) {
                            barrier_expect(&shared.full[s], sizeof(shared.A[0]) + sizeof(shared.B[0]) +
                                                                sizeof(shared.of_b[0]) + bytes_a);
                            bulk_load(shared.of_a[s], of_a, &shared.full[s], bytes_a);
                            bulk_load(shared.of_b[s], of_b + p, &shared.full[s], sizeof(shared.of_b[0]));
                            tma_load(shared.A[s], map_a, &shared.full[s], (p + s) * BK, tile.row * BM);
                            tma_load(shared.B[s], map_b, &shared.full[s], (p + s) * BK, tile.col * BN);
                            of_a += m;
                        } else {
                            barrier_arrive(&shared.full[s]);
                        }
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int upper = warpgroup * OWN + warp % 4 * 16;  // this warp's first row
        float sums[HALVES][BN / 2] = {};
        float fresh[BN / 2] = {};            // what the tensor cores add to
        float next_a[HALVES * 2], next_b;    // scales of the next step: of two rows of each half, and of B
        int buffer = 0;                      // the next piece's
        const Descriptor first_a = describe(&shared.A[0][warpgroup * OWN * BK]), first_b = describe(shared.B[0]);

        const auto fetch = [&](int s) {
            next_b = shared.of_b[s][s];
#pragma unroll
            for (int j = 0; j < HALVES * 2; ++j) {
                next_a[j] = shared.of_a[s][upper + j / 2 * HALF + j % 2 * 8 + lane / 4];
            }
        };
        const auto multiply = [&](int s, int half) {
            const Descriptor a = first_a + ((s * BM + half * HALF) * BK >> 4), b = first_b + (s * BN * BK >> 4);
            wgmma_fence();
#pragma unroll
            for (int part = 0; part < BK / 32; ++part) {
                wgmma_e4m3<BN>(fresh, a + part * NEXT_K32, b + part * NEXT_K32, part > 0);
            }
            wgmma_commit();
        };
        const auto release = [&](int s) {
            __syncwarp();
            if (lane == 0) {
                barrier_arrive(&shared.empty[s]);
            }
        };
        const auto store = [&](int half, Tile tile) {
            const int row = tile.row * BM + upper + half * HALF, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                Result* const staged = shared.C[warp][buffer];
                buffer = buffer + 1 < BUFFERS ? buffer + 1 : 0;
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks,
                // which change places by the 64-byte swizzle.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Result));
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    float* const d = &sums[half][piece * PIECE / 2 + chunk * 4];
                    stmatrix(to + ((chunk + lane / 16) ^ lane / 2 % 4) * 16, pack<Result>(d[0], d[1]),
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

        Tile before{};       // whose sums are stored when the next tile's first products are under way
        bool stored = true;  // or were
        barrier_wait(&shared.full[0], 0);
        fetch(0);
        for (int t = blockIdx.x; t < tiles; t += blocks) {
            for (int p = 0; p < depth; p += STAGES, parity ^= 1) {
#pragma unroll
                for (int s = 0; s < STAGES; ++s) {
                    const bool ends = t + blocks >= tiles && p + STAGES >= depth;  // the last steps of this block
                    const auto await_next = [&] {
                        if (s + 1 < STAGES) {
                            barrier_wait(&shared.full[s + 1], parity);
                        } else if (!ends) {
                            barrier_wait(&shared.full[0], parity ^ 1);
                        }
                        fetch((s + 1) % STAGES);
                    };
                    if (s > 0 && p + s >= depth) {
                        await_next();
                        release(s);
                        continue;
                    }
                    float scales[HALVES * 2];
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        multiply(s, half);
                        if (half == 0) {
#pragma unroll
                            for (int j = 0; j < HALVES * 2; ++j) {
                                scales[j] = next_a[j] * next_b;
                            }
                        }
                        if (s == 0 && p == 0 && !stored) {
                            store(half, before);
                        }
                        if (half + 1 == HALVES) {
                            await_next();
                        }
                        wgmma_arrived<0>(fresh);
                        if (half + 1 == HALVES) {
                            release(s);
                        }
#pragma unroll
                        for (int j = 0; j < BN / 2; ++j) {
                            sums[half][j] += fresh[j] * scales[half * 2 + j % 4 / 2];
                        }
                    }
                }
                stored = true;
            }
            before = tile_at(t, rows, cols), stored = false;
        }
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            store(half, before);
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}

#define OPERANDS                                                                      \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, \
        const __grid_constant__ TensorMap map_c, const float *scale_a, const float *scale_b, int m, int n, int k

extern "C" __global__ void __launch_bounds__(3 * 128, 1) tile_256x128(OPERANDS) {
    multiply_tiles<2, 2, 40, 232>(map_a, map_b, map_c, scale_a, scale_b, m, n, k);
}

extern "C" __global__ void __launch_bounds__(4 * 128, 1) tile_192x128(OPERANDS) {
    multiply_tiles<3, 1, 32, 160>(map_a, map_b, map_c, scale_a, scale_b, m, n, k);
}
