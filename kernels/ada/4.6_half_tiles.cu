// Kernel 4.6, past the article: the author's fp16 sums, in a tile of twice the area.
//
// New:        sums in fp16 take half the registers, so a warp holds 64 x 128 of them and a block 256 x 256 where 4.5 has
//             256 x 128. A is read for twice as many columns: per product a third fewer bytes come from the L2 and a
//             quarter fewer go through ldmatrix. Fragments of all 128 columns would not fit beside the sums: those of B
//             are read for one half of the columns while the other is multiplied.
// Parameters: 256 x 256 x 64 a block, 64 x 128 a warp; three stages of 64 KB; two pieces of 16 x 32 sums a warp on their
//             way to C.
// Expected:   no fewer cycles, as mma.sync takes 6.1 whatever it adds to: 450k at 4096. At the power cap, by itself: 4.5
//             spends 13% of its energy on moving tiles into shared memory and 6% on ldmatrix; a third of the one and a
//             quarter of the other are 6%, half as wide sums 2 to 4% more: 490 TFLOP/s at 4096 and 8192 for 4.5's 455.
//             In a burst, 530 for 4.5's 520 and 531.
//             Errors are those of 3.3.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n] in fp32; any m, n a multiple of 4 and k
//             of 8. All three aligned to 16 bytes.

#include "common/mma_ada.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"  // registers_give, registers_claim; no wgmma here

constexpr int BM = 256, BN = 256, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int MMA_M = 4, MMA_N = 16;        // tiles of 16 x 8 a warp
constexpr int HALF = MMA_N / 2;             // of which this many columns of tiles are multiplied at a time
constexpr int STAGES = 3;                   // slots of the ring
constexpr int GROUP = 8;                    // rows of tiles that are walked together
constexpr int WM = 16 * MMA_M, WN = 8 * MMA_N;
constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int CONSUMERS = WARPS_M * WARPS_N;   // warps; four more follow them, of which one thread produces
constexpr int THREADS = (CONSUMERS + 4) * 32;  // 384
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int PIECES = BK / 8;         // pieces of 16 bytes in a row of a tile
constexpr int ROW = 16 * PIECES;       // bytes of a row
constexpr int SLOT = (BM + BN) * ROW;  // bytes of a slot: the rows of A, then those of B
constexpr int PARTS = WN / 32;         // of 16 rows of a warp's sums
constexpr int PART = 16 * 32 * 4;      // bytes of 16 x 32 sums in fp32, what the engine stores at a time
static_assert(ROW == 128, "a row is one swizzled row, and four slices use two sets of fragments of A in turn");
static_assert(CONSUMERS % 4 == 0, "registers are moved between warpgroups");
static_assert(32 * (4 * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    unsigned char ring[STAGES][SLOT];
    unsigned char staged[CONSUMERS][2][PART];  // of each warp two parts, in turn
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
half_tiles(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, int m, int n, int k) {
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
    Word sums[MMA_M][MMA_N][2];               // two fp16 sums in each
    Word a[2][MMA_M][4], b[2][HALF][2];       // A: of two slices in turn; B: of the two halves of the columns
    auto fetch_a = [&](int set, int s) {      // pieces s and s + 1 of the slot; p ^ s is a place, s being even
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
            Word(&to)[4] = a[set][i];
            ldmatrix(to[0], to[1], to[2], to[3], (a_at + slot * SLOT ^ s * 16) + i * 16 * ROW);
        }
    };
    auto fetch_b = [&](int half, int s) {
#pragma unroll
        for (int j = 0; j < HALF; j += 2) {
            Word(&to)[2] = b[half][j], (&and_to)[2] = b[half][j + 1];
            ldmatrix(to[0], to[1], and_to[0], and_to[1], (b_at + slot * SLOT ^ s * 16) + (half * HALF + j) * 8 * ROW);
        }
    };
    auto multiply = [&](int set, int half) {
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < HALF; ++j) {
                const int column = i % 2 ? HALF - 1 - j : j;  // there and back: one operand stays
                Word(&sum)[2] = sums[i][half * HALF + column];
                mma_half(sum, a[set][i], b[half][column], sum);
            }
        }
    };

    for (int tile = blockIdx.x; tile < rows * cols; tile += gridDim.x) {
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
                sums[i][j][0] = sums[i][j][1] = 0;
            }
        }
        barrier_wait(&shared.full[slot], parity);
        fetch_a(0, 0);
        fetch_b(0, 0);
        for (int t = 0; t < steps; ++t) {
            Barrier* const empty = &shared.empty[slot];
#pragma unroll
            for (int s = 0; s < PIECES; s += 2) {
                const int set = s / 2 % 2;
                fetch_b(1, s);
                multiply(set, 0);
                if (s + 2 < PIECES) {
                    fetch_a(set ^ 1, s + 2);
                    fetch_b(0, s + 2);
                } else {
                    if (++slot == STAGES) {
                        slot = 0, parity ^= 1;
                    }
                    if (t + 1 < steps) {
                        barrier_wait(&shared.full[slot], parity);
                        fetch_a(0, 0);
                        fetch_b(0, 0);
                    }
                }
                multiply(set, 1);
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
            for (int part = 0; part < PARTS; ++part) {
                unsigned char(&piece)[PART] = shared.staged[warp][part % 2];
                tma_store_wait_read<1>();  // lane 0, which stores, has the part before the last one read
                __syncwarp();
#pragma unroll
                for (int j = 0; j < 4; ++j) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {  // a row is 128 bytes, permuted as the tiles are
                        const int r = lane / 4 + half * 8, place = (j * 2 + lane % 4 / 2) ^ r % 8;
                        unsigned char* to = &piece[r * 128 + place * 16 + lane % 2 * 8];
                        *reinterpret_cast<float2*>(to) = unpack_half(sums[i][4 * part + j][half]);
                    }
                }
                shared_fence();  // what threads wrote, the copy engine reads
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, piece, at.col + warp_col + 32 * part, at.row + warp_row + 16 * i);
                    tma_store_commit();
                }
            }
        }
    }
    tma_store_wait<0>();
}
