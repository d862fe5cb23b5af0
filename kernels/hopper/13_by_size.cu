// Level H13: the tile is chosen by the size of the problem.
//
// New:        the kernel of level H12 for five tiles, an entry point each; the host chooses. A wave of 132 tiles lasts
//             as long as its tile takes, whether it is full or not, so the tile whose waves end soonest is best; a
//             step counts as its wgmma and 14 cycles more, as measured. 1024 has 128 tiles of 64 x 128, one wave; 4096
//             has 8.97 waves of 128 x 112 where 128 x 256 makes 3.88; 8192 has 20.85 of 128 x 192; 16384 has 110.5
//             of 128 x 144. Pieces of 56 and 72 columns, an odd number of 16-byte chunks, lie in shared memory
//             unswizzled: eight rows of such a piece begin in eight different groups of banks.
// Parameters: as level H12, but for the tile, the stages that fit beside it, and GROUP.
// Expected:   98.5% of all waves filled from 4096 on (H9: 97, 97 and 98.5%): at 4096 3% fewer cycles than H9 less what
//             the narrow tile costs, at 8192 as many as the library's winner of the same kind.
// Takes:      as level H1; `best_tile` in family.py chooses.

#include "common/tma.cuh"
#include "common/wgmma_widths.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BK = 64;        // a consumer walks K in steps of BK
constexpr int CONSUMERS = 2;  // warpgroups; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

// A tile of C is BM x BN; a warp stores 16 rows of it in pieces of PIECE columns.
template <int BM, int BN, int STAGES, int PIECE>
struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Element C[4 * CONSUMERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next tile
};

struct Tile {
    int row, col;  // counted in tiles
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
template <int GROUP>
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

// The four warps of a consumer meet.
__device__ __forceinline__ void consumer_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
}

template <int BM, int BN, int STAGES, int PIECE, int GROUP>
__device__ __forceinline__ void ping_pong(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c, int m,
                                          int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of blocks   block: THREADS
    constexpr int HALVES = BM / 64;  // of a tile: what one wgmma multiplies
    constexpr bool SWIZZLED = PIECE == 64;
    using Shared = ::Shared<BM, BN, STAGES, PIECE>;
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
    static_assert(BM * BN * sizeof(Element) <= sizeof(Shared::A), "the last tile is staged where A was");
    static_assert(BN % PIECE == 0 && (SWIZZLED || PIECE / 8 % 2 == 1), "pieces without bank conflicts");
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
                const Tile tile = tile_at<GROUP>(t, rows, cols);
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
                for (int s = 0; s < BK / 16; ++s) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        constexpr int NEXT_HALF = 64 * BK * sizeof(Element) >> 4;
                        wgmma_of_width<BN, Element>(sums[half], a + half * NEXT_HALF + s * NEXT_K16,
                                                    b + s * NEXT_K16, p > 0 || s > 0);
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

            const Tile tile = tile_at<GROUP>(t, rows, cols);
            const int row = tile.row * BM + warp % 4 * 16, col = tile.col * BN;
            const bool last = t + blocks >= tiles && steps >= STAGES;  // and every stage was this tile's
            if (last) {
                consumer_sync(warpgroup);  // all four warps are done with the ring
            }
#pragma unroll
            for (int piece = 0; piece < HALVES * BN / PIECE; ++piece) {
                const int half = piece / (BN / PIECE), part = piece % (BN / PIECE);
                Element* staged = shared.C[warp];
                if (last) {
                    staged = shared.A[0] + (warp % 4 * (HALVES * BN / PIECE) + piece) * 16 * PIECE;
                } else if (lane == 0) {
                    tma_store_wait_read<0>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Element));
                const float* const d = &sums[half][part * PIECE / 2];
                const auto word = [&](int i) { return pack<Element>(d[2 * i], d[2 * i + 1]); };
#pragma unroll
                for (int chunk = 0; chunk + 1 < PIECE / 8; chunk += 2) {
                    const int mine = chunk + lane / 16;
                    stmatrix(to + (SWIZZLED ? mine ^ lane % 8 : mine) * 16, word(chunk * 2), word(chunk * 2 + 1),
                             word(chunk * 2 + 2), word(chunk * 2 + 3));
                }
                if constexpr (PIECE / 8 % 2 == 1) {
                    stmatrix_two(to + (PIECE / 8 - 1) * 16, word(PIECE / 4 - 2), word(PIECE / 4 - 1));
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

#define OPERANDS                                                                               \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,          \
        const __grid_constant__ TensorMap map_c, int m, int n, int k

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_64x128(OPERANDS) {
    ping_pong<64, 128, 8, 64, 8>(map_a, map_b, map_c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x112(OPERANDS) {
    ping_pong<128, 112, 7, 56, 8>(map_a, map_b, map_c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x128(OPERANDS) {
    ping_pong<128, 128, 6, 64, 8>(map_a, map_b, map_c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x144(OPERANDS) {
    ping_pong<128, 144, 6, 72, 12>(map_a, map_b, map_c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tile_128x192(OPERANDS) {
    ping_pong<128, 192, 5, 64, 16>(map_a, map_b, map_c, m, n, k);
}
