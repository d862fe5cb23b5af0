// Level 4.2: level 4 with tile sizes that the compiler does not know.
//
// New:        BM, BN and BK are arguments instead of template parameters. The article says that constants let the
//             compiler unroll loops and fold index arithmetic; along K it does not know how far. TM stays a constant,
//             as an array of registers must have a known length.
// Parameters: those of level 4, passed at launch.
// Expected:   level 4 reads A four steps of p at a time and has no loop overhead; here each step costs TM + 1 narrow
//             reads, and some of them a compare, a branch and address arithmetic: half of level 4's speed on an H200
//             (NOTES.md).
// Takes:      m a multiple of bm = 64, n of bn = 64, k of bk = 8; each matrix below 2^31 elements. C is not read when
//             beta is 0, A and B are not read when alpha is 0.

constexpr int BM = 64, BN = 64, BK = 8, TM = 8;  // as launched; the kernel gets all but TM as arguments
constexpr int THREADS = BM * BN / TM;             // 512
static_assert(BM * BK == THREADS && BK * BN == THREADS, "each thread loads one element of each tile");

extern "C" __global__ void __launch_bounds__(THREADS)
runtime_sizes(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C, int bm, int bn,
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

        for (int p = 0; p < bk; ++p) {
            const float b = Bs[p * bn + col];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                sums[i] += As[(row + i) * bk + p] * b;
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
