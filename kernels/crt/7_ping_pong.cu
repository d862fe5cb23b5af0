// Level R7: a consumer a tile.
//
// New:        as in level H12 one consumer multiplies a whole tile, now of 128 x 192, while the other reduces and stores the
//             one before, so the tensor cores never wait for an epilogue. No clusters: requests of neighbours for one
//             line are joined on their way to the L2.
// Parameters: a tile of 128 x 192 a consumer, steps of 128 bytes along K, 5 stages of 40 KB; GROUP 16 tiles.
// Expected:   no epilogue (6% of the product at 4096, 3% at 8192) against 0.8 to 3% of tiles that reach beyond C.
// Takes:      as level R5.

#define UNSIGNED 1

#include "common/tma.cuh"
#include "common/wgmma_int8.cuh"
#include "crt/columns.cuh"
#include "crt/reconstruction.cuh"

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
// residues: [COUNT, tile row, tile column, 16 rows, part, lane] of four words; a word has two columns of a row and of
// the eighth row after it, and the next word the same eight columns on
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
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
            const size_t place = (static_cast<size_t>(tile.modulus) * rows + tile.row) * cols + tile.col;
            const Modulus p = modulus(tile.modulus);
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

// grid: (PARTS * tile columns, tile rows)   block: (32, 8): a warp's lanes, the warps that a tile's residues came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct_residues(const uint4* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int rows = gridDim.y, cols = (n + BN - 1) / BN, tile_col = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const size_t place = static_cast<size_t>(blockIdx.y) * cols + tile_col;
    const size_t next = static_cast<size_t>(rows) * cols * WARPS * PARTS * 32;  // to the next modulus
    const uint4* from = residues + (place * WARPS + threadIdx.y) * PARTS * 32 + part * 32 + threadIdx.x;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = blockIdx.y * BM + threadIdx.y * 16 + threadIdx.x / 4;
    int s[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        s[r] = top + 8 * r < m ? exponents_a[top + 8 * r] : 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_eight(all, half, high, low);
        const int left = tile_col * BN + part * 32 + half * 16 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int e = 0; e < 8; e += 2) {  // pairs of neighbours
            const int r = e / 2 % 2, row = top + 8 * r, column = left + e / 4 * 8;
            if (row < m && column < n) {
                const bool both = column + 1 < n;
                const int t = exponents_b[column], u = both ? exponents_b[column + 1] : 0;
                double one = settle(high[e], low[e]), other = settle(high[e + 1], low[e + 1]);
                if (max(abs(s[r]), max(abs(t), abs(u))) <= 450 && s[r] != SPOILED && t != SPOILED && u != SPOILED) {
                    // |C'| < 2^126: nothing overflows on the way, nothing is lost below.
                    one = one * power(1023 - s[r]) * power(1023 - t);
                    other = other * power(1023 - s[r]) * power(1023 - u);
                } else {
                    one = scaled_back(one, s[r], t);
                    other = scaled_back(other, s[r], u);
                }
                double* to = c + static_cast<size_t>(row) * n + column;
                if (n % 2 == 0) {
                    __stcs(reinterpret_cast<double2*>(to), make_double2(one, other));
                } else {
                    to[0] = one;
                    if (both) {
                        to[1] = other;
                    }
                }
            }
        }
    }
}
