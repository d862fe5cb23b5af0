// A product whose consumers share a tile of 256 x 192, in clusters of two that share B, in step with each other.
//
// What a step of BK along K takes, per block: into shared memory 56 KB, for 80 KB in level R7 (two tiles of 128 x 192);
// from the L2 44 KB, since each block of a cluster loads half of their tile of B for both. In return both consumers end a
// tile at about the same time, so the tensor cores wait for their epilogues.
//
// Include it after listed.cuh, or after lockstep.cuh: both declare the half of such a tile, BM x BN, and how it is stored.

#pragma once

#include "common/tma.cuh"

constexpr int CLUSTER = 2;           // blocks, one above the other, that share tiles of B
constexpr int TALL = CONSUMERS * BM;  // rows of a block's tile; each consumer has BM
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for both
constexpr int TALL_STAGES = 4;

struct TallShared {
    Element A[TALL_STAGES][TALL * BK];
    Element B[TALL_STAGES][BN * BK];
    Barrier full[TALL_STAGES], empty[TALL_STAGES];
};
static_assert(sizeof(TallShared) <= 227 * 1024, "a block's shared memory");

struct TallTile {
    int product, row, col;  // row and column counted in tiles
};

// The t-th tile: product by product; groups of GROUP rows, in a group column by column. Of an even number of rows, so that
// tiles 2 i and 2 i + 1 stand one above the other.
__device__ __forceinline__ TallTile tall_tile_at(int t, int rows, int cols) {
    const int i = t / (rows * cols), rest = t % (rows * cols);
    const int group = rest / (GROUP * cols), within = rest % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {i, group * GROUP + within % height, within / height};
}

// Residues of a consumer's sums. to: of its tile of BM x BN and its warp
__device__ __forceinline__ void store_residues(const int (&sums)[HALVES][BN / 2], uint4* to, Modulus p) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int* d = &sums[half][part * 16];
            const auto word = [&](int i) {
                return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                             residue(d[4 * i + 3], p));
            };
            to[(half * 4 * PARTS + part) * 32] = make_uint4(word(0), word(1), word(2), word(3));
        }
    }
}

// `products` of C[m, n] = A[m, k] B[k, n], PER of them a modulus: product q is modulo the (q / PER)-th number.
// left: products x [m, pitch]   right: products x [n, pitch]   any number of clusters of blocks of THREADS
// residues: [products, tile row, tile column, 16 rows, part, lane], of tiles of BM x BN, as in_turn.cuh has them
// Pace, meeting: as lockstep.cuh has them
template <int PER, class Pace, class Meeting>
__device__ __forceinline__ void multiply_shared(const TensorMap& left, const TensorMap& right, Meeting* meeting,
                                                uint4* residues, int products, int m, int n, int k) {
    TallShared& shared = *reinterpret_cast<TallShared*>(shared_bytes);
    const int cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int rows = (m + CLUSTER * TALL - 1) / (CLUSTER * TALL) * CLUSTER;  // the last may lie below C
    const int tiles = products * rows * cols, blocks = gridDim.x, rank = cluster_rank();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < TALL_STAGES; ++s) {
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
            Pace pace{meeting, tiles / blocks * steps};
            int loaded = 0;
            tma_prefetch(left);
            tma_prefetch(right);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const TallTile tile = tall_tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    pace.before(loaded++);
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next one: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], left, &shared.full[stage], p * BK, tile.product * m + tile.row * TALL);
                    tma_load_multicast(&shared.B[stage][rank * SHARE * BK], right, &shared.full[stage], p * BK,
                                       tile.product * n + tile.col * BN + rank * SHARE, (1 << CLUSTER) - 1);
                    if (++stage == TALL_STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
            pace.end();
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int stored_rows = (m + BM - 1) / BM;
        int sums[HALVES][BN / 2] = {};
        int before = 0;  // the stage of the step before
        const auto release = [&] {
            if (threadIdx.x % 128 < CLUSTER) {
                barrier_arrive_at(&shared.empty[before], threadIdx.x % 128);
            }
        };
        for (int t = blockIdx.x; t < tiles; t += blocks) {
            for (int p = 0; p < steps; ++p) {
                barrier_wait(&shared.full[stage], parity);
                const Descriptor a = describe(&shared.A[stage][warpgroup * BM * BK]), b = describe(shared.B[stage]);
                wgmma_fence();
#pragma unroll
                for (int s = 0; s < BK / 32; ++s) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        constexpr int NEXT_HALF = 64 * BK >> 4;
                        multiply_half(sums[half], a + half * NEXT_HALF + s * NEXT_K32, b + s * NEXT_K32, p > 0 || s > 0);
                    }
                }
                wgmma_commit();
                wgmma_wait<1>();
                if (p > 0) {
                    release();
                }
                before = stage;
                if (++stage == TALL_STAGES) {
                    stage = 0, parity ^= 1;
                }
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                wgmma_finish(sums[half]);
            }
            release();

            const TallTile tile = tall_tile_at(t, rows, cols);
            const int row = tile.row * CONSUMERS + warpgroup;
            if (row < stored_rows) {
                const size_t at = (static_cast<size_t>(tile.product) * stored_rows + row) * cols + tile.col;
                store_residues(sums, residues + (at * WARPS + warp) * PARTS * 32 + lane, modulus(tile.product / PER));
            }
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}
