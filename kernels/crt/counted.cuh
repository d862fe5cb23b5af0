// As moduli.cuh, residues.cuh and reconstruction.cuh, for a number of moduli that is known when the kernel runs: LEAST to
// COUNT of them. Each number has a product, a radius and weights of its own, all worked out by the compiler.

#pragma once

#include "crt/reconstruction.cuh"
#include "crt/residues.cuh"

constexpr int LEAST = 13, CHOICES = COUNT - LEAST + 1;
static_assert(COUNT == 16, "choices are 13 to 16 moduli");

// What moduli.cuh says of COUNT, of N.
template <int N>
struct Counted {
    static constexpr Wide product() {
        Wide m = 1;
        for (int i = 0; i < N; ++i) {
            m *= MODULI[i];
        }
        return m;
    }
    static constexpr int LOW = bits(product()) - 41;
    static constexpr double upper(Wide x) {
        return real((x >> LOW) << LOW);
    }
    static constexpr double lower(Wide x) {
        return real(x - ((x >> LOW) << LOW));
    }
    static constexpr double M_HIGH = upper(product()), M_LOW = lower(product()), PER_M = 1.0 / real(product());
    static constexpr double RADIUS = root(real(product()) / 2) * (1 - 0x1p-22);
};

struct CountedWeights {
    double high[CHOICES][COUNT], low[CHOICES][COUNT];
    template <int N>
    constexpr void fill() {
        for (int i = 0; i < N; ++i) {
            const Wide others = Counted<N>::product() / MODULI[i];
            const Wide weight = others * inverse(static_cast<Long>(others % MODULI[i]), MODULI[i]);
            high[N - LEAST][i] = Counted<N>::upper(weight);
            low[N - LEAST][i] = Counted<N>::lower(weight);
        }
    }
    constexpr CountedWeights() : high(), low() {
        fill<13>(), fill<14>(), fill<15>(), fill<16>();
    }
};
__constant__ CountedWeights COUNTED = CountedWeights();

// RADIUS of so many moduli.
__device__ __forceinline__ double radius_of(int count) {
    return count == 13   ? Counted<13>::RADIUS
           : count == 14 ? Counted<14>::RADIUS
           : count == 15 ? Counted<15>::RADIUS
                         : Counted<16>::RADIUS;
}

// Residues of four neighbours, modulo the first `count` numbers: word i goes to to[i * stride].
template <int I = 0>
__device__ __forceinline__ void store_counted(const Integer (&x)[4], int count, Word* to, size_t stride) {
    if constexpr (I < COUNT) {
        if (I < LEAST || I < count) {
            constexpr int P = MODULI[I];
            to[I * stride] = bytes(residue<P>(x[0]), residue<P>(x[1]), residue<P>(x[2]), residue<P>(x[3]));
            store_counted<I + 1>(x, count, to, stride);
        }
    }
}

// As weigh_eight, of the first N moduli.
template <int N, int I = 0>
__device__ __forceinline__ void weigh_counted(const uint4 (&all)[N], int half, double (&high)[8], double (&low)[8]) {
    if constexpr (I < N) {
        const double weight = COUNTED.high[N - LEAST][I], rest = COUNTED.low[N - LEAST][I];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const Word word = e < 4 ? (half ? all[I].z : all[I].x) : (half ? all[I].w : all[I].y);
            const double r = number(word, e % 4);
            high[e] = fma(weight, r, high[e]);
            low[e] = fma(rest, r, low[e]);
        }
        weigh_counted<N, I + 1>(all, half, high, low);
    }
}

// As settle.
template <int N>
__device__ __forceinline__ double settle_counted(double high, double low) {
    const double times = rint(high * Counted<N>::PER_M);
    return fma(-times, Counted<N>::M_HIGH, high) + fma(-times, Counted<N>::M_LOW, low);
}
