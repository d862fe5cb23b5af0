// Kernel 1.0, the article's: one mma a warp and K step.
//
// Idea:       mma.sync m16n8k16 multiplies 16 x 16 of A by 16 x 8 of B, for which 32 lanes hold the operands in
//             registers (who holds what: kernels/common/mma.cuh). The tiles pass through shared memory element by
//             element: a thread loads two of A and two of B, and reads the eight and four of its fragments.
// Parameters: a block of 16 x 16 threads, eight warps, two along M and four along N, a tile of 16 x 8 each: C tile
//             32x32, K step 16. B is row-major, so an element of B and its neighbour along K lie 64 bytes apart.
// Expected:   a warp loads 32 bytes of each of two rows of A: half of a sector's 64-byte pair, and no wider than 2
//             bytes a lane. Twelve reads of 2 bytes a lane and mma, behind two barriers: bound by instructions of shared
//             memory. The well-known implementation makes 24 TFLOP/s on an H200; 20 to 25.
// Published:  29.4 TFLOP/s, 19.1% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B row-major [k, n], C row-major [m, n] in fp32; m and n multiples of 32, k of 16.
//             Every matrix below 2^31 elements.

#include "common/mma_ada.cuh"

constexpr int BM = 32, BN = 32, BK = 16;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int SIDE = 16;                  // threads each way
constexpr int WARPS_N = 4;
static_assert(BK == SIDE, "a pass of the block takes 16 rows of A, or 16 columns of B");

// Two elements as mma takes them, the first along K in the lower half.
__device__ __forceinline__ Word pair(fp16 first, fp16 second) {
    return first.bits | static_cast<Word>(second.bits) << 16;
}

extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
scalar(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: (SIDE, SIDE)
    __shared__ fp16 As[BM][BK];
    __shared__ fp16 Bs[BK][BN];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int x = threadIdx.x, y = threadIdx.y;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int warp_row = warp / WARPS_N * 16, warp_col = warp % WARPS_N * 8;  // of the warp's tile in the block's
    const int g = lane / 4, t = lane % 4;

    float sums[4] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
#pragma unroll
        for (int r = 0; r < BM; r += SIDE) {
            As[r + y][x] = A[(block_row + r + y) * k + p0 + x];
        }
#pragma unroll
        for (int c = 0; c < BN; c += SIDE) {
            Bs[y][c + x] = B[(p0 + y) * n + block_col + c + x];
        }
        __syncthreads();

        Word a[4], b[2];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const fp16* from = &As[warp_row + g + e % 2 * 8][2 * t + e / 2 * 8];
            a[e] = pair(from[0], from[1]);
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int p = 2 * t + e * 8, col = warp_col + g;
            b[e] = pair(Bs[p][col], Bs[p + 1][col]);
        }
        mma(sums, a, b);
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int e = 0; e < 4; ++e) {
        C[(block_row + warp_row + g + e / 2 * 8) * n + block_col + warp_col + 2 * t + e % 2] = sums[e];
    }
}
