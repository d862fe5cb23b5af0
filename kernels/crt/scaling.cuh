// Powers of two for the rows of A and the columns of B: the largest exponents s with ||2^s a|| + sqrt(k) / 2 <= RADIUS.
//
// The half of sqrt(k) is what rounding to integers may add to a norm. A sum of squares is kept relative to the largest
// exponent seen, so that neither tiny nor huge numbers leave double's range; its order is fixed, so results repeat.

#pragma once

#include "crt/moduli.cuh"

constexpr int SPOILED = -2147483647 - 1;  // the exponent of a row with an Inf or a NaN: its products are NaN

// squares 4^(biased - 1023): squares of numbers whose largest has that biased exponent.
struct Norm {
    double squares;
    int biased;
};

__device__ __forceinline__ int biased_exponent(double x) {
    return __double2hiint(x) >> 20 & 0x7FF;
}

// 2^(biased - 1023), subnormal powers (down to biased = -51) included.
__device__ __forceinline__ double power(int biased) {
    return biased > 0 ? __hiloint2double(biased << 20, 0) : __longlong_as_double(1ll << (51 + biased));
}

// What squares shrink by when the exponent that they are relative to rises by `step`.
__device__ __forceinline__ double shrunk(int step) {
    return step > 500 ? 0.0 : power(1023 - 2 * step);
}

__device__ __forceinline__ void include(Norm& norm, double x) {
    const int biased = biased_exponent(x);
    if (biased > norm.biased) {
        norm.squares *= shrunk(biased - norm.biased);
        norm.biased = biased;
    }
    const double unit = x * power(2046 - norm.biased);
    norm.squares = fma(unit, unit, norm.squares);
}

__device__ __forceinline__ Norm join(const Norm& one, const Norm& other) {
    const int biased = max(one.biased, other.biased);
    return {one.squares * shrunk(biased - one.biased) + other.squares * shrunk(biased - other.biased), biased};
}

// The exponent of a vector of length k. Every rounding on the way, k + 64 at most, is on the safe side.
__device__ __forceinline__ int exponent(const Norm& norm, int k) {
    if (norm.biased == 2047) {
        return SPOILED;
    }
    if (norm.squares == 0.0) {
        return 0;
    }
    const double room = RADIUS - 0.51 * sqrt(static_cast<double>(k));
    const double size = sqrt(norm.squares) * (1.0 + (k + 64) * 0x1p-52);
    return biased_exponent(room / size) - norm.biased;
}

// The norm over all lanes of a warp.
__device__ __forceinline__ Norm over_warp(Norm norm) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        norm = join(norm, {__shfl_xor_sync(~0u, norm.squares, step), __shfl_xor_sync(~0u, norm.biased, step)});
    }
    return norm;
}

// The norm over a block of one dimension; the first thread has it.
__device__ __forceinline__ Norm over_block(Norm norm) {
    __shared__ Norm warps[32];
    norm = over_warp(norm);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = norm;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) {
            norm = join(norm, warps[w]);
        }
    }
    return norm;
}

// 2^s as two factors: 2^s itself may lie outside double's range.
struct Scale {
    double one, other;
};

__device__ __forceinline__ Scale scale(int s) {
    if (s == SPOILED) {
        return {0.0, 0.0};
    }
    return {power(s / 2 + 1023), power(s - s / 2 + 1023)};
}

// c 2^-(s + t), rounded once unless it is subnormal.
__device__ __forceinline__ double scaled_back(double c, int s, int t) {
    if (s == SPOILED || t == SPOILED) {
        return __longlong_as_double(0x7FF8000000000000);
    }
    const int e = -(s + t);
    if (e > -1000 && e < 1000) {
        return c * power(e + 1023);
    }
    const Scale half = scale(e / 2), rest = scale(e - e / 2);
    return c * half.one * half.other * rest.one * rest.other;
}
