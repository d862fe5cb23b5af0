// Level 2: coalesced global memory.
//
// New:        threadIdx.x walks *columns*. The 32 lanes of a warp now share one element of A (a broadcast) and touch
//             32 neighbours in B and in C: one 128-byte line instead of 32 sectors. (The article speaks of 128-*bit*
//             transactions; 128 bits is what one thread may load at most, level 6.)
// Parameters: tile 32x32 as before, but a 1-D block of 1024 threads, split into rows and columns by hand: a warp is a
//             row. As in the article, blockIdx.x walks rows of tiles.
// Published:  1987 GFLOP/s, 8.5% of cuBLAS, 110 GB/s of 768, 6.4 times level 1 (NVIDIA A6000, m = n = k = 4096).
// Takes:      any m, n, k (guarded); each matrix below 2^31 elements (32-bit indices). C is not read when beta is 0,
//             A and B are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 32, BN = 32
#endif
constexpr int PARAMETERS;  // a block makes BM x BN of C
static_assert(BN % 32 == 0, "a warp lies within one row of the tile");
static_assert(BM * BN <= 1024, "one thread an output, and a block has at most 1024 threads");

extern "C" __global__ void __launch_bounds__(BM * BN)
coalesced(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (ceil(m / BM), ceil(n / BN))   block: BM * BN
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    const int row = blockIdx.x * BM + threadIdx.x / BN;
    const int col = blockIdx.y * BN + threadIdx.x % BN;
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
