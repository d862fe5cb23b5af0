// Kernel 1.1: two by two tiles a warp.
//
// New:        a warp makes 2 x 2 tiles of 16 x 8 of C from two fragments of A and two of B: four mma where 1.0 has one,
//             for twice the loads. The same eight warps make a tile of 64x64.
// Parameters: C tile 64x64, K step 16; 256 threads, two words of A and of B each. Everything else is 1.0's.
// Expected:   half the loads, words read from shared memory and barriers a product: about twice 1.0.
// Published:  57.3 TFLOP/s, 37.3% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k even. A and B
//             aligned to 4 bytes; every matrix below 2^31 elements.

#include "common/mma.cuh"

constexpr int BM = 64, BN = 64, BK = 16;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 2, MMA_N = 2;       // tiles of 16 x 8 a warp
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int THREADS = WARPS_M * WARPS_N * 32;  // 256
constexpr int WORDS = BK / 2;                    // of two elements, in a row of a tile
static_assert(WORDS == 8, "a pass of the block takes 32 rows");
static_assert(BM * WORDS % THREADS == 0 && BN * WORDS % THREADS == 0, "threads copy the tiles in whole passes");

// Two neighbouring elements, one word.
__device__ __forceinline__ Word& two(fp16* elements) {
    return *reinterpret_cast<Word*>(elements);
}

__device__ __forceinline__ const Word& two(const fp16* elements) {
    return *reinterpret_cast<const Word*>(elements);
}

extern "C" __global__ void __launch_bounds__(THREADS)
tiled_2x(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    alignas(4) __shared__ fp16 As[BM][BK];
    alignas(4) __shared__ fp16 Bs[BN][BK];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    const int g = lane / 4, t = lane % 4;

    float sums[MMA_M][MMA_N][4] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
#pragma unroll
        for (int i = threadIdx.x; i < BM * WORDS; i += THREADS) {  // a warp: 8 rows, 4 words of each
            const int row = i / 64 * 8 + i % 32 / 4, p = i % 64 / 32 * 8 + i % 4 * 2;
            const bool inside = block_row + row < m && p0 + p < k;
            two(&As[row][p]) = inside ? two(&A[static_cast<size_t>(block_row + row) * k + p0 + p]) : 0;
        }
#pragma unroll
        for (int i = threadIdx.x; i < BN * WORDS; i += THREADS) {
            const int row = i / 64 * 8 + i % 32 / 4, p = i % 64 / 32 * 8 + i % 4 * 2;
            const bool inside = block_col + row < n && p0 + p < k;
            two(&Bs[row][p]) = inside ? two(&B[static_cast<size_t>(block_col + row) * k + p0 + p]) : 0;
        }
        __syncthreads();

        Word a[MMA_M][4], b[MMA_N][2];
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
            const int row = warp_row + 16 * i + g;
            a[i][0] = two(&As[row][2 * t]), a[i][1] = two(&As[row + 8][2 * t]);
            a[i][2] = two(&As[row][2 * t + 8]), a[i][3] = two(&As[row + 8][2 * t + 8]);
        }
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            const int row = warp_col + 8 * j + g;
            b[j][0] = two(&Bs[row][2 * t]), b[j][1] = two(&Bs[row][2 * t + 8]);
        }
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
                mma(sums[i][j], a[i], b[j]);
            }
        }
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = block_row + warp_row + 16 * i + g + e / 2 * 8;
                const int col = block_col + warp_col + 8 * j + 2 * t + e % 2;
                if (row < m && col < n) {
                    C[static_cast<size_t>(row) * n + col] = sums[i][j][e];
                }
            }
        }
    }
}
