// B [k, n], row-major, to exponents of its columns and residues: COUNT matrices [n, pitch(k)], K-major.
//
// Norms need all of B before the first residue can be had, and columns do not fit a multiprocessor as rows do: B is read
// twice. Norms are summed in chunks of K side by side, which are joined in a fixed order.

#pragma once

#include "crt/residues.cuh"

constexpr int CHUNK = 256;  // rows of B that a block looks at for the norms of its 32 columns
constexpr int DEPTH = 128;  // rows of B that a block turns round, for 32 columns

// grid: (n / 32, k / CHUNK), rounded up   block: (32, 8)   norms: [k / CHUNK, n]
extern "C" __global__ void __launch_bounds__(256) column_norms(const double* b, Norm* norms, int n, int k) {
    __shared__ Norm rows[8][32];
    const int column = blockIdx.x * 32 + threadIdx.x;
    Norm norm{};
    if (column < n) {
        const int end = min(k, (static_cast<int>(blockIdx.y) + 1) * CHUNK);
#pragma unroll 4
        for (int h = blockIdx.y * CHUNK + threadIdx.y; h < end; h += 8) {
            include(norm, b[static_cast<size_t>(h) * n + column]);
        }
    }
    rows[threadIdx.y][threadIdx.x] = norm;
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        for (int w = 1; w < 8; ++w) {
            norm = join(norm, rows[w][threadIdx.x]);
        }
        norms[static_cast<size_t>(blockIdx.y) * n + column] = norm;
    }
}

// grid: n / 128, rounded up   block: 128
extern "C" __global__ void __launch_bounds__(128) column_exponents(const Norm* norms, int* exponents, int n, int k) {
    const int column = blockIdx.x * 128 + threadIdx.x;
    if (column < n) {
        Norm norm = norms[column];
        for (int chunk = 1; chunk * CHUNK < k; ++chunk) {
            norm = join(norm, norms[static_cast<size_t>(chunk) * n + column]);
        }
        exponents[column] = exponent(norm, k);
    }
}

// A tile of B is turned round in shared memory. grid: (n / 32, k / DEPTH), rounded up   block: 256
extern "C" __global__ void __launch_bounds__(256) column_residues(const double* b, const int* exponents,
                                                                  signed char* residues, int n, int k) {
    __shared__ double tile[32][DEPTH + 2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = blockIdx.x * 32, depth = blockIdx.y * DEPTH;
#pragma unroll
    for (int i = 0; i < DEPTH / 8; ++i) {
        const int h = warp + 8 * i;
        const bool inside = depth + h < k && column + lane < n;
        tile[lane][h] = inside ? b[static_cast<size_t>(depth + h) * n + column + lane] : 0.0;
    }
    __syncthreads();
    if (depth + 4 * lane < pitch(k)) {
        for (int c = warp; c < min(32, n - column); c += 8) {
            const Scale t = scale(exponents[column + c]);
            const double* x = &tile[c][4 * lane];
            const Integer whole[4] = {integer(x[0], t), integer(x[1], t), integer(x[2], t), integer(x[3], t)};
            signed char* to = residues + static_cast<size_t>(column + c) * pitch(k) + depth;
            store_residues(whole, reinterpret_cast<Word*>(to) + lane, static_cast<size_t>(n) * pitch(k) / 4);
        }
    }
}
