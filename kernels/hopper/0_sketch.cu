// Level 8 as the article sketches it.
//
// Idea:       the article's atom, SM90_64x64x16_F16F16F16_SS<MN, MN>: four warps (a warpgroup) give one instruction that
//             multiplies 64 x 16 of A by 16 x 64 of B straight from shared memory and adds to fp16 sums in registers.
//             Both operands are contiguous along m and n, in the 128-byte swizzle (Layout_MN_SW128_Atom). The loop over
//             K loads by TMA, arrives, multiplies, commits, and waits for all.
// Parameters: C tile 64x64, one atom; K step 64, four wgmma m64n64k16. The article leaves BM, BN and BK open. 128 threads
//             with 32 sums in 16 registers each; 16 KB of shared memory.
// Expected:   the same bytes and the same order of work as level H1. Sums in half the registers let ten blocks share an
//             SM where eight of H1 do, which hides more of the waiting: 1.0 to 1.1 times as fast. The sums are rounded to
//             fp16 after every step of 16: at k = 4096 a relative error of 2.3e-3, against 2e-4 of one rounding.
// Takes:      A [m, k] column-major (stored [k, m]), B row-major [k, n], C row-major; fp16, sums in fp16. m and n
//             multiples of 8 (TMA wants rows of whole 16 bytes), any k: loads beyond an edge give zeros, stores beyond
//             are left out.

#include "common/tma.cuh"
#include "common/wgmma_f16.cuh"

using Element = fp16;

constexpr int BM = 64, BN = 64, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int THREADS = 128;
static_assert(BM * sizeof(Element) == 128 && BN * sizeof(Element) == 128, "a row of a tile is one swizzled row");

extern "C" __global__ void __launch_bounds__(THREADS)
sketch(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C, int m, int n,
       int k) {
    // A: [k, m]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    alignas(1024) __shared__ Element As[BK * BM];
    alignas(1024) __shared__ Element Bs[BK * BN];
    __shared__ Barrier full;

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        barrier_init_fence();
    }
    __syncthreads();

    const Descriptor a = describe_mn(As), b = describe_mn(Bs);
    Word sums[BN / 4] = {};  // two to a word
    int parity = 0;
    for (int p0 = 0; p0 < k; p0 += BK) {
        if (threadIdx.x == 0) {
            barrier_expect(&full, sizeof(As) + sizeof(Bs));
            tma_load(As, map_a, &full, block_row, p0);
            tma_load(Bs, map_b, &full, block_col, p0);
        }
        barrier_wait(&full, parity);
        parity ^= 1;

        wgmma_fence();
#pragma unroll
        for (int s = 0; s < BK / 16; ++s) {
            wgmma_f16(sums, a + s * NEXT_K16_MN, b + s * NEXT_K16_MN, p0 > 0 || s > 0);
        }
        wgmma_commit();
        wgmma_finish(sums);
        __syncthreads();  // all four warps are done with the tiles
    }

    // Where a thread's sums lie in the tile: kernels/common/wgmma_f16.cuh.
    const int row = block_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int col = block_col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
        const int r = row + i % 2 * 8, c = col + i / 2 * 8;
        if (r < m && c < n) {
            *reinterpret_cast<Word*>(&C[static_cast<size_t>(r) * n + c]) = sums[i];
        }
    }
}
