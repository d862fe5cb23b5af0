// The product of R16: as in_turn.cuh, but where no more than 64 columns of C are left, tiles are of 256 x 64.
//
// Such a tile fits the same ring: a step of K has two tiles of A, 32 KB, and 64 rows of B, 8 KB. It takes two thirds of the
// time of a tile of 128 x 192, and replaces two of them.

#pragma once

#include "crt/in_turn.cuh"
#include "crt/wgmma_64.cuh"

constexpr int EDGE = 64;  // columns of a tile at the edge; rows of B that one TMA loads

// C in tiles of 128 x 192, and at its right edge perhaps in tiles of 256 x 64.
struct Tiling {
    int rows, cols, edges;  // rows and columns of tiles of 128 x 192, and tiles at the edge

    __device__ Tiling(int m, int n) {
        const int beyond = n % BN;
        rows = (m + BM - 1) / BM;
        cols = n / BN + (beyond > EDGE);
        edges = beyond > 0 && beyond <= EDGE ? (rows + 1) / 2 : 0;
    }
    __device__ int tiles() const { return rows * cols + edges; }

    // The t-th of all products. At the edge `row` counts tiles of 128 rows, of which it is the first of two.
    __device__ Tile at(int t) const {
        const int i = t / tiles(), rest = t % tiles();
        if (rest >= rows * cols) {
            return {i, (rest - rows * cols) * 2, cols};
        }
        const Tile tile = tile_at(rest, rows, cols);
        return {i, tile.row, tile.col};
    }
    __device__ bool at_edge(const Tile& tile) const { return tile.col == cols; }
};

// d = A B + (add ? d : 0), of 64 rows.
__device__ __forceinline__ void multiply_rows(int (&d)[BN / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_int8<BN, Element>(d, a, b, add);
}
__device__ __forceinline__ void multiply_rows(int (&d)[EDGE / 2], Descriptor a, Descriptor b, bool add) {
    wgmma_64(d, a, b, add);
}

// Multiply a tile of ROWS x COLS, let the other consumer begin, and store residues: of tile rows `tile.row` and, if there is
// one, the next. first: the step of this block with which the tile begins
template <int ROWS, int COLS>
__device__ __forceinline__ void multiply_tile(Shared& shared, const Tile& tile, int first, int steps, int rows, int cols,
                                              uint4* residues) {
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    int stage = first % STAGES, parity = first / STAGES % 2, before = 0;
    int sums[ROWS / 64][COLS / 2] = {};
    const auto release = [&] {
        if (threadIdx.x % 128 == 0) {
            barrier_arrive(&shared.empty[before]);
        }
    };
    for (int p = 0; p < steps; ++p) {
        barrier_wait(&shared.full[stage], parity);
        const Descriptor a = describe(shared.A[stage]), b = describe(shared.B[stage]);
        const Descriptor second = describe(&shared.B[stage][EDGE * BK]);  // of two tiles of A
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < BK / 32; ++s) {
#pragma unroll
            for (int half = 0; half < ROWS / 64; ++half) {
                constexpr int NEXT_HALF = 64 * BK >> 4;
                const Descriptor of_a = (half < HALVES ? a : second) + half % HALVES * NEXT_HALF;
                multiply_rows(sums[half], of_a + s * NEXT_K32, b + s * NEXT_K32, p > 0 || s > 0);
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
    for (int half = 0; half < ROWS / 64; ++half) {
        wgmma_finish(sums[half]);
    }
    release();

    const Modulus p = modulus(tile.product);
#pragma unroll
    for (int half = 0; half < ROWS / 64; ++half) {
        const int row = tile.row + half / HALVES;
        if (half < HALVES || row < rows) {
            const size_t place = (static_cast<size_t>(tile.product) * rows + row) * cols + tile.col;
            uint4* to = residues + (place * WARPS + half % HALVES * 4 + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < COLS / 32; ++part) {
                const int* d = &sums[half][part * 16];
                const auto word = [&](int i) {
                    return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                                 residue(d[4 * i + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    }
}

// C[m, n] = A[m, k] B[k, n] modulo each number. Shapes: in_turn.cuh; a TMA loads EDGE rows of B
__device__ __forceinline__ void multiply_to_the_edge(const TensorMap& residues_a, const TensorMap& residues_b,
                                                     uint4* residues, int m, int n, int k) {
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const Tiling tiling(m, n);
    const int tiles = COUNT * tiling.tiles(), blocks = gridDim.x, steps = (k + BK - 1) / BK, cols = (n + BN - 1) / BN;
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
                const Tile tile = tiling.at(t);
                const int top = tile.product * m + tile.row * BM, left = tile.product * n + tile.col * BN;
                const bool edge = tiling.at_edge(tile);
                for (int p = 0; p < steps; ++p) {
                    Barrier* full = &shared.full[stage];
                    Element* b = shared.B[stage];
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(full, sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next one: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], residues_a, full, p * BK, top);
                    tma_load(b, residues_b, full, p * BK, left);
                    if (edge) {
                        tma_load(b + EDGE * BK, residues_a, full, p * BK, top + BM);
                    } else {
                        tma_load(b + EDGE * BK, residues_b, full, p * BK, left + EDGE);
                        tma_load(b + 2 * EDGE * BK, residues_b, full, p * BK, left + 2 * EDGE);
                    }
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        int first = warpgroup * steps;  // the step of this block with which the next tile begins
        int begun = warpgroup ^ 1;      // parity of the turn: the first consumer need not wait for its first

        for (int t = blockIdx.x + warpgroup * blocks; t < tiles; t += CONSUMERS * blocks) {
            const Tile tile = tiling.at(t);
            barrier_wait(&shared.turn[warpgroup], begun);
            if (tiling.at_edge(tile)) {
                multiply_tile<2 * BM, EDGE>(shared, tile, first, steps, tiling.rows, cols, residues);
            } else {
                multiply_tile<BM, BN>(shared, tile, first, steps, tiling.rows, cols, residues);
            }
            first += CONSUMERS * steps, begun ^= 1;
        }
    }
}
