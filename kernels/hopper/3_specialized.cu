// Level H3: one warp loads, the others multiply.
//
// New:        the warps take roles. A producer warp keeps a ring of STAGES tiles filling; the consumer warpgroup
//             multiplies whatever is full. Two mbarriers a stage say which: `full` ends its phase when TMA has written
//             the tiles, `empty` when the consumers have read them. Neither side meets the other at a __syncthreads
//             again, and loads run up to STAGES steps ahead.
// Parameters: C tile 128x128, K step 64, STAGES = 3: 96 KB of shared memory, so two blocks fit a multiprocessor. 160
//             threads: four consumer warps with 128 sums a thread, one producer warp of which one thread works.
// Expected:   the time of a load, about a microsecond from request to tile, disappears behind the multiplication.
// Takes:      as level H1.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 3;
constexpr int HALVES = BM / 64;  // a warpgroup multiplies 64 rows at a time
constexpr int THREADS = 128 + 32;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
};
static_assert(2 * (sizeof(Shared) + 1024) <= 228 * 1024, "two blocks a multiprocessor");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
specialized(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C,
            int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) {
            for (int p0 = 0; p0 < k; p0 += BK) {
                barrier_wait(&shared.empty[stage], parity ^ 1);
                barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                tma_load(shared.A[stage], map_a, &shared.full[stage], p0, block_row);
                tma_load(shared.B[stage], map_b, &shared.full[stage], p0, block_col);
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        float sums[HALVES][BN / 2] = {};
        for (int p0 = 0; p0 < k; p0 += BK) {
            barrier_wait(&shared.full[stage], parity);
            const Descriptor a = describe(shared.A[stage]), b = describe(shared.B[stage]);
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
            wgmma_wait<0>();
            if (threadIdx.x == 0) {
                barrier_arrive(&shared.empty[stage]);  // one thread for all: a wgmma is the whole warpgroup's
            }
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
        }

        const int row = block_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const int col = block_col + threadIdx.x % 4 * 2;
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            wgmma_finish(sums[h]);
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
}
