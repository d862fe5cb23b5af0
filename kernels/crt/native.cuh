// C = alpha A B + beta C in double on tensor cores, for the tiles that a list names: each of 128 x 192, in two halves.
//
// Eight warps share a half, 64 x 24 each. Tiles come by copies of 8 bytes, so no row need be aligned; an operand lies in
// shared memory as in global memory, with rows padded by 4 doubles, so that the 16 lanes that are served together read
// 16 different banks. Every product goes through an FMA of IEEE's: Inf and NaN come out as DGEMM leaves them.

#pragma once

#include "common/cp_async.cuh"
#include "crt/listed.cuh"

constexpr int NATIVE_N = 96, NATIVE_K = 16, NATIVE_STAGES = 5, NATIVE_THREADS = 256;
constexpr int DEEP = NATIVE_K + 4;  // doubles from one row to the next where k is contiguous

// A tile of ROWS x NATIVE_K; CONTIGUOUS: along k.
template <int ROWS, bool CONTIGUOUS>
struct Slab {
    static constexpr int PITCH = CONTIGUOUS ? DEEP : ROWS + 4;
    double data[CONTIGUOUS ? ROWS * DEEP : NATIVE_K * (ROWS + 4)];

    static __device__ __forceinline__ int at(int row, int h) {
        return CONTIGUOUS ? row * PITCH + h : h * PITCH + row;
    }

    // Rows `row` onwards of a matrix of `rows` x k, from `h` on; zeros beyond.
    __device__ __forceinline__ void load(const double* from, int ld, int row, int rows, int h, int k) {
#pragma unroll
        for (int i = 0; i < ROWS * NATIVE_K / NATIVE_THREADS; ++i) {
            const int e = threadIdx.x + i * NATIVE_THREADS;
            const int r = CONTIGUOUS ? e / NATIVE_K : e % ROWS, d = CONTIGUOUS ? e % NATIVE_K : e / ROWS;
            const bool inside = row + r < rows && h + d < k;
            const size_t place = CONTIGUOUS ? static_cast<size_t>(row + r) * ld + h + d
                                            : static_cast<size_t>(h + d) * ld + row + r;
            copy8(&data[at(r, d)], inside ? from + place : from, inside);
        }
    }
};

template <bool DEEP_A, bool DEEP_B>
struct NativeShared {
    Slab<BM, DEEP_A> A[NATIVE_STAGES];
    Slab<NATIVE_N, DEEP_B> B[NATIVE_STAGES];
};

// alpha x + beta c as BLAS has it: C is not read where beta is 0, nor the product used where alpha is.
__device__ __forceinline__ double blended(double x, double alpha, double beta, const double* c) {
    const double product = alpha == 0.0 ? 0.0 : alpha * x;
    return beta == 0.0 ? product : fma(beta, *c, product);
}

template <bool DEEP_A, bool DEEP_B>
__device__ __forceinline__ void multiply_natively(const double* a, int lda, const double* b, int ldb, const int* plan,
                                                  const int* list, double* c, int ldc, int m, int n, int k,
                                                  double alpha, double beta) {
    using Tiles = NativeShared<DEEP_A, DEEP_B>;
    static_assert(sizeof(Tiles) <= 227 * 1024, "a block's shared memory");
    Tiles& shared = *reinterpret_cast<Tiles*>(shared_bytes);
    const int halves = 2 * plan[2], steps = (k + NATIVE_K - 1) / NATIVE_K;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int top = warp / 4 * 64, left = warp % 4 * 24;  // of the warp's part
    for (int half = blockIdx.x; half < halves; half += gridDim.x) {
        const int tile = list[half / 2];
        const int row = (tile >> 16) * BM, column = (tile & 0xFFFF) * BN + half % 2 * NATIVE_N;
        if (column >= n) {
            continue;
        }
        double sums[4][3][4] = {};
        const auto load = [&](int step) {
            if (step < steps) {
                shared.A[step % NATIVE_STAGES].load(a, lda, row, m, step * NATIVE_K, k);
                shared.B[step % NATIVE_STAGES].load(b, ldb, column, n, step * NATIVE_K, k);
            }
            copy_commit();
        };
        for (int step = 0; step < NATIVE_STAGES - 1; ++step) {
            load(step);
        }
        for (int step = 0; step < steps; ++step) {
            copy_wait<NATIVE_STAGES - 2>();
            __syncthreads();  // this stage is there for all, and the one before is free
            load(step + NATIVE_STAGES - 1);
            const auto& of_a = shared.A[step % NATIVE_STAGES];
            const auto& of_b = shared.B[step % NATIVE_STAGES];
#pragma unroll
            for (int h = 0; h < NATIVE_K; h += 8) {
                double right[3][2];
#pragma unroll
                for (int j = 0; j < 3; ++j) {
                    right[j][0] = of_b.data[of_b.at(left + 8 * j + g, h + t)];
                    right[j][1] = of_b.data[of_b.at(left + 8 * j + g, h + t + 4)];
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    double one[4];
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        one[e] = of_a.data[of_a.at(top + 16 * i + g + e % 2 * 8, h + t + e / 2 * 4)];
                    }
#pragma unroll
                    for (int j = 0; j < 3; ++j) {
                        dmma(sums[i][j], one, right[j]);
                    }
                }
            }
        }
        copy_wait<0>();
        __syncthreads();  // nobody fills the first stages while others still read the last
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 3; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int r = row + top + 16 * i + g + e / 2 * 8, col = column + left + 8 * j + 2 * t + e % 2;
                    if (r < m && col < n) {
                        double* to = c + static_cast<size_t>(r) * ldc + col;
                        *to = blended(sums[i][j][e], alpha, beta, to);
                    }
                }
            }
        }
    }
}
