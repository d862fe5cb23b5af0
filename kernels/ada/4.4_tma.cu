// Kernel 4.4, past the article: the copy engine of Hopper feeds the same instruction.
//
// New:        tiles come by TMA: one thread of a producer warpgroup names them, and the engine writes them in its
//             128-byte swizzle, which is the very permutation of 4.0. Each slot has a barrier for "full" and one for
//             "empty", so no barrier of the block is left, and warps drift apart. Blocks stay and walk the tiles of C
//             in 4.3's order, so the first slots of a tile fill while the last tile is stored. The registers that eight
//             warps of 232 need are taken from the producers.
// Parameters: the tiles of 4.1, four stages of 48 KB, a block a multiprocessor.
// Expected:   of 230 instructions a step and warp, 30 made addresses or copied; no meeting of all warps twice a step:
//             10 to 15% over 4.3. What is left is the rate of mma.sync and, at the power cap, the energy of moving
//             operands.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m and n, k a multiple of
//             8. A and B aligned to 16 bytes, C to 8.

#include "common/mma.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"  // registers_give, registers_claim; no wgmma here

constexpr int BM = 256, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 4, MMA_N = 8;         // tiles of 16 x 8 a warp
constexpr int STAGES = 4;                   // slots of the ring
constexpr int GROUP = 8;                    // rows of tiles that are walked together
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int CONSUMERS = WARPS_M * WARPS_N;   // warps; four more follow them, of which one thread produces
constexpr int THREADS = (CONSUMERS + 4) * 32;  // 384
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int PIECES = BK / 8;         // pieces of 16 bytes in a row of a tile
constexpr int ROW = 16 * PIECES;       // bytes of a row
constexpr int SLOT = (BM + BN) * ROW;  // bytes of a slot: the rows of A, then those of B
static_assert(ROW == 128, "a row is one swizzled row, and four slices use two sets of fragments in turn");
static_assert(CONSUMERS % 4 == 0, "registers are moved between warpgroups");
static_assert(32 * (4 * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    unsigned char ring[STAGES][SLOT];
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Corner {
    int row, col;
};

// Where the t-th of rows x cols tiles stands in C: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Corner tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {(group * GROUP + within % height) * BM, within / height * BN};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
mma_tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* C,
        int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of blocks   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int slot = 0, parity = 0;  // where in the ring, and how often round it
    if (warp >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 32) {
            for (int tile = blockIdx.x; tile < rows * cols; tile += gridDim.x) {
                const Corner at = tile_at(tile, rows, cols);
                for (int t = 0; t < steps; ++t) {
                    barrier_wait(&shared.empty[slot], parity ^ 1);
                    barrier_expect(&shared.full[slot], SLOT);
                    tma_load(shared.ring[slot], map_a, &shared.full[slot], t * BK, at.row);
                    tma_load(shared.ring[slot] + BM * ROW, map_b, &shared.full[slot], t * BK, at.col);
                    if (++slot == STAGES) {
                        slot = 0, parity ^= 1;
                    }
                }
            }
        }
        return;
    }

    registers_claim<CONSUMER_REGISTERS>();
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    // Where this lane's row of the first fragment stands in a slot. A: 8 x 8 blocks are rows 0 to 7 and 8 to 15 of one
    // piece, then of the next. B: columns 0 to 7 of one piece and of the next, then columns 8 to 15.
    const int a_row = warp_row + lane % 16, b_row = warp_col + lane / 16 * 8 + lane % 8;
    const unsigned a_at = shared_offset(shared.ring) + a_row * ROW + (lane / 16 ^ a_row % 8) * 16;
    const unsigned b_at = shared_offset(shared.ring) + (BM + b_row) * ROW + (lane / 8 % 2 ^ b_row % 8) * 16;
    Word a[2][MMA_M][4], b[2][MMA_N][2];
    auto fetch = [&](int set, int s) {  // pieces s and s + 1 of the slot; p ^ s is a place, s being even
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
            Word(&to)[4] = a[set][i];
            ldmatrix(to[0], to[1], to[2], to[3], (a_at + slot * SLOT ^ s * 16) + i * 16 * ROW);
        }
#pragma unroll
        for (int j = 0; j < MMA_N; j += 2) {
            Word(&to)[2] = b[set][j], (&and_to)[2] = b[set][j + 1];
            ldmatrix(to[0], to[1], and_to[0], and_to[1], (b_at + slot * SLOT ^ s * 16) + j * 8 * ROW);
        }
    };

    for (int tile = blockIdx.x; tile < rows * cols; tile += gridDim.x) {
        float sums[MMA_M][MMA_N][4] = {};
        barrier_wait(&shared.full[slot], parity);
        fetch(0, 0);
        for (int t = 0; t < steps; ++t) {
            Barrier* const empty = &shared.empty[slot];
#pragma unroll
            for (int s = 0; s < PIECES; s += 2) {
                if (s + 2 < PIECES) {
                    fetch(s / 2 % 2 ^ 1, s + 2);
                } else {
                    if (++slot == STAGES) {
                        slot = 0, parity ^= 1;
                    }
                    if (t + 1 < steps) {
                        barrier_wait(&shared.full[slot], parity);
                        fetch(0, 0);
                    }
                }
#pragma unroll
                for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
                    for (int j = 0; j < MMA_N; ++j) {
                        const int column = i % 2 ? MMA_N - 1 - j : j;  // there and back: one operand stays
                        mma(sums[i][column], a[s / 2 % 2][i], b[s / 2 % 2][column]);
                    }
                }
            }
            __syncwarp();  // all lanes have what they fetched
            if (lane == 0) {
                barrier_arrive(empty);
            }
        }

        const Corner at = tile_at(tile, rows, cols);
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
                store_tile(C, m, n, at.row + warp_row + 16 * i, at.col + warp_col + 8 * j, sums[i][j]);
            }
        }
    }
}
