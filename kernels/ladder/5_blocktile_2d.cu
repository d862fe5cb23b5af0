// Level 5: a square of outputs per thread (2-D blocktiling).
//
// New:        each thread computes TM x TN outputs as a sum of outer products: TM values of A and TN of B are read
//             into registers and serve TM * TN multiplications. 16 shared loads for 64 products; level 4 needs 72.
// Parameters: C tile 128x128, K step 8, TM = TN = 8: 256 threads, four elements of either tile loaded by each (8 KB
//             of shared memory), 64 sums in registers; at most 128 registers, so that two blocks fit an SM. The wider
//             tile lowers global traffic to k / 64 loads an output: 2k / 128, which the article's formula,
//             k / (TM TN BLOCKSIZE / 2), misses by a factor of 16.
// Published:  15972 GFLOP/s, 68.7% of cuBLAS, 1.9 times level 4 (NVIDIA A6000, m = n = k = 4096).
// Takes:      m and n multiples of 128, k of 8; each matrix below 2^31 elements. C is not read when beta is 0, A and B
//             are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 128, BN = 128, BK = 8, TM = 8, TN = 8, BLOCKS = 2
#endif
constexpr int PARAMETERS;
// The block's tile of C is BM x BN, a thread's TM x TN; the block walks K in steps of BK. BLOCKS of them shall fit a
// multiprocessor.
constexpr int THREADS = BM * BN / (TM * TN);  // 256
constexpr int A_ROWS = THREADS / BK;          // 32 rows of the A tile are loaded at a time
constexpr int B_ROWS = THREADS / BN;          // 2 rows of the B tile
static_assert(BM % TM == 0 && BN % TN == 0, "threads tile C exactly");
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0, "threads load the A tile in whole passes");
static_assert(THREADS % BN == 0 && BK % B_ROWS == 0, "threads load the B tile in whole passes");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
blocktile_2d(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    __shared__ float As[BM][BK];  // [row of C, p]
    __shared__ float Bs[BK][BN];  // [p, column of C]

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int row = threadIdx.x / (BN / TN) * TM;  // corner of this thread's TM x TN outputs in the tile
    const int col = threadIdx.x % (BN / TN) * TN;
    const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;  // first element it loads of A
    const int b_row = threadIdx.x / BN, b_col = threadIdx.x % BN;  // and of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    float sums[TM][TN] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
#pragma unroll
        for (int r = 0; r < BM; r += A_ROWS) {
            As[r + a_row][a_col] = a_from[p0 + r * k];
        }
#pragma unroll
        for (int r = 0; r < BK; r += B_ROWS) {
            Bs[r + b_row][b_col] = b_from[(p0 + r) * n];
        }
        __syncthreads();

#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                a[i] = As[row + i][p];
            }
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                b[j] = Bs[p][col + j];
            }
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    sums[i][j] += a[i] * b[j];
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            float* out = &C[(block_row + row + i) * n + block_col + col + j];
            const float old = beta == 0.0f ? 0.0f : beta * *out;
            *out = alpha * sums[i][j] + old;
        }
    }
}
