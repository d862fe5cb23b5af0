// Level H15: C, a bias and GELU in the epilogue.
//
// New:        D = GELU(z), z = alpha A B + beta C + bias, with one bias a column. A product that is followed by a
//             pointwise kernel writes z and reads it again; here z never leaves the registers. C is loaded by TMA while
//             the tile is multiplied, piece by piece into the shared memory from which the same pieces of D are stored,
//             in the same swizzle, so that a thread finds its elements of C where stmatrix puts those of D.
//             The kernel is level H13's, of 128 x 128 tiles: one consumer computes its epilogue while the other
//             multiplies. `product` and `bias_gelu` are the same in two launches, for comparison.
// Parameters: as level H13, but for five stages, which leave 64 KB for the pieces of eight warps.
// Expected:   4 m n bytes fewer than in two launches, 0.27 GB at 8192. An epilogue of some 6k cycles, half of which is
//             erff, hides behind the other consumer's tile from K = 1024 on.
// Takes:      as level H1; bias and C aligned to 16 bytes. C is not read if beta is 0.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of D is BM x BN; a consumer walks K in steps of BK
constexpr int STAGES = 5;
constexpr int GROUP = 8;      // rows of tiles that are walked together
constexpr int CONSUMERS = 2;  // warpgroups; the producer follows them
constexpr int HALVES = BM / 64;             // of a tile: what one wgmma multiplies
constexpr int PIECES = HALVES * BN / 64;    // a warp's part of a tile: pieces of 16 rows and 64 columns
constexpr int PIECE_BYTES = 16 * 64 * sizeof(bf16);
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int POINTWISE_THREADS = 256;
static_assert(BK * sizeof(bf16) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    bf16 A[STAGES][BM * BK];
    bf16 B[STAGES][BN * BK];
    bf16 C[4 * CONSUMERS][PIECES][16 * 64];  // of each warp: C, and D in its place
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];       // of each consumer: it may begin its next tile
    Barrier loaded[4 * CONSUMERS];  // of each warp: its pieces of C are there
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

// The two elements of a word, the lower address first.
__device__ __forceinline__ float first_of(Word two) {
    return __uint_as_float(two << 16);
}
__device__ __forceinline__ float second_of(Word two) {
    return __uint_as_float(two & 0xFFFF0000u);
}

__device__ __forceinline__ float gelu(float x) {
    return x * 0.5f * (1.0f + erff(x * 0.70710678f));
}

// Scalars, and the bias of the columns from one on. LAST: D = GELU(alpha A B + beta C + bias); else alpha A B + beta C.
template <bool LAST>
struct Epilogue {
    float alpha, beta;
    const Word* bias;  // [n / 2], two columns a word
    int n;

    // Of two neighbouring columns, from `col` on: `x`, `y` of the product, `c` of C.
    __device__ __forceinline__ Word of(float x, float y, Word c, Word added) const {
        x *= alpha, y *= alpha;
        if (beta != 0.0f) {
            x = fmaf(beta, first_of(c), x), y = fmaf(beta, second_of(c), y);
        }
        if constexpr (LAST) {
            return pack<bf16>(gelu(x + first_of(added)), gelu(y + second_of(added)));
        } else {
            return pack<bf16>(x, y);
        }
    }
    __device__ __forceinline__ Word bias_at(int col) const {
        return LAST && col < n ? bias[col / 2] : 0;
    }
};

