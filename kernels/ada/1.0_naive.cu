// Kernel 1.0: one tensor core instruction a warp and K step.
//
// Idea:       mma.sync m16n8k16 multiplies 16 x 16 of A by 16 x 8 of B, for which 32 lanes hold the operands in
//             registers (who holds what: kernels/common/mma.cuh). The tiles pass through shared memory, and both ways
//             follow the fragment: a word of two elements a lane, four lanes along a row, eight rows a warp.
// Parameters: eight warps, two along M and four along N, a tile of 16 x 8 each: C tile 32x32, K step 16. A word of A
//             and one of B a thread. A warp's load touches 16 bytes in each of eight rows of the matrix: nothing
//             coalesces. Rows of a tile lie 32 bytes apart, so rows 0 and 4 share their banks: a conflict in every
//             store and every read.
// Expected:   two mma a scheduler and K step, behind a wait for global memory and two barriers: a small part of the
//             tensor cores' rate. The well-known implementation makes 24 TFLOP/s on an H200.
// Published:  29.4 TFLOP/s, 19.1% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k even. A and B
//             aligned to 4 bytes; every matrix below 2^31 elements.

#include "common/mma.cuh"

constexpr int BM = 32, BN = 32, BK = 16;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int WARPS_M = BM / 16, WARPS_N = BN / 8;
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

extern "C" __global__ void __launch_bounds__(THREADS, 6)
naive(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    alignas(4) __shared__ fp16 As[BM][BK];
    alignas(4) __shared__ fp16 Bs[BN][BK];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * 16, warp_col = warp % WARPS_N * 8;  // of the warp's tile in the block's
    const int g = lane / 4, t = lane % 4;

    float sums[4] = {};
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

        const Word a[4] = {two(&As[warp_row + g][2 * t]), two(&As[warp_row + g + 8][2 * t]),
                           two(&As[warp_row + g][2 * t + 8]), two(&As[warp_row + g + 8][2 * t + 8])};
        const Word b[2] = {two(&Bs[warp_col + g][2 * t]), two(&Bs[warp_col + g][2 * t + 8])};
        mma(sums, a, b);
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int row = block_row + warp_row + g + e / 2 * 8, col = block_col + warp_col + 2 * t + e % 2;
        if (row < m && col < n) {
            C[static_cast<size_t>(row) * n + col] = sums[e];
        }
    }
}
