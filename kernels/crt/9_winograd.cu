// Level R9: seven products for eight.
//
// New:        A, B and C are cut in 2 x 2 blocks, and Winograd's form of Strassen's step makes C's blocks from seven
//             products of sums of blocks. What such sums cost in floating point, they do not cost here: modulo a number
//             they are exact, so C is what level R7 makes of it, for 7/8 of the tensor cores' work.
// Parameters: as level R7, for matrices of half the rows, columns and depth, seven a modulus.
// Expected:   7/8 of the product; residues of seven blocks for four are written (7/4 of the bytes, twice) and read (once):
//             at 16384 with 16 moduli 12 ms less of 97, and 3 ms more of 7.
// Takes:      any m, n and k up to 2^17. Odd halves are filled up with zeros.

#define UNSIGNED 1

#include "crt/columns.cuh"
#include "crt/in_turn.cuh"
#include "crt/reconstruction.cuh"
#include "crt/winograd.cuh"

// Rows of A, columns of B and depth of the blocks on the left and on top; an even number of columns, for C is stored
// two by two.
__device__ __forceinline__ int half_rows(int m) {
    return (m + 1) / 2;
}
__device__ __forceinline__ int half_columns(int n) {
    return (n + 3) / 4 * 2;
}
__device__ __forceinline__ int half_depth(int k) {
    return pitch((k + 1) / 2);
}

constexpr int QUARTERS = 4;  // of a tile's 16 rows: what a warp reconstructs, a word a lane

// A: [m, k]   factors: 7 COUNT x [half of m, half of k]   grid: half of m   block: 512
// A block has a row of the upper half and one of the lower; it reads them once for their norms and once more, then from
// the L2, for their residues.
extern "C" __global__ void __launch_bounds__(512, 2) row_factors(const double* a, int* exponents, signed char* factors,
                                                                 int m, int k) {
    __shared__ int chosen[2];
    const int rows = half_rows(m), quads = half_depth(k) / 4;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        const int row = blockIdx.x + half * rows;
        Norm norm{};
        for (int quad = threadIdx.x; row < m && quad < 2 * quads; quad += blockDim.x) {
            double x[4];
            load_quad(x, a + static_cast<size_t>(row) * k, quad, k);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                include(norm, x[i]);
            }
        }
        norm = over_block(norm);
        if (threadIdx.x == 0) {
            chosen[half] = exponent(norm, k);
            if (row < m) {
                exponents[row] = chosen[half];
            }
        }
        __syncthreads();
    }
    Word* to = reinterpret_cast<Word*>(factors) + static_cast<size_t>(blockIdx.x) * quads;
    for (int quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        Integer whole[4][4];  // block of A, neighbour
#pragma unroll
        for (int block = 0; block < 4; ++block) {
            const int row = blockIdx.x + block / 2 * rows;
            double x[4] = {};
            if (row < m) {
                load_quad(x, a + static_cast<size_t>(row) * k, quad + block % 2 * quads, k);
            }
            const Scale s = scale(chosen[block / 2]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                whole[block][i] = integer(x[i], s);
            }
        }
        store_factors<true>(whole, to + quad, static_cast<size_t>(rows) * quads);
    }
}

constexpr int SOME = 16, HALF_DEPTH = 128;  // columns and rows of each block of B that a block of threads turns round
using Turned = double[SOME][HALF_DEPTH + 2];

// B: [k, n]   factors: 7 COUNT x [half of n, half of k], K-major   grid: (columns / SOME, depth / HALF_DEPTH) of a half,
// rounded up   block: 512   shared memory: four Turned
extern "C" __global__ void __launch_bounds__(512, 2) column_factors(const double* b, const int* exponents,
                                                                    signed char* factors, int n, int k) {
    Turned* const tile = reinterpret_cast<Turned*>(shared_bytes);  // of the blocks 11, 12, 21, 22
    const int columns = half_columns(n), depths = half_depth(k);
    const int column = blockIdx.x * SOME, depth = blockIdx.y * HALF_DEPTH;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
        const int within = threadIdx.x % SOME, from = column + within + block % 2 * columns;
        const int top = depth + block / 2 * depths;
#pragma unroll
        for (int h = threadIdx.x / SOME; h < HALF_DEPTH; h += 512 / SOME) {
            tile[block][within][h] = top + h < k && from < n ? b[static_cast<size_t>(top + h) * n + from] : 0.0;
        }
    }
    __syncthreads();
    const int c = threadIdx.x / 32, quad = threadIdx.x % 32;  // a warp has a column
    if (column + c < columns && depth + 4 * quad < depths) {
        const int other = columns + column + c;
        const Scale t[2] = {scale(column + c < n ? exponents[column + c] : 0), scale(other < n ? exponents[other] : 0)};
        Integer whole[4][4];
#pragma unroll
        for (int block = 0; block < 4; ++block) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                whole[block][i] = integer(tile[block][c][4 * quad + i], t[block % 2]);
            }
        }
        signed char* to = factors + static_cast<size_t>(column + c) * depths + depth;
        store_factors<false>(whole, reinterpret_cast<Word*>(to) + quad, static_cast<size_t>(columns) * depths / 4);
    }
}

// Seven products a modulus, of blocks. Shapes: in_turn.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap factors_a, const __grid_constant__ TensorMap factors_b, uint4* residues,
         int m, int n, int k) {
    multiply_in_turn<PRODUCTS>(factors_a, factors_b, residues, half_rows(m), half_columns(n), half_depth(k));
}

// grid: QUARTERS PARTS * tiles of a block of C   block: (32, 8): lanes, and the warps that a tile's
// residues came from. A lane has a word: two columns of a row and of the eighth row after it, in each of C's blocks.
extern "C" __global__ void __launch_bounds__(256, 2)
reconstruct_blocks(const Word* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int half_m = half_rows(m), half_n = half_columns(n);
    const int cols = (half_n + BN - 1) / BN, place = blockIdx.x / (QUARTERS * PARTS);
    const int tile_row = place / cols, tile_col = place % cols;
    const int part = blockIdx.x / QUARTERS % PARTS, quarter = blockIdx.x % QUARTERS;
    const size_t next = static_cast<size_t>(gridDim.x) * WARPS * 32;  // words to the next product
    const size_t warp = static_cast<size_t>(place) * WARPS + threadIdx.y;
    const Word* from = residues + warp * PARTS * 128 + part * 128 + quarter * 32 + threadIdx.x;
    double high[4][4] = {}, low[4][4] = {};
    weigh_blocks([&](int i) { return __ldcs(&from[i * next]); }, high, low);

    const int lane = quarter * 8 + threadIdx.x / 4;  // of the product's warp
    const int top = tile_row * BM + threadIdx.y * 16 + lane / 4;
    const int left = tile_col * BN + part * 32 + threadIdx.x % 4 * 8 + lane % 4 * 2;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
        const int column = left + block % 2 * half_n;
        if (left >= half_n || column >= n) {
            continue;
        }
        const bool both = column + 1 < n;
        const int t = exponents_b[column], u = both ? exponents_b[column + 1] : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int within = top + 8 * r, row = within + block / 2 * half_m;
            if (within >= half_m || row >= m) {
                continue;
            }
            const int s = exponents_a[row];
            const double one = scaled_back(settle(high[block][2 * r], low[block][2 * r]), s, t);
            const double other = scaled_back(settle(high[block][2 * r + 1], low[block][2 * r + 1]), s, u);
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
