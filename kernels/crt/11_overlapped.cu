// Level R11: less between the products.
//
// New:        every launch but the first begins while the one before it ends. The comparison that bounds a tile's elements
//             reads the gauges of its lines from shared memory instead of waiting for each, so the next tile's product
//             hides it. Tiles in double are cut as cuBLAS cuts them, 128 x 64, two blocks of eight warps a processor.
// Parameters: as level R10; the tiles in double 128 x 64 x 16, 4 stages.
// Expected:   at 4096 36 us less for the bound and 25 to 35 less between launches, of 1882; in double 0.85 to 0.95 of cuBLAS
//             where level R10 reaches 0.63. Decisions and C have level R10's bits.
// Takes:      as level R10.

// Level R10's launches as functions, which the launches below call; what they read by TMA is written out again here, as a
// descriptor must be a launch's own argument.
#pragma push_macro("__global__")
#pragma push_macro("__launch_bounds__")
#pragma push_macro("__grid_constant__")
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__ __device__ __forceinline__
#define __launch_bounds__(...)
#define __grid_constant__
#include "crt/10_certified.cu"
#pragma pop_macro("__global__")
#pragma pop_macro("__launch_bounds__")
#pragma pop_macro("__grid_constant__")

#include "crt/early.cuh"
#include "crt/thirds.cuh"

extern "C" __global__ void __launch_bounds__(256)
sample_inner_early(const double* a, int row_a, int depth_a, const double* b, int depth_b, int column_b, int* inner, int m,
                   int n, int k) {
    wait_for_predecessor();
    sample_inner(a, row_a, depth_a, b, depth_b, column_b, inner, m, n, k);
}

extern "C" __global__ void __launch_bounds__(1024) settle_inner_early(int* inner, int* plan, int k) {
    wait_for_predecessor();
    settle_inner(inner, plan, k);
}

extern "C" __global__ void __launch_bounds__(GLANCERS)
glance_early(const double* a, int row_a, int depth_a, const double* b, int depth_b, int column_b, const int* inner,
             int* plan, int m, int n, int k, int loosened, int eager) {
    wait_for_predecessor();
    glance(a, row_a, depth_a, b, depth_b, column_b, inner, plan, m, n, k, loosened, eager);
}

extern "C" __global__ void __launch_bounds__(256)
measure_rows_early(const double* x, int ld, const int* inner, int sign, const int* plan, unsigned char* coarse,
                   Summary* summaries, Gauge* gauges, int k) {
    wait_for_predecessor();
    measure_rows(x, ld, inner, sign, plan, coarse, summaries, gauges, k);
}

extern "C" __global__ void __launch_bounds__(256)
measure_columns_early(const double* x, int ld, const int* inner, int sign, const int* plan, unsigned char* coarse,
                      Measure* partial, int* largest, int columns, int k) {
    wait_for_predecessor();
    measure_columns(x, ld, inner, sign, plan, coarse, partial, largest, columns, k);
}

extern "C" __global__ void __launch_bounds__(128)
join_columns_early(const int* plan, const Measure* partial, const int* largest, Summary* summaries, Gauge* gauges,
                   int columns, int k) {
    wait_for_predecessor();
    join_columns(plan, partial, largest, summaries, gauges, columns, k);
}

// What a consumer judges a tile by, beside its sums.
struct Lines {
    alignas(16) Gauge columns[BN];
    Gauge rows[BM];
};
struct BoundShared {
    Shared ring;  // walk_in_turn's
    Lines lines[CONSUMERS];
};
static_assert(sizeof(BoundShared) <= 227 * 1024, "a block's shared memory");

// The 128 threads of a consumer meet.
__device__ __forceinline__ void meet(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
}

__device__ __forceinline__ float most_of_warp(float most) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    }
    return most;
}

