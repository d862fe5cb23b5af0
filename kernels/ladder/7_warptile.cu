// Level 7: warp tiling.
//
// New:        between the block's tile and the thread's stands the warp's. A warp owns WM x WN of C and walks it as
//             WMITER x WNITER sub-tiles; in each, its 32 threads compute TM x TN outputs side by side. Lanes of a warp
//             then share rows of A and columns of B, so shared memory answers most reads by broadcast, and each
//             thread holds WMITER*TM values of A and WNITER*TN of B in registers for all their products.
// Parameters: those that the code which the article follows found by search on an A6000, the article's GPU: C tile
//             128x128, K step 16, four warps of 64x64, WNITER = 4, TM = 8, TN = 4, hence WMITER = 1 and sub-tiles of
//             64x16. 128 threads with 128 sums each; 16 KB of shared memory. Two steps of p are unrolled, enough to
//             read one ahead; at most 168 registers, so that three blocks fit an SM.
// Published:  21779 GFLOP/s, 93.7% of cuBLAS, 70 times level 1 (NVIDIA A6000, m = n = k = 4096).
// Takes:      m and n multiples of 128, k of 16; each matrix below 2^31 elements and aligned to 16 bytes. C is not
//             read when beta is 0, A and B are not read when alpha is 0.

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS \
    BM = 128, BN = 128, BK = 16, WM = 64, WN = 64, WNITER = 4, TM = 8, TN = 4, BLOCKS = 3, UNROLL = 2, PAD = 0
#endif
constexpr int PARAMETERS;
// The block's tile of C is BM x BN, a warp's WM x WN, a thread's TM x TN in each of the warp's sub-tiles, of which
// WNITER lie along N. The block walks K in steps of BK, UNROLL of them in one go of the loop. BLOCKS of them shall fit
// a multiprocessor. PAD floats behind each row of the transposed A tile may spare its stores bank conflicts.
constexpr int WMITER = WM * WN / (32 * TM * TN * WNITER);  // 1: along M
constexpr int SUBM = WM / WMITER, SUBN = WN / WNITER;      // a sub-tile is 64 x 16
constexpr int THREADS = BM / WM * (BN / WN) * 32;          // 128
constexpr int A_ROWS = THREADS / (BK / 4);                 // 32 rows of the A tile are loaded at a time
constexpr int B_ROWS = THREADS / (BN / 4);                 // 4 rows of the B tile
static_assert(BM % WM == 0 && BN % WN == 0, "warps tile the block's tile exactly");
static_assert(WMITER * WNITER * 32 * TM * TN == WM * WN, "sub-tiles tile the warp's tile exactly");
static_assert(SUBM * WMITER == WM && SUBN * WNITER == WN, "sub-tiles have whole edges");
static_assert(SUBM % TM == 0 && SUBN % TN == 0 && SUBM / TM * (SUBN / TN) == 32, "a warp's lanes tile a sub-tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0 && PAD % 4 == 0, "everything is read four at a time");
static_assert(THREADS % (BK / 4) == 0 && BM % A_ROWS == 0, "threads load the A tile in whole passes");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0, "threads load the B tile in whole passes");

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
warptile(int m, int n, int k, float alpha, const float* A, const float* B, float beta, float* C) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    alignas(16) __shared__ float As[BK][BM + PAD];  // [p, row of C]: transposed
    alignas(16) __shared__ float Bs[BK][BN];  // [p, column of C]

    const int block_row = blockIdx.y * BM;
    const int block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (BN / WN) * WM + lane / (SUBN / TN) * TM;  // corner of this thread's outputs in the first
    const int col = warp % (BN / WN) * WN + lane % (SUBN / TN) * TN;  // sub-tile; the others lie SUBM and SUBN apart
    const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;  // the first float4 it loads of A
    const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;  // and of B
    const float* a_from = &A[(block_row + a_row) * k + a_col];
    const float* b_from = &B[b_row * n + block_col + b_col];

    float sums[WMITER * TM][WNITER * TN] = {};
    for (int p0 = 0; p0 < k && alpha != 0.0f; p0 += BK) {  // alpha = 0: as in BLAS, A and B are not read
#pragma unroll
        for (int r = 0; r < BM; r += A_ROWS) {
            const float4 a4 = load4(a_from + p0 + r * k);
            As[a_col + 0][r + a_row] = a4.x;
            As[a_col + 1][r + a_row] = a4.y;
            As[a_col + 2][r + a_row] = a4.z;
            As[a_col + 3][r + a_row] = a4.w;
        }
#pragma unroll
        for (int r = 0; r < BK; r += B_ROWS) {
            store4(&Bs[r + b_row][b_col], load4(b_from + (p0 + r) * n));
        }
        __syncthreads();

#pragma unroll UNROLL
        for (int p = 0; p < BK; ++p) {
            float a[WMITER * TM], b[WNITER * TN];
#pragma unroll
            for (int i = 0; i < WMITER * TM; i += 4) {
                read4(&a[i], &As[p][row + i / TM * SUBM + i % TM]);
            }
#pragma unroll
            for (int j = 0; j < WNITER * TN; j += 4) {
                read4(&b[j], &Bs[p][col + j / TN * SUBN + j % TN]);
            }
#pragma unroll
            for (int i = 0; i < WMITER * TM; ++i) {
#pragma unroll
                for (int j = 0; j < WNITER * TN; ++j) {
                    sums[i][j] += a[i] * b[j];
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < WMITER * TM; ++i) {
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            float* out = &C[(block_row + row + i / TM * SUBM + i % TM) * n + block_col + col + j / TN * SUBN + j % TN];
            const float4 old = beta == 0.0f ? float4{} : load4(out);
            store4(out, {alpha * sums[i][j + 0] + beta * old.x, alpha * sums[i][j + 1] + beta * old.y,
                         alpha * sums[i][j + 2] + beta * old.z, alpha * sums[i][j + 3] + beta * old.w});
        }
    }
}
