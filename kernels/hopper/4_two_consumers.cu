// Level H4: two consumer warpgroups, and registers where they are needed.
//
// New:        the tile grows to 128 x 256: two consumer warpgroups share a tile of B, each multiplying its own 64 rows
//             of A by all 256 columns with m64n256k16, the widest instruction. The producer becomes a warpgroup too,
//             since setmaxnreg moves registers between warpgroups: it gives most of its own back, the consumers claim
//             them.
// Parameters: C tile 128x256, K step 64, STAGES = 4: 192 KB of shared memory, one block a multiprocessor. 384 threads
//             at 168 registers; then 40 for the producer, 232 for the consumers, who hold 128 sums a thread. (Here 168
//             would do as well: nothing spills. A consumer with two tiles of sums would need what setmaxnreg gives.)
// Expected:   128 + 256 elements a k for 128 x 256 outputs, a quarter less than H3 from the L2; m64n256k16 reads 10 KB
//             of shared memory in 128 cycles, five eighths of what there is.
// Takes:      as level H1.

#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT bf16  // or fp16
#endif
using Element = ELEMENT;

constexpr int BM = 128, BN = 256, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 4;
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
two_consumers(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* C,
              int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int warpgroup = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
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
        registers_claim<CONSUMER_REGISTERS>();
        float sums[BN / 2] = {};
        for (int p0 = 0; p0 < k; p0 += BK) {
            barrier_wait(&shared.full[stage], parity);
            const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) {
                wgmma<BN, Element>(sums, a + s * NEXT_K16, b + s * NEXT_K16, p0 > 0 || s > 0);
            }
            wgmma_commit();
            wgmma_wait<0>();
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[stage]);
            }
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
        }
        wgmma_finish(sums);

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
}
