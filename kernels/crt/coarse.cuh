// Exponents from one product of magnitudes (accurate mode): gemmrepro.ozaki.residues.exponents_by_products on the GPU.
//
// |a| is rounded up to multiples of 2^e / STEPS, 2^e above the row's maximum, and one step more covers what rounding to
// integers may add. The product P of these integers is at least STEPS^2 |A||B| after scaling; as P_ij is at most the
// root of its row's maximum times that of its column's, each side may grow until its root reaches RADIUS.

#pragma once

#include "crt/columns.cuh"

constexpr double STEPS = 124.0;  // and one for rounding up, one for rounding to nearest: 126 at most
static_assert(COUNT <= 15, "a scaled integer may reach 8 RADIUS here, and must stay below 2^63");

// Of |x| below 2^e, s being 2^-e: 2 to 126, 0 of zero.
__device__ __forceinline__ Word coarse(double x, const Scale& s) {
    const double steps = ceil(fabs(x) * s.one * s.other * (STEPS * (1 + 0x1p-48)));
    return x == 0.0 ? 0 : static_cast<Word>(fmax(steps, 1.0)) + 1;
}

// e of the largest number's biased exponent.
__device__ __forceinline__ int coarse_exponent(int biased) {
    return biased == 2047 ? SPOILED : biased - 1022;
}

__device__ __forceinline__ Scale coarse_scale(int e) {
    return scale(e == SPOILED ? SPOILED : -e);
}

// The largest exponent that a row or column may get whose largest element of P is `peak`.
__device__ __forceinline__ int exponent_below(int peak, int e) {
    if (e == SPOILED) {
        return SPOILED;
    }
    if (peak == 0) {
        return 0;
    }
    return biased_exponent(RADIUS * STEPS * (1 - 0x1p-40) / sqrt(static_cast<double>(peak))) - 1023 - e;
}

// grid: m   block: 256   coarse_a: [m, pitch]
extern "C" __global__ void __launch_bounds__(256) row_coarse(const double* a, int* exponents, int* peaks,
                                                             unsigned char* coarse_a, int k) {
    __shared__ int warps[8], chosen;
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    int biased = 0;
    for (int quad = threadIdx.x; quad < (k + 3) / 4; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            biased = max(biased, biased_exponent(x[i]));
        }
    }
    biased = __reduce_max_sync(~0u, biased);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = biased;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) {
            biased = max(biased, warps[w]);
        }
        exponents[blockIdx.x] = chosen = coarse_exponent(biased);
        peaks[blockIdx.x] = 0;
    }
    __syncthreads();
    const Scale s = coarse_scale(chosen);
    Word* to = reinterpret_cast<Word*>(coarse_a + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
        const bool finite = chosen != SPOILED;
        to[quad] = finite ? bytes(coarse(x[0], s), coarse(x[1], s), coarse(x[2], s), coarse(x[3], s)) : 0;
    }
}

// grid: (n / 32, k / CHUNK), rounded up   block: (32, 8)   chunks: [k / CHUNK, n], largest biased exponents
extern "C" __global__ void __launch_bounds__(256) column_peaks(const double* b, int* chunks, int n, int k) {
    __shared__ int rows[8][32];
    const int column = blockIdx.x * 32 + threadIdx.x;
    int biased = 0;
    if (column < n) {
        const int end = min(k, (static_cast<int>(blockIdx.y) + 1) * CHUNK);
#pragma unroll 4
        for (int h = blockIdx.y * CHUNK + threadIdx.y; h < end; h += 8) {
            biased = max(biased, biased_exponent(b[static_cast<size_t>(h) * n + column]));
        }
    }
    rows[threadIdx.y][threadIdx.x] = biased;
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        for (int w = 1; w < 8; ++w) {
            biased = max(biased, rows[w][threadIdx.x]);
        }
        chunks[static_cast<size_t>(blockIdx.y) * n + column] = biased;
    }
}

// grid: (n / 32, k / DEPTH), rounded up   block: 256   coarse_b: [n, pitch]
extern "C" __global__ void __launch_bounds__(256) column_coarse(const double* b, const int* chunks, int* exponents,
                                                                int* peaks, unsigned char* coarse_b, int n, int k) {
    __shared__ double tile[32][DEPTH + 2];
    __shared__ int chosen[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = blockIdx.x * 32, depth = blockIdx.y * DEPTH;
    if (warp == 0 && column + lane < n) {
        int biased = 0;
        for (int chunk = 0; chunk * CHUNK < k; ++chunk) {
            biased = max(biased, chunks[static_cast<size_t>(chunk) * n + column + lane]);
        }
        chosen[lane] = coarse_exponent(biased);
        if (blockIdx.y == 0) {
            exponents[column + lane] = chosen[lane];
            peaks[column + lane] = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < DEPTH / 8; ++i) {
        const int h = warp + 8 * i;
        const bool inside = depth + h < k && column + lane < n;
        tile[lane][h] = inside ? b[static_cast<size_t>(depth + h) * n + column + lane] : 0.0;
    }
    __syncthreads();
    if (depth + 4 * lane < pitch(k)) {
        for (int c = warp; c < min(32, n - column); c += 8) {
            const Scale t = coarse_scale(chosen[c]);
            const double* x = &tile[c][4 * lane];
            const bool finite = chosen[c] != SPOILED;
            Word* to = reinterpret_cast<Word*>(coarse_b + static_cast<size_t>(column + c) * pitch(k) + depth);
            to[lane] = finite ? bytes(coarse(x[0], t), coarse(x[1], t), coarse(x[2], t), coarse(x[3], t)) : 0;
        }
    }
}

// grid: count / 128, rounded up   block: 128
extern "C" __global__ void __launch_bounds__(128) choose_exponents(const int* peaks, const int* coarse_exponents,
                                                                   int* exponents, int count) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < count) {
        exponents[i] = exponent_below(peaks[i], coarse_exponents[i]);
    }
}
