// Level 1: naive GEMM, C = alpha A B + beta C, all row-major.
//
// New:        the first product. Each thread computes one element of C, alone.
// Parameters: block 32x32, the largest square block, as in the article. threadIdx.x walks *rows*, and it is the index
//             that runs along a warp: its 32 lanes touch 32 rows of A and of C, each k or n elements apart, so every
//             load of A and every store of C is 32 separate sectors. B is the same element for all lanes, a
//             broadcast: the article's reason, different rows of B, names the wrong matrix.
// Published:  309 GFLOP/s, 1.3% of cuBLAS, 15 GB/s of 768 (NVIDIA A6000, m = n = k = 4096).
// Takes:      any m, n, k (guarded); each matrix below 2^31 elements (32-bit indices). C is not read when beta is 0,
//             A and B are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 32, BN = 32
#endif
constexpr int PARAMETERS;  // a block makes BM x BN of C
static_assert(BM * BN <= 1024, "one thread an output, and a block has at most 1024 threads");

extern "C" __global__ void __launch_bounds__(BM * BN)
naive(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (ceil(m / BM), ceil(n / BN))   block: (BM, BN)
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    const int row = blockIdx.x * BM + threadIdx.x;
    const int col = blockIdx.y * BN + threadIdx.y;
    if (row >= m || col >= n) {
        return;
    }

    float sum = 0.0f;
    for (int p = 0; p < k; ++p) {
        sum += A[row * k + p] * B[p * n + col];
    }

    const float old = beta == 0.0f ? 0.0f : beta * C[row * n + col];
    C[row * n + col] = alpha * sum + old;
}
