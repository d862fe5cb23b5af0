// A [m, k], row-major, to exponents of its rows and residues: COUNT matrices [m, pitch(k)]. Two passes over A.

#pragma once

#include "crt/residues.cuh"

// grid: m   block: 256
extern "C" __global__ void __launch_bounds__(256) row_exponents(const double* a, int* exponents, int k) {
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    Norm norm{};
    for (int quad = threadIdx.x; quad < (k + 3) / 4; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            include(norm, x[i]);
        }
    }
    norm = over_block(norm);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = exponent(norm, k);
    }
}

// grid: m   block: 256
extern "C" __global__ void __launch_bounds__(256) row_residues(const double* a, const int* exponents,
                                                               signed char* residues, int m, int k) {
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    const Scale s = scale(exponents[blockIdx.x]);
    Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
        const Integer whole[4] = {integer(x[0], s), integer(x[1], s), integer(x[2], s), integer(x[3], s)};
        store_residues(whole, to + quad, static_cast<size_t>(m) * pitch(k) / 4);
    }
}
