// Kernel 1.1, the article's: two by two tiles a warp.
//
// New:        a warp makes 2 x 2 tiles of 16 x 8 of C, 32 apart: four mma where 1.0 has one, for twice the elements
//             loaded and twice those read. The same eight warps make a tile of 64x64.
// Parameters: C tile 64x64, K step 16; 256 threads, four elements of A and of B each. Everything else is 1.0's.
// Expected:   half the loads, reads and barriers a product: 1.7 to 2 times 1.0.
// Published:  57.3 TFLOP/s, 37.3% of cuBLAS (NVIDIA RTX 4090, m = n = k = 4096).
// Takes:      A row-major [m, k], B row-major [k, n], C row-major [m, n] in fp32; m and n multiples of 64, k of 16.
//             Every matrix below 2^31 elements.

#include "common/mma_ada.cuh"

constexpr int BM = 64, BN = 64, BK = 16;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 2, MMA_N = 2;       // tiles of 16 x 8 a warp
constexpr int SIDE = 16;                  // threads each way
constexpr int WARPS_N = 4;
constexpr int APART_M = BM / MMA_M, APART_N = BN / MMA_N;  // a warp's tiles
static_assert(BK == SIDE, "a pass of the block takes 16 rows of A, or 16 columns of B");

// Two elements as mma takes them, the first along K in the lower half.
__device__ __forceinline__ Word pair(fp16 first, fp16 second) {
    return first.bits | static_cast<Word>(second.bits) << 16;
}

extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
scalar_2x(const fp16* A, const fp16* B, float* C, int m, int n, int k) {
    // A: [m, k]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: (SIDE, SIDE)
    __shared__ fp16 As[BM][BK];
    __shared__ fp16 Bs[BK][BN];

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int x = threadIdx.x, y = threadIdx.y;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int warp_row = warp / WARPS_N * 16, warp_col = warp % WARPS_N * 8;  // of the warp's first tile
    const int g = lane / 4, t = lane % 4;

    float sums[MMA_M][MMA_N][4] = {};
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

#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
            Word a[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const fp16* from = &As[i * APART_M + warp_row + g + e % 2 * 8][2 * t + e / 2 * 8];
                a[e] = pair(from[0], from[1]);
            }
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
                Word b[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int p = 2 * t + e * 8, col = j * APART_N + warp_col + g;
                    b[e] = pair(Bs[p][col], Bs[p + 1][col]);
                }
                mma(sums[i][j], a, b);
            }
        }
        __syncthreads();  // all warps are done with the tiles
    }

#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            const int row = block_row + i * APART_M + warp_row + g, col = block_col + j * APART_N + warp_col + 2 * t;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                C[(row + e / 2 * 8) * n + col + e % 2] = sums[i][j][e];
            }
        }
    }
}
