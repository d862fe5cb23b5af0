// Level R2: one launch multiplies for all moduli.
//
// New:        instead of COUNT launches of the library, one kernel of our own: wgmma on int8 with TMA, one producer and
//             two consumers, blocks that stay. A tile is known by its modulus, row and column; the modulus changes
//             slowest, so that the L2 holds one pair of matrices at a time, and rows go in groups of GROUP. Since the
//             reader is ours too, sums stay in the order in which wgmma leaves them in registers: every store and
//             load is 16 bytes a thread, 512 in a row a warp.
// Parameters: a tile of 128 x 256 a block, steps of 128 bytes along K, 4 stages of 48 KB; GROUP 16 tiles.
// Expected:   no last turn left half empty for each modulus; at 4096 58.2 turns of 132 tiles where a launch per
//             modulus makes 15 times 3.9.
// Takes:      as level R1.

#include "common/tma.cuh"
#include "common/wgmma_int8.cuh"
#include "crt/columns.cuh"
#include "crt/reconstruction.cuh"
#include "crt/rows.cuh"

using Element = signed char;
constexpr int BM = 128, BN = 256, BK = 128;
constexpr int STAGES = 4;
constexpr int GROUP = 16;           // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int PARTS = BN / 8;  // 16-byte parts of a thread's sums

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Tile {
    int modulus, row, col;  // row and column counted in tiles
};

// The t-th tile: modulus by modulus; groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int i = t / (rows * cols), rest = t % (rows * cols);
    const int group = rest / (GROUP * cols), within = rest % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {i, group * GROUP + within % height, within / height};
}

// residues_a: COUNT x [m, pitch]   residues_b: COUNT x [n, pitch]   grid: any number of blocks   block: THREADS
// sums: [COUNT, tile row, tile column, warp, part, lane] of int4: two columns of a row and of the eighth row after it
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, int4* sums_out,
         int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = COUNT * rows * cols;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
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
            tma_prefetch(residues_a);
            tma_prefetch(residues_b);
            for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next modulus's: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], residues_a, &shared.full[stage], p * BK, tile.modulus * m + tile.row * BM);
                    tma_load(shared.B[stage], residues_b, &shared.full[stage], p * BK, tile.modulus * n + tile.col * BN);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int sums[BN / 2] = {};
        int before = 0;  // the stage of the step before

        const auto release = [&] {
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[before]);
            }
        };
        for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 32; ++s) {
                    wgmma_int8<BN, Element>(sums, a + s * NEXT_K32, b + s * NEXT_K32, p > 0 || s > 0);
                }
                wgmma_commit();
                wgmma_wait<1>();
                if (p > 0) {
                    release();
                }
                before = stage;
                if (++stage == STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
            wgmma_finish(sums);
            release();

            const Tile tile = tile_at(t, rows, cols);
            const size_t place = (static_cast<size_t>(tile.modulus) * rows + tile.row) * cols + tile.col;
            int4* to = sums_out + (place * (4 * CONSUMERS) + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[part * 4];
                to[part * 32] = make_int4(d[0], d[1], d[2], d[3]);
            }
        }
    }
}

// grid: PARTS / 8 * tiles   block: (32, 8): a warp's lanes, the warps that a tile's sums came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct_sums(const int4* sums, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / (PARTS / 8), first = blockIdx.x % (PARTS / 8) * 8;
    const int tile_row = place / cols, tile_col = place % cols;
    const size_t next = static_cast<size_t>(gridDim.x) * (4 * CONSUMERS) * 8 * 32;  // to the next modulus
    const int top = tile_row * BM + threadIdx.y * 16 + threadIdx.x / 4;
    const size_t warp = static_cast<size_t>(place) * (4 * CONSUMERS) + threadIdx.y;
    for (int part = first; part < first + 8; ++part) {
        const int4* from = sums + (warp * PARTS + part) * 32 + threadIdx.x;
        int4 all[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            all[i] = __ldcs(&from[i * next]);
        }
        const int left = tile_col * BN + part * 8 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = top + e / 2 * 8, column = left + e % 2;
            const double whole = reconstruct([&](auto i) {
                const int4& four = all[i.value];
                return number(residue<MODULI[i.value]>(e == 0 ? four.x : e == 1 ? four.y : e == 2 ? four.z : four.w), 0);
            });
            if (row < m && column < n) {
                c[static_cast<size_t>(row) * n + column] = scaled_back(whole, exponents_a[row], exponents_b[column]);
            }
        }
    }
}
