// The product of R7: a consumer a tile. Batches of residue matrices are multiplied and the sums reduced in registers.
//
// A batch holds PRODUCTS products a modulus, all of the same shape; product q is modulo the (q / PRODUCTS)-th number.

#pragma once

#include "common/tma.cuh"
#include "common/wgmma_int8.cuh"
#include "crt/residues.cuh"

using Element = unsigned char;
constexpr int BM = 128, BN = 192, BK = 128;
constexpr int STAGES = 5;
constexpr int GROUP = 16;     // rows of tiles that are walked together
constexpr int CONSUMERS = 2;  // warpgroups; the producer follows them
constexpr int WARPS = BM / 16;  // parts of 16 rows that a tile's sums are stored in
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int HALVES = BM / 64;  // of a tile: what one wgmma multiplies
constexpr int PARTS = BN / 32;   // 16-byte parts of a thread's residues, of a half

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Barrier full[STAGES], empty[STAGES];
    Barrier turn[CONSUMERS];  // of each consumer: it may begin its next tile
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
extern __shared__ __align__(1024) unsigned char shared_bytes[];

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

// Of one product C[m, n] = A[m, k] B[k, n], PRODUCTS of them a modulus:
// residues_a: PRODUCTS COUNT x [m, pitch]   residues_b: PRODUCTS COUNT x [n, pitch]   any number of blocks of THREADS
// residues: [PRODUCTS COUNT, tile row, tile column, 16 rows, part, lane] of four words; a word has two columns of a row
// and of the eighth row after it, and the next word the same eight columns on
template <int PRODUCTS>
__device__ __forceinline__ void multiply_in_turn(const TensorMap& residues_a, const TensorMap& residues_b,
                                                 uint4* residues, int m, int n, int k) {
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = PRODUCTS * COUNT * rows * cols, blocks = gridDim.x;
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
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next one: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], residues_a, &shared.full[stage], p * BK, tile.product * m + tile.row * BM);
                    tma_load(shared.B[stage], residues_b, &shared.full[stage], p * BK, tile.product * n + tile.col * BN);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int sums[HALVES][BN / 2] = {};
        int first = warpgroup * steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;      // parity of the turn: the first consumer need not wait for its first

        for (int t = blockIdx.x + warpgroup * blocks; t < tiles; t += CONSUMERS * blocks) {
            int stage = first % STAGES, parity = first / STAGES % 2, before = 0;
            const auto release = [&] {
                if (threadIdx.x % 128 == 0) {
                    barrier_arrive(&shared.empty[before]);
                }
            };
            barrier_wait(&shared.turn[warpgroup], begun);
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(shared.A[stage]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 32; ++s) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        constexpr int NEXT_HALF = 64 * BK >> 4;
                        wgmma_int8<BN, Element>(sums[half], a + half * NEXT_HALF + s * NEXT_K32, b + s * NEXT_K32,
                                                p > 0 || s > 0);
                    }
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
            if (lane == 0) {
                barrier_arrive(&shared.turn[warpgroup ^ 1]);
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                wgmma_finish(sums[half]);
            }
            release();

            const Tile tile = tile_at(t, rows, cols);
            const size_t place = (static_cast<size_t>(tile.product) * rows + tile.row) * cols + tile.col;
            const Modulus p = modulus(tile.product / PRODUCTS);
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                uint4* to = residues + (place * WARPS + half * 4 + warp % 4) * PARTS * 32 + lane;
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    const int* d = &sums[half][part * 16];
                    const auto word = [&](int i) {
                        return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                                     residue(d[4 * i + 3], p));
                    };
                    to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
                }
            }
            first += CONSUMERS * steps, begun ^= 1;
        }
    }
}
