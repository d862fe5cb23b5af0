// The product of R16: a consumer a tile, as in in_turn.cuh, but tiles are 208 or 192 columns wide, as many of each as make up
// the columns of C.

#pragma once

#include "common/tma.cuh"
#include "crt/residues.cuh"
#include "crt/wgmma_208.cuh"

using Element = unsigned char;
constexpr int BM = 128, BK = 128;
constexpr int WIDE = 208, NARROW = 192;  // columns of a tile; a step loads WIDE of B for either
constexpr int STAGES = 5;
constexpr int GROUP = 16;         // rows of tiles that are walked together
constexpr int CONSUMERS = 2;      // warpgroups; the producer follows them
constexpr int WARPS = BM / 16;    // parts of 16 rows that a tile's sums are stored in
constexpr int PARTS = WIDE / 16;  // and of 16 columns; a narrow tile leaves the last ones unwritten
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;  // 208 of which are sums
constexpr int HALVES = BM / 64;  // of a tile: what one wgmma multiplies

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][WIDE * BK];
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next tile
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
extern __shared__ __align__(1024) unsigned char shared_bytes[];

// Columns of tiles that C's n columns are cut into: the first ones WIDE, the others NARROW.
struct TileColumns {
    int count, wide;

    __device__ explicit TileColumns(int n) {
        count = (n + WIDE - 1) / WIDE;
        wide = count - min(count, (count * WIDE - n) / (WIDE - NARROW));
    }
    __device__ int start(int col) const { return col * NARROW + min(col, wide) * (WIDE - NARROW); }
    __device__ int width(int col) const { return col < wide ? WIDE : NARROW; }
};

struct Tile {
    int product, row, col;  // row and column counted in tiles
};

// The t-th tile: product by product; groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int i = t / (rows * cols), rest = t % (rows * cols);
    const int group = rest / (GROUP * cols), within = rest % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {i, group * GROUP + within % height, within / height};
}

// d = A B + (add ? d : 0), of 64 rows.
__device__ __forceinline__ void multiply_half(int (&d)[WIDE / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_208(d, a, b, add);
}
__device__ __forceinline__ void multiply_half(int (&d)[NARROW / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_int8<NARROW, Element>(d, a, b, add);
}

// Multiply a tile of BM x WIDTH, let the other consumer begin, and store residues.
// first: the step of this block with which the tile begins   to: residues of this warp's part of the tile, and its lane
template <int WIDTH>
__device__ __forceinline__ void multiply_tile(Shared& shared, int first, int steps, Modulus p, uint2* to) {
    const int warpgroup = threadIdx.x / 128;
    int stage = first % STAGES, parity = first / STAGES % 2, before = 0;
    int sums[HALVES][WIDTH / 2] = {};
    const auto release = [&] {
        if (threadIdx.x % 128 == 0) {
            barrier_arrive(&shared.empty[before]);
        }
    };
    for (int step = 0; step < steps; ++step) {
        barrier_wait(&shared.full[stage], parity);
        const Descriptor a = describe(shared.A[stage]), b = describe(shared.B[stage]);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < BK / 32; ++s) {
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                constexpr int NEXT_HALF = 64 * BK >> 4;
                multiply_half(sums[half], a + half * NEXT_HALF + s * NEXT_K32, b + s * NEXT_K32, step > 0 || s > 0);
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) {
            release();
        }
        before = stage;
        if (++stage == STAGES) {
            stage = 0, parity ^= 1;
        }
    }
    if (threadIdx.x % 32 == 0) {
        barrier_arrive(&shared.turn[warpgroup ^ 1]);
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        wgmma_finish(sums[half]);
    }
    release();

#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int part = 0; part < WIDTH / 16; ++part) {
            const int* d = &sums[half][part * 8];
            const auto word = [&](int i) {
                return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                             residue(d[4 * i + 3], p));
            };
            to[(half * 4 * PARTS + part) * 32] = make_uint2(word(0), word(1));
        }
    }
}

// C[m, n] = A[m, k] B[k, n] modulo each number.
// residues_a: COUNT x [m, pitch]   residues_b: COUNT x [n, pitch]   any number of blocks of THREADS
// residues: [COUNT, tile row, tile column, 16 rows, part, lane] of two words; a word has two columns of a row and of the
// eighth row after it, and the second word the same eight columns on
__device__ __forceinline__ void multiply_in_two_widths(const TensorMap& residues_a, const TensorMap& residues_b,
                                                       uint2* residues, int m, int n, int k) {
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const TileColumns columns(n);
    const int rows = (m + BM - 1) / BM, cols = columns.count, steps = (k + BK - 1) / BK;
    const int tiles = COUNT * rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], 1);
        }
        for (int c = 0; c < CONSUMERS; ++c) {
            barrier_init(&shared.turn[c], 4);  // the other consumer's warps
        }
        barrier_init_fence();
    }
    __syncthreads();

    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            int stage = 0, parity = 0;  // where in the ring, and how often round it
            tma_prefetch(residues_a);
            tma_prefetch(residues_b);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                const int top = tile.product * m + tile.row * BM, left = tile.product * n + columns.start(tile.col);
                for (int step = 0; step < steps; ++step) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next one: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], residues_a, &shared.full[stage], step * BK, top);
                    tma_load(shared.B[stage], residues_b, &shared.full[stage], step * BK, left);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        int first = warpgroup * steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;      // parity of the turn: the first consumer need not wait for its first

        for (int t = blockIdx.x + warpgroup * blocks; t < tiles; t += CONSUMERS * blocks) {
            const Tile tile = tile_at(t, rows, cols);
            const size_t place = (static_cast<size_t>(tile.product) * rows + tile.row) * cols + tile.col;
            uint2* to = residues + (place * WARPS + warp) * PARTS * 32 + lane;
            const Modulus p = modulus(tile.product);
            barrier_wait(&shared.turn[warpgroup], begun);
            if (tile.col < columns.wide) {
                multiply_tile<WIDE>(shared, first, steps, p, to);
            } else {
                multiply_tile<NARROW>(shared, first, steps, p, to);
            }
            first += CONSUMERS * steps, begun ^= 1;
        }
    }
}
