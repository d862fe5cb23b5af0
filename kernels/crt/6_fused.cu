// Level R6: one pass over A, and a reconstruction that loads its constants once for eight elements.
//
// New:        a block keeps its row of A in shared memory between the norm and the residues, so A is read once. And the
//             reconstruction goes through the moduli with eight elements at a time: the two halves of a weight are
//             loaded once for them. Where no exponent is extreme, C' is scaled back by two multiplications that round
//             nothing instead of by cases.
// Parameters: as level R4; ROW doubles fit, longer rows are read twice.
// Bytes:      of n x n: 8 n^2 read and COUNT n^2 written for A, 16 n^2 read and COUNT n^2 written for B, COUNT n^2 written
//             by the product and read by the reconstruction, 8 n^2 written.
// Expected:   of 8192: 0.54 GB less to read, 0.13 ms; the reconstruction at the speed of memory, 0.36 ms for 0.53.
// Takes:      as level R5.

#define UNSIGNED 1

#include "common/tma.cuh"
#include "common/wgmma_int8.cuh"
#include "crt/columns.cuh"
#include "crt/eight.cuh"

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

// residues_a: COUNT x [m, pitch]   residues_b: COUNT x [n, pitch]   grid: any number of clusters   block: THREADS
// residues: [COUNT, tile row, tile column, warp, part, lane] of four words; a word has two columns of a row and of the
// eighth row after it, and the next word the same eight columns on
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM), cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int tiles = COUNT * rows * cols, rank = cluster_rank();
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
            tma_prefetch(residues_a);
            tma_prefetch(residues_b);
            for (int t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    // Below a matrix stands the next modulus's: what is multiplied there belongs to no element of C.
                    tma_load(shared.A[stage], residues_a, &shared.full[stage], p * BK,
                             tile.modulus * m + (tile.row * CLUSTER + rank) * BM);
                    tma_load_multicast(&shared.B[stage][rank * SHARE * BK], residues_b, &shared.full[stage], p * BK,
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
            const size_t row = (static_cast<size_t>(tile.modulus) * rows + tile.row) * CLUSTER + rank;
            const size_t place = row * cols + tile.col;
            const Modulus p = modulus(tile.modulus);
            uint4* to = residues + (place * (4 * CONSUMERS) + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[part * 16];
                const auto word = [&](int i) {
                    return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                                 residue(d[4 * i + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}

constexpr int ROW = 24 * 1024;  // numbers of a row that are kept in shared memory

// A: [m, k]   residues: COUNT x [m, pitch]   grid: m   block: 512   shared memory: a row, if it fits
extern "C" __global__ void __launch_bounds__(512) row_pass(const double* a, int* exponents, signed char* residues, int m,
                                                           int k) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    __shared__ int chosen;
    double2* const kept = reinterpret_cast<double2*>(shared_bytes);  // left halves of the quads, then right halves
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    const int quads = pitch(k) / 4;
    const bool keeps = k <= ROW;
    Norm norm{};
    for (int quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            include(norm, x[i]);
        }
        if (keeps) {
            kept[quad] = make_double2(x[0], x[1]);
            kept[quads + quad] = make_double2(x[2], x[3]);
        }
    }
    norm = over_block(norm);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = chosen = exponent(norm, k);
    }
    __syncthreads();
    const Scale s = scale(chosen);
    Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        double x[4];
        if (keeps) {  // each thread reads what it wrote itself
            const double2 left = kept[quad], right = kept[quads + quad];
            x[0] = left.x, x[1] = left.y, x[2] = right.x, x[3] = right.y;
        } else {
            load_quad(x, row, quad, k);
        }
        const Integer whole[4] = {integer(x[0], s), integer(x[1], s), integer(x[2], s), integer(x[3], s)};
        store_residues(whole, to + quad, static_cast<size_t>(m) * pitch(k) / 4);
    }
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
