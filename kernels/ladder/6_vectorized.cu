// Level 6: 128-bit memory accesses.
//
// New:        every access that can be four floats wide is. A and B arrive as float4, C leaves as float4, and A is
//             transposed on its way into shared memory, so that the TM values that a thread needs of one p are
//             adjacent: four LDS.128 per step feed 64 multiplications.
// Parameters: those of level 5. The A tile and the B tile are 256 float4 each, one of each per thread.
// Published:  18237 GFLOP/s, 78.4% of cuBLAS (NVIDIA A6000, m = n = k = 4096).
// Takes:      m and n multiples of 128, k of 8; each matrix below 2^31 elements and aligned to 16 bytes. C is not
//             read when beta is 0, A and B are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 128, BN = 128, BK = 8, TM = 8, TN = 8, BLOCKS = 2
#endif
constexpr int PARAMETERS;
// The block's tile of C is BM x BN, a thread's TM x TN; the block walks K in steps of BK. BLOCKS of them shall fit a
// multiprocessor.
constexpr int THREADS = BM * BN / (TM * TN);  // 256
static_assert(BM % TM == 0 && BN % TN == 0, "threads tile C exactly");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0, "everything is read four at a time");
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "each thread loads one float4 of each tile");

__device__ __forceinline__ float4 load4(const float* from) {
    return *reinterpret_cast<const float4*>(from);
}

__device__ __forceinline__ void store4(float* to, float4 value) {
    *reinterpret_cast<float4*>(to) = value;
}

// Four floats of shared memory into four registers of an array.
__device__ __forceinline__ void read4(float* registers, const float* shared) {
    const float4 v = load4(shared);
    registers[0] = v.x, registers[1] = v.y, registers[2] = v.z, registers[3] = v.w;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
vectorized(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    alignas(16) __shared__ float As[BK][BM];  // [p, row of C]: transposed
    alignas(16) __shared__ float Bs[BK][BN];  // [p, column of C]

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int row = threadIdx.x / (BN / TN) * TM;  // corner of this thread's TM x TN outputs in the tile
    const int col = threadIdx.x % (BN / TN) * TN;
    const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;  // the float4 it loads of A
    const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;  // and of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    float sums[TM][TN] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
        const float4 a4 = load4(a_from + p0);
        As[a_col + 0][a_row] = a4.x;
        As[a_col + 1][a_row] = a4.y;
        As[a_col + 2][a_row] = a4.z;
        As[a_col + 3][a_row] = a4.w;
        store4(&Bs[b_row][b_col], load4(b_from + p0 * n));
        __syncthreads();

#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                read4(&a[i], &As[p][row + i]);
            }
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                read4(&b[j], &Bs[p][col + j]);
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
        for (int j = 0; j < TN; j += 4) {
            float* out = &C[(block_row + row + i) * n + block_col + col + j];
            const float4 old = beta == 0.0f ? float4{} : load4(out);
            store4(out, {alpha * sums[i][j + 0] + beta * old.x, alpha * sums[i][j + 1] + beta * old.y,
                         alpha * sums[i][j + 2] + beta * old.z, alpha * sums[i][j + 3] + beta * old.w});
        }
    }
}
