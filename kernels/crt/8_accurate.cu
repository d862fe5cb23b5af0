// Level R8: the accurate mode, exponents from a product.
//
// New:        instead of norms, one INT8 product more says how far rows of A and columns of B may be scaled: of magnitudes
//             rounded up to 7 bits, its row and column maxima found in its epilogue (coarse.cuh). Where a row's large
//             elements meet small ones of the columns, norms leave bits unused that this finds.
// Parameters: as level R4.
// Bytes:      A and B are read twice, as before, and a byte an element of either is written and read besides.
// Expected:   16 products for 15: 6% slower than R6. Errors as R6's for elements of like size, smaller by what
//             ||a_i|| ||b_j|| exceeds |A||B| where exponents spread.
// Takes:      as level R5. 15 moduli at most: a scaled integer may be 8 times as large as with norms.

#define UNSIGNED 1

#include "common/tma.cuh"
#include "common/wgmma_int8.cuh"
#include "crt/coarse.cuh"
#include "crt/eight.cuh"
#include "crt/rows.cuh"

using Element = unsigned char;
constexpr int BM = 128, BN = 256, BK = 128;
constexpr int STAGES = 4;
constexpr int GROUP = 8;            // rows of a cluster's tiles that are walked together
constexpr int CLUSTER = 2;          // blocks, one above the other, that share tiles of B
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int PARTS = BN / 32;  // 16-byte parts of a thread's residues

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Tile {
    int modulus, row, col;  // row and column counted in tiles of a cluster
};

// The t-th tile: modulus by modulus; groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int i = t / (rows * cols), rest = t % (rows * cols);
    const int group = rest / (GROUP * cols), within = rest % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {i, group * GROUP + within % height, within / height};
}

// Walk the tiles of `count` products of [m, k] and [n, k]; `finish` gets each tile's sums.
template <class Finish>
__device__ __forceinline__ void walk(const TensorMap& left, const TensorMap& right, int count, int m, int n, int k,
                                     const Finish& finish) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM), cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = count * rows * cols, rank = cluster_rank();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CLUSTER * CONSUMERS);
        }
        barrier_init_fence();
    }
    cluster_sync();  // nobody's engine writes here before the barriers are ready

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            tma_prefetch(left);
            tma_prefetch(right);
            for (int t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next modulus's: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], left, &shared.full[stage], p * BK,
                             tile.modulus * m + (tile.row * CLUSTER + rank) * BM);
                    tma_load_multicast(&shared.B[stage][rank * SHARE * BK], right, &shared.full[stage], p * BK,
                                       tile.modulus * n + tile.col * BN + rank * SHARE, (1 << CLUSTER) - 1);
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
            if (threadIdx.x % 128 < CLUSTER) {
                barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
            }
        };
        for (int t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
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
            finish(sums, tile.modulus, tile.row * CLUSTER + rank, tile.col, warp, lane);
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}

// coarse_a: [m, pitch]   coarse_b: [n, pitch]   peaks: of the product's rows and columns, zero before
// grid: any number of clusters   block: THREADS
extern "C" __global__ void __launch_bounds__(THREADS, 1)
find_peaks(const __grid_constant__ TensorMap coarse_a, const __grid_constant__ TensorMap coarse_b, int* peaks_a,
           int* peaks_b, int m, int n, int k) {
    const auto finish = [&](const int (&sums)[BN / 2], int, int tile_row, int tile_col, int warp, int lane) {
        // Maxima do not depend on the order in which they are taken, so neither does the result.
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            int most = 0;
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                most = max(most, max(sums[4 * j + 2 * below], sums[4 * j + 2 * below + 1]));
            }
            most = max(most, __shfl_xor_sync(~0u, most, 1));
            most = max(most, __shfl_xor_sync(~0u, most, 2));
            const int row = tile_row * BM + warp * 16 + below * 8 + lane / 4;
            if (lane % 4 == 0 && row < m) {
                atomicMax(&peaks_a[row], most);
            }
        }
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
#pragma unroll
            for (int right = 0; right < 2; ++right) {
                int most = max(sums[4 * j + right], sums[4 * j + 2 + right]);
#pragma unroll
                for (int step = 4; step < 32; step *= 2) {
                    most = max(most, __shfl_xor_sync(~0u, most, step));
                }
                const int column = tile_col * BN + 8 * j + lane % 4 * 2 + right;
                if (lane < 4 && column < n) {
                    atomicMax(&peaks_b[column], most);
                }
            }
        }
    };
    walk(coarse_a, coarse_b, 1, m, n, k, finish);
}

// residues_a: COUNT x [m, pitch]   residues_b: COUNT x [n, pitch]   grid: any number of clusters   block: THREADS
// residues: [COUNT, tile row, tile column, warp, part, lane] of four words; a word has two columns of a row and of the
// eighth row after it, and the next word the same eight columns on
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    const size_t rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM) * CLUSTER, cols = (n + BN - 1) / BN;
    const auto finish = [&](const int (&sums)[BN / 2], int i, int tile_row, int tile_col, int warp, int lane) {
        const size_t place = (i * rows + tile_row) * cols + tile_col;
        const Modulus p = modulus(i);
        uint4* to = residues + (place * (4 * CONSUMERS) + warp) * PARTS * 32 + lane;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int* d = &sums[part * 16];
            const auto word = [&](int w) {
                return bytes(residue(d[4 * w], p), residue(d[4 * w + 1], p), residue(d[4 * w + 2], p),
                             residue(d[4 * w + 3], p));
            };
            to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
        }
    };
    walk(residues_a, residues_b, COUNT, m, n, k, finish);
}

// grid: PARTS * tiles   block: (32, 8): a warp's lanes, the warps that a tile's residues came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct_residues(const uint4* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const int tile_row = place / cols, tile_col = place % cols;
    const size_t next = static_cast<size_t>(gridDim.x) * (4 * CONSUMERS) * 32;  // to the next modulus
    const size_t warp = static_cast<size_t>(place) * (4 * CONSUMERS) + threadIdx.y;
    const uint4* from = residues + (warp * PARTS + part) * 32 + threadIdx.x;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = tile_row * BM + threadIdx.y * 16 + threadIdx.x / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_eight(all, half, high, low);
        const int left = tile_col * BN + part * 32 + half * 16 + threadIdx.x % 4 * 2;
        write_eight(high, low, top, left, exponents_a, exponents_b, c, m, n);
    }
}