template <bool LAST>
__device__ __forceinline__ void multiply(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c0,
                                         const TensorMap& map_d, const Epilogue<LAST>& epilogue, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C, D: [m, n]   grid: any number of blocks   block: THREADS
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
        for (int w = 0; w < 4 * CONSUMERS; ++w) {
            barrier_init(&shared.loaded[w], 1);
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
        int brought = 0;                // parity of `loaded`

        for (int t = blockIdx.x + warpgroup * blocks; t < tiles; t += CONSUMERS * blocks) {
            const Tile tile = tile_at(t, rows, cols);
            const int row = tile.row * BM + warp % 4 * 16, col = tile.col * BN;
            if (epilogue.beta != 0.0f && lane == 0) {
                tma_store_wait_read<0>();  // of the tile before
                barrier_expect(&shared.loaded[warp], PIECES * PIECE_BYTES);
                for (int piece = 0; piece < PIECES; ++piece) {
                    tma_load(shared.C[warp][piece], map_c0, &shared.loaded[warp], col + piece % (BN / 64) * 64,
                             row + piece / (BN / 64) * 64);
                }
            }
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
                        constexpr int NEXT_HALF = 64 * BK * sizeof(bf16) >> 4;
                        wgmma<BN, bf16>(sums[half], a + half * NEXT_HALF + s * NEXT_K16, b + s * NEXT_K16,
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

            if (epilogue.beta != 0.0f) {
                barrier_wait(&shared.loaded[warp], brought);
                brought ^= 1;
            } else if (lane == 0) {
                tma_store_wait_read<0>();
            }
            __syncwarp();
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                const int half = piece / (BN / 64), part = piece % (BN / 64);
                bf16* const staged = shared.C[warp][piece];
                const float* const d = &sums[half][part * 32];
                Word words[16];  // of D, as stmatrix takes them: rows lane / 4 and lane / 4 + 8 of 8 columns in turn
#pragma unroll
                for (int chunk = 0; chunk < 8; ++chunk) {
                    // Two elements of C: row lane / 4, whose chunk stands swizzled, and eight rows on.
                    const int at = lane / 4 * 32 + (chunk ^ lane / 4) * 4 + lane % 4;
                    const Word* const c = reinterpret_cast<const Word*>(staged) + at;
                    const Word added = epilogue.bias_at(col + part * 64 + chunk * 8 + lane % 4 * 2);
                    words[2 * chunk] = epilogue.of(d[4 * chunk], d[4 * chunk + 1], c[0], added);
                    words[2 * chunk + 1] = epilogue.of(d[4 * chunk + 2], d[4 * chunk + 3], c[8 * 32], added);
                }
                __syncwarp();  // all lanes have read C
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * 128;
#pragma unroll
                for (int chunk = 0; chunk < 8; chunk += 2) {
                    const Word* const w = &words[chunk * 2];
                    stmatrix(to + ((chunk + lane / 16) ^ lane % 8) * 16, w[0], w[1], w[2], w[3]);
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_d, staged, col + part * 64, row + half * 64);
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fused(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
      const __grid_constant__ TensorMap map_c0, const __grid_constant__ TensorMap map_d, const Word* bias, float alpha,
      float beta, int m, int n, int k) {
    multiply(map_a, map_b, map_c0, map_d, Epilogue<true>{alpha, beta, bias, n}, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
product(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        const __grid_constant__ TensorMap map_c0, const __grid_constant__ TensorMap map_z, float alpha, float beta,
        int m, int n, int k) {
    multiply(map_a, map_b, map_c0, map_z, Epilogue<false>{alpha, beta, nullptr, n}, m, n, k);
}

// D = GELU(z + bias), 16 bytes a thread.   z, D: [m, n]   bias: [n]
extern "C" __global__ void __launch_bounds__(POINTWISE_THREADS)
bias_gelu(const uint4* z, const uint4* bias, uint4* d, int m, int n) {
    const int at = blockIdx.x * POINTWISE_THREADS + threadIdx.x, width = n / 8;  // n is a multiple of 8
    if (at < m * width) {
        const uint4 x = z[at], b = bias[at % width];
        const auto both = [](Word x, Word b) {
            return pack<bf16>(gelu(first_of(x) + first_of(b)), gelu(second_of(x) + second_of(b)));
        };
        d[at] = make_uint4(both(x.x, b.x), both(x.y, b.y), both(x.z, b.z), both(x.w, b.w));
    }
}
