// Level H2: larger tiles, more wgmma in flight.
//
// New:        the tile grows to 128 x 128 and the instruction to m64n128k16. A warpgroup now holds two accumulators of
//             64 x 128 and starts eight wgmma a step of K before it waits.
// Parameters: C tile 128x128, K step 64. 128 threads with 128 sums each; 32 KB of shared memory. At most 168 registers,
//             so three blocks fit a multiprocessor: one waits for its tiles while another multiplies.
// Expected:   128 + 128 elements a k for 128 x 128 outputs: half of H1's traffic from the L2. m64n128k16 reads 6 KB of
//             shared memory in 64 cycles, three quarters of what there is; m64n64k16 read 4 KB in 32 cycles, all of it.
// Takes:      as level H1.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int HALVES = BM / 64;             // a warpgroup multiplies 64 rows at a time
constexpr int THREADS = 128;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");

extern "C" __global__ void __launch_bounds__(THREADS, 3)
tiles(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C,
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
    float sums[HALVES][BN / 2] = {};
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
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
                constexpr int HALF = 64 * BK * sizeof(Element) >> 4;  // 64 rows on, in the units of a descriptor
                wgmma<BN, Element>(sums[h], a + h * HALF + s * NEXT_K16, b + s * NEXT_K16, p0 > 0 || s > 0);
            }
        }
        wgmma_commit();
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            wgmma_finish(sums[h]);
        }
        __syncthreads();  // all four warps are done with the tiles
    }

    const int row = block_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int col = block_col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
        for (int i = 0; i < BN / 2; i += 2) {
            const int r = row + h * 64 + i / 2 % 2 * 8, c = col + i / 4 * 8;
            if (r < m && c < n) {
                *reinterpret_cast<Word*>(&C[static_cast<size_t>(r) * n + c]) =
                    pack<Element>(sums[h][i], sums[h][i + 1]);
            }
        }
    }
}
