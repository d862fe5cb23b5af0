// Level H1: the tensor cores of Hopper, fed by its copy engine.
//
// New:        four warps (a warpgroup) give one instruction, wgmma, that multiplies 64 x 16 of A by 16 x 64 of B
//             straight from shared memory. The tiles come by TMA: one thread names a tile's corner, the engine writes
//             it in the 128-byte swizzle that wgmma reads without bank conflicts, and counts its bytes on an mbarrier.
//             No thread computes an address of A or B, and none holds an element of them.
// Parameters: C tile 64x64, K step 64 (a swizzled row of 128 bytes): four wgmma m64n64k16 a step. 128 threads with 32
//             sums each; 16 KB of shared memory, so many blocks share a multiprocessor and hide each other's waits.
// Expected:   load, wait, compute, in this order. Each output tile of 64 x 64 loads 64 + 64 elements a k: at 4096, 4.3
//             GB from the L2, and m64n64k16 asks shared memory for all it gives. See NOTES.md.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major; bf16 or fp16, sums in fp32. n and k multiples
//             of 8 (TMA wants rows of whole 16 bytes), any m: loads beyond an edge give zeros, stores beyond are left
//             out.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BM = 64, BN = 64, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int THREADS = 128;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(BM == 64 && THREADS == 128, "a warpgroup multiplies 64 rows");

extern "C" __global__ void __launch_bounds__(THREADS)
wgmma_tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C,
          int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    alignas(1024) __shared__ Element As[BM * BK];
    alignas(1024) __shared__ Element Bs[BN * BK];
    __shared__ Barrier full;

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        barrier_init_fence();
    }
    __syncthreads();

    const Descriptor a = describe(As), b = describe(Bs);
    float sums[BN / 2] = {};
    int parity = 0;
    for (int p0 = 0; p0 < k; p0 += BK) {
        if (threadIdx.x == 0) {
            barrier_expect(&full, sizeof(As) + sizeof(Bs));
            tma_load(As, map_a, &full, p0, block_row);
            tma_load(Bs, map_b, &full, p0, block_col);
        }
        barrier_wait(&full, parity);
        parity ^= 1;

        wgmma_fence();
#pragma unroll
        for (int s = 0; s < BK / 16; ++s) {
            wgmma<BN, Element>(sums, a + s * NEXT_K16, b + s * NEXT_K16, p0 > 0 || s > 0);
        }
        wgmma_commit();
        wgmma_finish(sums);
        __syncthreads();  // all four warps are done with the tiles
    }

    // Where a thread's sums lie in the tile: kernels/common/wgmma.cuh.
    const int row = block_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int col = block_col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < BN / 2; i += 2) {
        const int r = row + i / 2 % 2 * 8, c = col + i / 4 * 8;
        if (r < m && c < n) {
            *reinterpret_cast<Word*>(&C[static_cast<size_t>(r) * n + c]) = pack<Element>(sums[i], sums[i + 1]);
        }
    }
}
