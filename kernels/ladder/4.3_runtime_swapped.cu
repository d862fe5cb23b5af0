// Level 4.3: level 4.2 with its two inner loops swapped.
//
// New:        the loop over the thread's TM outputs is outside, the one over p inside. The compiler cannot undo it as in
//             level 4.1, since it does not know how often the inner loop runs: a value of B is read again for each
//             output, 2 TM reads for TM products where level 4.2 needs TM + 1.
// Parameters: those of level 4, passed at launch.
// Expected:   half of level 4.2's speed on an H200 (NOTES.md).
// Takes:      m a multiple of bm = 64, n of bn = 64, k of bk = 8; each matrix below 2^31 elements. C is not read when
//             beta is 0, A and B are not read when alpha is 0.

constexpr int BM = 64, BN = 64, BK = 8, TM = 8;  // as launched; the kernel gets all but TM as arguments
constexpr int THREADS = BM * BN / TM;             // 512
static_assert(BM * BK == THREADS && BK * BN == THREADS, "each thread loads one element of each tile");

extern "C" __global__ void __launch_bounds__(THREADS)
runtime_swapped(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C, int bm, int bn,
                int bk) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / bn, m / bm)   block: bm * bk = bk * bn = bm * bn / TM
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    extern __shared__ float4 dynamic_shared[];
    float* As = reinterpret_cast<float*>(dynamic_shared);  // [bm][bk]: [row of C, p]
    float* Bs = As + bm * bk;                              // [bk][bn]: [p, column of C]

    const int block_row = blockIdx.y * bm;
    const int block_col = blockIdx.x * bn;
    const int row = threadIdx.x / bn * TM;  // first of this thread's TM rows in the tile
    const int col = threadIdx.x % bn;
    const int a_row = threadIdx.x / bk, a_col = threadIdx.x % bk;  // what it loads of A
    const int b_row = threadIdx.x / bn, b_col = threadIdx.x % bn;  // and of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    float sums[TM] = {};
    for (int p0 = 0; p0 < k; p0 += bk) {
        As[a_row * bk + a_col] = a_from[p0];
        Bs[b_row * bn + b_col] = b_from[p0 * n];
        __syncthreads();

#pragma unroll
        for (int i = 0; i < TM; ++i) {
            for (int p = 0; p < bk; ++p) {
                sums[i] += As[(row + i) * bk + p] * Bs[p * bn + col];
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
        float* out = &C[(block_row + row + i) * n + block_col + col];
        const float old = beta == 0.0f ? 0.0f : beta * *out;
        *out = alpha * sums[i] + old;
    }
}
