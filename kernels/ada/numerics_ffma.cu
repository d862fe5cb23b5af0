// Numerics: the same sums without a tensor core.
//
// Question:   how far do ordinary fp32 multiply-adds err, one product after the other in the order of K? A product of
//             two halves is exact in fp32, so each step rounds once, to nearest. It is the yardstick for the sums of
//             numerics_mma.cu, which round once for 16 products, in their own way.
// Parameters: C tile 64 x 64, 256 threads of 4 x 4 outputs 16 apart.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n]; fp16 in, fp32 sums and output. Any m and
//             n, k a multiple of 16. Straight from global memory: this is run for its sums, not for speed.

#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64;  // a block's tile of C
constexpr int T = 4;             // outputs of a thread each way
constexpr int SIDE = BM / T;     // threads each way
constexpr int THREADS = SIDE * SIDE;
static_assert(BM == BN, "threads form a square");

extern "C" __global__ void __launch_bounds__(THREADS)
accumulate_ffma(const __half2* A, const __half2* B, float* C, int m, int n, int k) {
    // A: [m, k / 2]   B: [n, k / 2]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    const int row0 = blockIdx.y * BM + threadIdx.x / SIDE, col0 = blockIdx.x * BN + threadIdx.x % SIDE;
    const int words = k / 2;

    float sums[T][T] = {};
    for (int p = 0; p < words; ++p) {
        float2 a[T], b[T];
#pragma unroll
        for (int i = 0; i < T; ++i) {
            // A row or column outside is read inside, at the edge; its sums are never stored.
            const int row = min(row0 + i * SIDE, m - 1), col = min(col0 + i * SIDE, n - 1);
            a[i] = __half22float2(A[static_cast<size_t>(row) * words + p]);
            b[i] = __half22float2(B[static_cast<size_t>(col) * words + p]);
        }
#pragma unroll
        for (int i = 0; i < T; ++i) {
#pragma unroll
            for (int j = 0; j < T; ++j) {
                sums[i][j] = fmaf(a[i].y, b[j].y, fmaf(a[i].x, b[j].x, sums[i][j]));
            }
        }
    }

#pragma unroll
    for (int i = 0; i < T; ++i) {
#pragma unroll
        for (int j = 0; j < T; ++j) {
            const int row = row0 + i * SIDE, col = col0 + j * SIDE;
            if (row < m && col < n) C[static_cast<size_t>(row) * n + col] = sums[i][j];
        }
    }
}
