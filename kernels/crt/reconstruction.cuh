// From residues back to C', by the Chinese remainder theorem: the sum of r_i w_i less the nearest multiple of M.

#pragma once

#include "crt/moduli.cuh"

__constant__ Weights WEIGHTS = Weights();
constexpr double M_HIGH = upper(M), M_LOW = lower(M), PER_M = 1.0 / real(M);

// A byte as a double: put behind the exponent of 2^52, which is then taken off. Cheaper than a conversion.
__device__ __forceinline__ double number(Word bytes, int which) {
    return __hiloint2double(0x43300000, __byte_perm(bytes, 0, 0x4440 + which)) - 0x1p52;
}

// Which modulus, as a type: what depends on it is known to the compiler.
template <int I>
struct Index {
    static constexpr int value = I;
};

template <int I = 0, class Residue>
__device__ __forceinline__ void weigh(const Residue& residue, double& high, double& low) {
    if constexpr (I < COUNT) {
        const double r = residue(Index<I>{});
        high = fma(WEIGHTS.high[I], r, high);
        low = fma(WEIGHTS.low[I], r, low);
        weigh<I + 1>(residue, high, low);
    }
}

// The sums of weighed residues less the nearest multiple of M: C' to 2^-76 M and one rounding.
__device__ __forceinline__ double settle(double high, double low) {
    const double times = rint(high * PER_M);
    return fma(-times, M_HIGH, high) + fma(-times, M_LOW, low);
}

// Zero exactly where all residues are zero. `residue(Index<i>)` is the i-th, 0 to 255.
template <class Residue>
__device__ __forceinline__ double reconstruct(const Residue& residue) {
    double high = 0.0, low = 0.0;
    weigh(residue, high, low);
    return settle(high, low);
}

// As `weigh`, of eight elements: their residues are the bytes of two words, the first or second half of each of `all`.
template <int I = 0>
__device__ __forceinline__ void weigh_eight(const uint4 (&all)[COUNT], int half, double (&high)[8], double (&low)[8]) {
    if constexpr (I < COUNT) {
        const double weight = WEIGHTS.high[I], rest = WEIGHTS.low[I];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const Word word = e < 4 ? (half ? all[I].z : all[I].x) : (half ? all[I].w : all[I].y);
            const double r = number(word, e % 4);
            high[e] = fma(weight, r, high[e]);
            low[e] = fma(rest, r, low[e]);
        }
        weigh_eight<I + 1>(all, half, high, low);
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            asm volatile("" : "+d"(high[e]), "+d"(low[e]));  // or the compiler takes two elements at a time all the same
        }
    }
}
