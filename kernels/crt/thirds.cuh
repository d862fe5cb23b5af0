// C = alpha A B + beta C in double on tensor cores, for the tiles that a list names: as native.cuh, but each of
// 128 x 192 in three parts of 128 x 64, as cuBLAS cuts them, with two blocks of eight warps on a processor.
//
// A block meets at a barrier each step of 16; while it waits, the other multiplies. A warp has 32 x 32 of a part, so that
// its sums take 64 registers. Tiles are not padded: groups of four doubles change places, and the 16 lanes that are served
// together read 16 different banks. Every element is summed in native.cuh's order, so C has its bits.

#pragma once

#include "crt/native.cuh"

constexpr int THIRD_N = 64, THIRD_K = 16, THIRD_STAGES = 4, THIRD_THREADS = 256, THIRD_BLOCKS = 2;

// A tile of ROWS x THIRD_K; CONTIGUOUS: along k.
template <int ROWS, bool CONTIGUOUS>
struct Panel {
    double data[ROWS * THIRD_K];

    // What a warp reads together, four numbers of k in each of eight rows, lies in different banks, as far as there are any.
    static __device__ __forceinline__ int at(int row, int h) {
        return CONTIGUOUS ? row * THIRD_K + (h ^ row % 4 * 4) : h * ROWS + (row ^ h % 4 * 4);
    }

    // Rows `row` onwards of a matrix of `rows` x k, from `h` on; zeros beyond.
    __device__ __forceinline__ void load(const double* from, int ld, int row, int rows, int h, int k) {
#pragma unroll 2  // or each copy keeps an address of its own
        for (int i = 0; i < ROWS * THIRD_K / THIRD_THREADS; ++i) {
            const int e = threadIdx.x + i * THIRD_THREADS;
            const int r = CONTIGUOUS ? e / THIRD_K : e % ROWS, d = CONTIGUOUS ? e % THIRD_K : e / ROWS;
            const bool inside = row + r < rows && h + d < k;
            const size_t place = CONTIGUOUS ? static_cast<size_t>(row + r) * ld + h + d
                                            : static_cast<size_t>(h + d) * ld + row + r;
            copy8(&data[at(r, d)], inside ? from + place : from, inside);
        }
    }
};

template <bool DEEP_A, bool DEEP_B>
struct ThirdShared {
    Panel<BM, DEEP_A> A[THIRD_STAGES];
    Panel<THIRD_N, DEEP_B> B[THIRD_STAGES];
};

// Any number of blocks of THIRD_THREADS; arguments as multiply_natively's.
template <bool DEEP_A, bool DEEP_B>
__device__ __forceinline__ void multiply_thirds(const double* a, int lda, const double* b, int ldb, const int* plan,
                                                const int* list, double* c, int ldc, int m, int n, int k, double alpha,
                                                double beta) {
    using Tiles = ThirdShared<DEEP_A, DEEP_B>;
    static_assert(THIRD_BLOCKS * (sizeof(Tiles) + 1024) <= 228 * 1024, "a processor's shared memory");
    Tiles& shared = *reinterpret_cast<Tiles*>(shared_bytes);
    const int thirds = BN / THIRD_N * plan[2], steps = (k + THIRD_K - 1) / THIRD_K;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int top = warp / 2 * 32, left = warp % 2 * 32;  // of the warp's part, 32 x 32
    for (int third = blockIdx.x; third < thirds; third += gridDim.x) {
        const int tile = list[third / 3];
        const int row = (tile >> 16) * BM, column = (tile & 0xFFFF) * BN + third % 3 * THIRD_N;
        if (column >= n) {
            continue;
        }
        double sums[2][4][4] = {};
        const auto load = [&](int step) {
            if (step < steps) {
                shared.A[step % THIRD_STAGES].load(a, lda, row, m, step * THIRD_K, k);
                shared.B[step % THIRD_STAGES].load(b, ldb, column, n, step * THIRD_K, k);
            }
            copy_commit();
        };
        for (int step = 0; step < THIRD_STAGES - 1; ++step) {
            load(step);
        }
        for (int step = 0; step < steps; ++step) {
            copy_wait<THIRD_STAGES - 2>();
            __syncthreads();  // this stage is there for all, and the one before is free
            load(step + THIRD_STAGES - 1);
            const auto& of_a = shared.A[step % THIRD_STAGES];
            const auto& of_b = shared.B[step % THIRD_STAGES];
#pragma unroll 1  // or fragments of both halves take registers
            for (int h = 0; h < THIRD_K; h += 8) {
                double of_rows[2][4];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        of_rows[i][e] = of_a.data[of_a.at(top + 16 * i + g + e % 2 * 8, h + t ^ e / 2 * 4)];
                    }
                }
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int of = left + 8 * j + g;
                    const double of_column[2] = {of_b.data[of_b.at(of, h + t)], of_b.data[of_b.at(of, h + t ^ 4)]};
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        dmma(sums[i][j], of_rows[i], of_column);
                    }
                }
            }
        }
        copy_wait<0>();
        __syncthreads();  // nobody fills the first stages while others still read the last
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
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
