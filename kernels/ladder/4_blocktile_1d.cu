// Level 4: a column of outputs per thread (1-D blocktiling).
//
// New:        each thread computes TM outputs of one column. A value of B, read once from shared memory into a
//             register, serves TM multiplications: TM + 1 shared loads for TM products, where level 3 needs 2 TM.
// Parameters: C tile 64x64, K step 8, TM = 8: 512 threads, and each loads exactly one element of either tile (4 KB of
//             shared memory in all). Eight independent sums per thread provide instruction-level parallelism.
// Published:  8475 GFLOP/s, 36.5% of cuBLAS, 2.8 times level 3 (NVIDIA A6000, m = n = k = 4096).
// Takes:      m and n multiples of 64, k of 8 (no guards from here on); each matrix below 2^31 elements. C is not
//             read when beta is 0, A and B are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 64, BN = 64, BK = 8, TM = 8
#endif
constexpr int PARAMETERS;
// The block's tile of C is BM x BN, and it walks K in steps of BK; a thread makes TM outputs, down a column.
constexpr int THREADS = BM * BN / TM;  // 512
static_assert(BM % TM == 0, "threads tile the columns of C exactly");
static_assert(BN % 32 == 0, "a warp lies within one row of threads: its reads of A broadcast, its stores coalesce");
static_assert(BM * BK == THREADS && BK * BN == THREADS, "each thread loads one element of each tile");

extern "C" __global__ void __launch_bounds__(THREADS)
blocktile_1d(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
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
        for (int p = 0; p < BK; ++p) {
            const float b = Bs[p][col];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                sums[i] += As[row + i][p] * b;
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
