// Level 4.1: level 4 with its two inner loops swapped.
//
// New:        the loop over the thread's TM outputs is outside, the one over p inside. The article warns of this order:
//             a value of B would be read from shared memory again for each output, 2 TM reads for TM products where
//             level 4 needs TM + 1. Written so, and with constant bounds, as in the article.
// Parameters: those of level 4.
// Expected:   no difference. Both loops are unrolled, nothing is stored to shared memory between the reads, and the
//             compiler reads each value of B once in either order (NOTES.md). Level 4.3 is where the order shows.
// Takes:      m and n multiples of 64, k of 8; each matrix below 2^31 elements. C is not read when beta is 0, A and B
//             are not read when alpha is 0.

constexpr int BM = 64, BN = 64, BK = 8, TM = 8;
constexpr int THREADS = BM * BN / TM;  // 512
static_assert(BM * BK == THREADS && BK * BN == THREADS, "each thread loads one element of each tile");

extern "C" __global__ void __launch_bounds__(THREADS)
swapped_loops(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    __shared__ float As[BM][BK];  // [row of C, p]
    __shared__ float Bs[BK][BN];  // [p, column of C]

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int row = threadIdx.x / BN * TM;  // first of this thread's TM rows in the tile
    const int col = threadIdx.x % BN;
    const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;  // what it loads of A
    const int b_row = threadIdx.x / BN, b_col = threadIdx.x % BN;  // and of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    float sums[TM] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
        As[a_row][a_col] = a_from[p0];
        Bs[b_row][b_col] = b_from[p0 * n];
        __syncthreads();

#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int p = 0; p < BK; ++p) {
                sums[i] += As[row + i][p] * Bs[p][col];
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
