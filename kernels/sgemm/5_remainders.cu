// Level S5: remainders.
//
// New:        integers instead of slices. Rows of A and columns of B are scaled by powers of two and rounded to integers;
//             one INT8 product a modulus gives C modulo each of 8 numbers, from which it is put together. The product is
//             that of kernels/crt, level R7: a consumer a tile, sums reduced in registers.
// Parameters: tiles of 128 x 192, steps of 128 of k, 5 stages of 40 KB; 8 moduli, or 7.
// Expected:   8 products at four times the TF32 rate cost what two of TF32 do. An error by norms of rows and columns, not
//             element by element: far below SGEMM's where a line's elements are of like size.
// Takes:      any m and n, k up to 2^16, alpha and beta.

#include "crt/listed.cuh"
#include "sgemm/remainders.cuh"

// x: [lines, k], rows ld apart   exponents: [lines]   residues: COUNT x [lines, pitch]   grid: lines   block: 256
extern "C" __global__ void __launch_bounds__(256)
row_residues(const float* x, int ld, int* exponents, signed char* residues, int lines, int k) {
    __shared__ double warps[8];
    const float* line = x + static_cast<size_t>(blockIdx.x) * ld;
    double squares = 0.0;
    for (int quad = threadIdx.x; quad < (k + 3) / 4; quad += blockDim.x) {
        float four[4];
        load_quad(four, line, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            squares = fma(static_cast<double>(four[i]), static_cast<double>(four[i]), squares);
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        squares += __shfl_xor_sync(~0u, squares, step);
    }
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = squares;
    }
    __syncthreads();
    squares = 0.0;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        squares += warps[w];
    }
    const int e = exponent(squares, k);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = e;
    }
    const Scale s = scale(e);
    Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += blockDim.x) {
        float four[4];
        load_quad(four, line, quad, k);
        const int whole[4] = {integer(four[0], s), integer(four[1], s), integer(four[2], s), integer(four[3], s)};
        store_residues(whole, to + quad, static_cast<size_t>(lines) * pitch(k) / 4);
    }
}

// Sums of squares of CHUNK elements of 32 columns. x: [k, lines], rows ld apart   squares: [k / CHUNK, lines]
// grid: (lines / 32, k / CHUNK), rounded up   block: 256
extern "C" __global__ void __launch_bounds__(256)
column_squares(const float* x, int ld, double* squares, int lines, int k) {
    __shared__ double rows[8][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    double sum = 0.0;
    if (column < lines) {
        const int end = min(k, (static_cast<int>(blockIdx.y) + 1) * CHUNK);
#pragma unroll 4
        for (int h = blockIdx.y * CHUNK + warp; h < end; h += 8) {
            const double value = x[static_cast<size_t>(h) * ld + column];
            sum = fma(value, value, sum);
        }
    }
    rows[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < lines) {
        for (int w = 1; w < 8; ++w) {
            sum += rows[w][lane];
        }
        squares[static_cast<size_t>(blockIdx.y) * lines + column] = sum;
    }
}

// As row_residues, of columns. grid: (lines / 32, pitch / DEPTH), rounded up   block: 256
extern "C" __global__ void __launch_bounds__(256)
column_residues(const float* x, int ld, const double* squares, int* exponents, signed char* residues, int lines, int k) {
    __shared__ Turned tile;
    __shared__ int chosen[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32, depth = blockIdx.y * DEPTH;
    if (warp == 0 && first + lane < lines) {
        double sum = 0.0;
        for (int chunk = 0; chunk * CHUNK < k; ++chunk) {
            sum += squares[static_cast<size_t>(chunk) * lines + first + lane];
        }
        chosen[lane] = exponent(sum, k);
        if (blockIdx.y == 0) {
            exponents[first + lane] = chosen[lane];
        }
    }
    turn(tile, x, ld, first, depth, lines, k);
    __syncthreads();
    if (depth + 4 * lane < pitch(k)) {
        for (int c = warp; c < min(32, lines - first); c += 8) {
            const float4 four = *reinterpret_cast<const float4*>(&tile.column[c][4 * lane]);
            const Scale s = scale(chosen[c]);
            const int whole[4] = {integer(four.x, s), integer(four.y, s), integer(four.z, s), integer(four.w, s)};
            signed char* to = residues + static_cast<size_t>(first + c) * pitch(k) + depth;
            store_residues(whole, reinterpret_cast<Word*>(to) + lane, static_cast<size_t>(lines) * pitch(k) / 4);
        }
    }
}

// residues_a: COUNT x [m, pitch]   residues_b: COUNT x [n, pitch]   grid: any number of blocks   block: THREADS
// residues: [COUNT, tile row, tile column, 16 rows, part, lane] of four words, as in crt/in_turn.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const auto place = [&](int t) -> Corner {
        const int i = t / (rows * cols);
        const Tile tile = tile_at(t % (rows * cols), rows, cols);
        return {i * m + tile.row * BM, i * n + tile.col * BN};
    };
    const auto finish = [&](const int (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const int i = t / (rows * cols);
        const Tile tile = tile_at(t % (rows * cols), rows, cols);
        const size_t at = (static_cast<size_t>(i) * rows + tile.row) * cols + tile.col;
        const Modulus p = modulus(i);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            uint4* to = residues + (at * WARPS + half * 4 + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[half][part * 16];
                const auto word = [&](int j) {
                    return bytes(residue(d[4 * j], p), residue(d[4 * j + 1], p), residue(d[4 * j + 2], p),
                                 residue(d[4 * j + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    };
    walk_in_turn<int>(residues_a, residues_b, COUNT * rows * cols, steps, place, finish);
}

// C: [m, n], rows ldc apart   grid: PARTS * tiles   block: 256, a warp for 16 rows of a tile
extern "C" __global__ void __launch_bounds__(256)
reconstruct(const uint4* residues, const int* exponents_a, const int* exponents_b, float* c, int ldc, int m, int n,
            float alpha, float beta) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const int tile_row = place / cols, tile_col = place % cols;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t next = static_cast<size_t>(gridDim.x) * WARPS * 32;  // to the next modulus
    const uint4* from = residues + (static_cast<size_t>(place) * WARPS + warp) * PARTS * 32 + part * 32 + lane;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = tile_row * BM + warp * 16 + lane / 4;
    const bool aligned = ldc % 2 == 0 && reinterpret_cast<size_t>(c) % 8 == 0;
    int s[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        s[r] = top + 8 * r < m ? exponents_a[top + 8 * r] : 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_eight(all, half, high, low);
        const int left = tile_col * BN + part * 32 + half * 16 + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < 8; e += 2) {  // pairs of neighbours
            const int r = e / 2 % 2, row = top + 8 * r, column = left + e / 4 * 8;
            if (row < m && column < n) {
                const bool both = column + 1 < n;
                float* to = c + static_cast<size_t>(row) * ldc + column;
                const float one = finished(settle(high[e], low[e]), s[r], exponents_b[column], alpha, beta, to);
                float other = 0.0f;
                if (both) {
                    other = finished(settle(high[e + 1], low[e + 1]), s[r], exponents_b[column + 1], alpha, beta, to + 1);
                }
                store_pair(to, one, other, both, aligned);
            }
        }
    }
}