// As bound_tiles.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
bound_tiles_early(const __grid_constant__ TensorMap coarse_a, const __grid_constant__ TensorMap coarse_b, const int* plan,
                  const Gauge* gauges_a, const Gauge* gauges_b, float* worst, int m, int n, int k) {
    wait_for_predecessor();
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tiles = hopeless(plan) ? 0 : rows * cols;
    const auto place = [&](int t) {
        const Tile tile = tile_at(t, rows, cols);
        return Corner{tile.row * BM, tile.col * BN};
    };
    const auto finish = [&](const float (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const Tile tile = tile_at(t, rows, cols);
        const int consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
        Lines& lines = reinterpret_cast<BoundShared*>(shared_bytes)->lines[consumer];
        const Gauge none{0.0f, 0.0f};  // beyond C nothing is lost
        meet(consumer);                // nobody still reads those of the tile before
        for (int r = thread; r < BM; r += 128) {
            lines.rows[r] = tile.row * BM + r < m ? gauges_a[tile.row * BM + r] : none;
        }
        for (int c = thread; c < BN; c += 128) {
            lines.columns[c] = tile.col * BN + c < n ? gauges_b[tile.col * BN + c] : none;
        }
        meet(consumer);
        const Gauge* own = &lines.rows[warp * 16 + lane / 4];
        const Gauge upper[HALVES] = {own[0], own[64]}, lower[HALVES] = {own[8], own[72]};
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const float4 pair = *reinterpret_cast<const float4*>(&lines.columns[8 * j + lane % 4 * 2]);
            const Gauge left{pair.x, pair.y}, right{pair.z, pair.w};
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                most = larger_ratio(most, upper[half], left, sums[half][4 * j]);
                most = larger_ratio(most, upper[half], right, sums[half][4 * j + 1]);
                most = larger_ratio(most, lower[half], left, sums[half][4 * j + 2]);
                most = larger_ratio(most, lower[half], right, sums[half][4 * j + 3]);
            }
            if (j == 1) {
                most = most_of_warp(most);  // of 256 elements: few of the others come to a division
            }
        }
        most = most_of_warp(most);
        if (lane == 0) {
            worst[4 * t + warp] = most;
        }
    };
    walk_in_turn<float>(coarse_a, coarse_b, tiles, (k + BK - 1) / BK, place, finish);
}

extern "C" __global__ void __launch_bounds__(1024)
decide_early(const float4* worst, int* plan, int* list, int* natives, unsigned char* kinds, int m, int n, int k,
             int loosened, int eager) {
    wait_for_predecessor();
    decide(worst, plan, list, natives, kinds, m, n, k, loosened, eager);
}

extern "C" __global__ void __launch_bounds__(256)
rows_to_residues_early(const double* x, int ld, const int* inner, int sign, const int* plan, const Summary* summaries,
                       int* exponents, unsigned char* residues, int rows, int k) {
    wait_for_predecessor();
    rows_to_residues(x, ld, inner, sign, plan, summaries, exponents, residues, rows, k);
}

extern "C" __global__ void __launch_bounds__(256)
columns_to_residues_early(const double* x, int ld, const int* inner, int sign, const int* plan, const Summary* summaries,
                          int* exponents, unsigned char* residues, int columns, int k) {
    wait_for_predecessor();
    columns_to_residues(x, ld, inner, sign, plan, summaries, exponents, residues, columns, k);
}

// As multiply.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply_early(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, const int* plan,
               const int* list, uint4* residues, int m, int n, int k) {
    wait_for_predecessor();
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tiles = max(1, plan[PLAN_TILES]);
    const auto place = [&](int t) {
        const int tile = list[t % tiles], i = t / tiles;
        return Corner{i * m + (tile >> 16) * BM, i * n + (tile & 0xFFFF) * BN};
    };
    const auto finish = [&](const int (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const int tile = list[t % tiles], i = t / tiles;
        const size_t at = (static_cast<size_t>(i) * rows + (tile >> 16)) * cols + (tile & 0xFFFF);
        const Modulus p = modulus(i);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            uint4* to = residues + (at * WARPS + half * 4 + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[half][part * 16];
                const auto word = [&](int w) {
                    return bytes(residue(d[4 * w], p), residue(d[4 * w + 1], p), residue(d[4 * w + 2], p),
                                 residue(d[4 * w + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    };
    walk_in_turn<int>(residues_a, residues_b, plan[PLAN_COUNT] * plan[PLAN_TILES], (k + BK - 1) / BK, place, finish);
}

extern "C" __global__ void __launch_bounds__(256)
reconstruct_early(const int* plan, const unsigned char* kinds, const uint4* residues, const int* exponents_a,
                  const int* exponents_b, double* c, int ldc, int m, int n, double alpha, double beta) {
    wait_for_predecessor();
    reconstruct(plan, kinds, residues, exponents_a, exponents_b, c, ldc, m, n, alpha, beta);
}

// Tiles in double; any number of blocks. In the names, as in level R10: whether A and B are transposed.
extern "C" __global__ void __launch_bounds__(THIRD_THREADS, THIRD_BLOCKS)
native_nn_early(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
                int m, int n, int k, double alpha, double beta) {
    wait_for_predecessor();
    multiply_thirds<true, false>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THIRD_THREADS, THIRD_BLOCKS)
native_nt_early(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
                int m, int n, int k, double alpha, double beta) {
    wait_for_predecessor();
    multiply_thirds<true, true>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THIRD_THREADS, THIRD_BLOCKS)
native_tn_early(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
                int m, int n, int k, double alpha, double beta) {
    wait_for_predecessor();
    multiply_thirds<false, false>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THIRD_THREADS, THIRD_BLOCKS)
native_tt_early(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
                int m, int n, int k, double alpha, double beta) {
    wait_for_predecessor();
    multiply_thirds<false, true>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}
