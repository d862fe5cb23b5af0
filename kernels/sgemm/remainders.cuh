// fp32 by remainders: kernels/crt for as few moduli as fp32 needs, whose numbers fit 32 bits instead of 64.
//
// C' = A' B' of integers is known by its residues modulo COUNT pairwise coprime numbers, if |C'| < M / 2, M being their
// product. Every line gets the norm RADIUS, at most sqrt(M / 2); so |c'| <= ||a'|| ||b'|| < M / 2. RADIUS also stays below
// 2^31, so an element of A' or B' is an int32. Residues: crt/residues.cuh has the same arithmetic, and why it is exact.

#pragma once

#include "sgemm/lines.cuh"

#ifndef NUMBERS
#define NUMBERS 8
#endif
constexpr int COUNT = NUMBERS;

using Long = unsigned long long;

constexpr int MODULI[] = {256, 255, 253, 251, 247, 241, 239, 233};
static_assert(COUNT == 7 || COUNT == 8, "M must fit 64 bits, and leave bits beside sqrt(k)");

constexpr Long product() {
    Long m = 1;
    for (int i = 0; i < COUNT; ++i) {
        m *= MODULI[i];
    }
    return m;
}
constexpr Long M = product();

constexpr Long inverse(Long a, Long p) {
    for (Long x = 1; x < p; ++x) {
        if (a * x % p == 1) {
            return x;
        }
    }
    return 0;
}

constexpr double root(double x) {
    double y = 1.0;
    while (y * y < x) {
        y *= 2.0;
    }
    for (int i = 0; i < 8; ++i) {
        y = 0.5 * (y + x / y);  // Newton, quadratic from within a factor of 2
    }
    return y;
}
// A margin of 2^-22 leaves the quotient C' / M away from 1 / 2, so that rounding it finds the right multiple of M.
constexpr double LARGEST = root(static_cast<double>(M) / 2) < 0x1p31 ? root(static_cast<double>(M) / 2) : 0x1p31;
constexpr double RADIUS = LARGEST * (1 - 0x1p-22);

// The exponent s of a line of k numbers by its sum of squares, which no fp32 takes out of double's range: the largest with
// ||2^s a|| + sqrt(k) / 2 <= RADIUS, the half of sqrt(k) being what rounding to integers may add. Roundings on the way, k
// + 64 at most, are on the safe side.
__device__ __forceinline__ int exponent(double squares, int k) {
    if ((__double2hiint(squares) >> 20 & 0x7FF) == 2047) {
        return SPOILED;
    }
    if (squares == 0.0) {
        return 0;
    }
    const double room = RADIUS - 0.51 * sqrt(static_cast<double>(k));
    const double size = sqrt(squares) * (1.0 + (k + 64) * 0x1p-52);
    return (__double2hiint(room / size) >> 20 & 0x7FF) - 1023;
}

// 2^s as two factors: 2^s itself may lie outside fp32's range.
struct Scale {
    float one, other;
};

__device__ __forceinline__ Scale scale(int s) {
    if (s == SPOILED) {
        return {0.0f, 0.0f};
    }
    return {__uint_as_float((s / 2 + 127) << 23), __uint_as_float((s - s / 2 + 127) << 23)};
}

// x 2^s rounded to an integer; 0 of a line that is spoiled.
__device__ __forceinline__ int integer(float x, const Scale& s) {
    return s.one == 0.0f ? 0 : __float2int_rn(x * s.one * s.other);
}

constexpr Word TWO_23 = 0x4B000000;  // 2^23 as a float
constexpr float ROUNDER = 12582912.0f;  // 1.5 2^23

// 256^0 to 256^3 modulo p, a byte each.
constexpr Word digits(int p) {
    Word word = 0, power = 1;
    for (int i = 0; i < 4; ++i) {
        word |= power << (8 * i);
        power = power * 256 % p;
    }
    return word;
}

// What takes 2^31 back, modulo p.
constexpr Word without_sign(int p) {
    return static_cast<Word>((p - (1ull << 31) % p) % p);
}

template <int P>
constexpr Word DIGITS = digits(P);
template <int P>
constexpr Word START = TWO_23 + without_sign(P);

// x modulo P, 0 to P - 1, in the lowest byte of a word.
template <int P>
__device__ __forceinline__ Word residue(int x) {
    if constexpr (P == 256) {
        return x;
    } else {
        const Word t = __dp4a(static_cast<Word>(x) ^ 0x80000000u, DIGITS<P>, START<P>);
        const float value = __uint_as_float(t) - (8388608.0f + P / 2);
        return t - __float_as_uint(fmaf(value, 1.0f / P, ROUNDER)) * P;
    }
}

// The lowest bytes of four words, side by side.
__device__ __forceinline__ Word bytes(Word a, Word b, Word c, Word d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Residues of four neighbours, modulo each number: word i goes to to[i * stride].
template <int I = 0>
__device__ __forceinline__ void store_residues(const int (&x)[4], Word* to, size_t stride) {
    if constexpr (I < COUNT) {
        constexpr int P = MODULI[I];
        to[I * stride] = bytes(residue<P>(x[0]), residue<P>(x[1]), residue<P>(x[2]), residue<P>(x[3]));
        store_residues<I + 1>(x, to, stride);
    }
}

// Bytes from one line of residues to the next: whole lines of memory, as in crt/residues.cuh.
__device__ __forceinline__ int pitch(int k) {
    return (k + 127) / 128 * 128;
}

// What reduces unsigned sums modulo a number that is known only when the kernel runs.
struct Modulus {
    Word p, digits;
    float inverse, base;
};

__constant__ int MODULUS[8] = {256, 255, 253, 251, 247, 241, 239, 233};

__device__ __forceinline__ Modulus modulus(int i) {
    const Word p = MODULUS[i], one = 256 % p, two = one * one % p, three = two * one % p;
    return {p, 1 | one << 8 | two << 16 | three << 24, 1.0f / static_cast<float>(p), 8388608.0f + p / 2};
}

__device__ __forceinline__ Word residue(int sum, const Modulus& m) {
    const Word t = __dp4a(static_cast<Word>(sum), m.digits, TWO_23);
    const float value = __uint_as_float(t) - m.base;
    return t - __float_as_uint(fmaf(value, m.inverse, ROUNDER)) * m.p;
}

// C' = sum of r_i w_i modulo M, where w_i is 1 modulo the i-th number and 0 modulo the others. A weight is cut in two: the
// upper parts are so short (41 bits) that COUNT products with bytes are added exactly in double; so are the lower parts.
constexpr int bits(Long x) {
    return x ? 1 + bits(x >> 1) : 0;
}
constexpr int LOW = bits(M) - 41;
constexpr double upper(Long x) {
    return static_cast<double>((x >> LOW) << LOW);
}
constexpr double lower(Long x) {
    return static_cast<double>(x & ((1ull << LOW) - 1));
}
constexpr double M_HIGH = upper(M), M_LOW = lower(M), PER_M = 1.0 / static_cast<double>(M);

constexpr Long weight(int i) {
    const Long p = MODULI[i], others = M / p;
    return others * inverse(others % p, p);
}
template <int I>
constexpr double WEIGHT = upper(weight(I));
template <int I>
constexpr double REST = lower(weight(I));

// A byte as a double: put behind the exponent of 2^52, which is then taken off.
__device__ __forceinline__ double number(Word bytes, int which) {
    return __hiloint2double(0x43300000, __byte_perm(bytes, 0, 0x4440 + which)) - 0x1p52;
}

// The weighed residues of eight elements: the bytes of two words, the first or second half of each of `all`.
template <int I = 0>
__device__ __forceinline__ void weigh_eight(const uint4 (&all)[COUNT], int half, double (&high)[8], double (&low)[8]) {
    if constexpr (I < COUNT) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const Word word = e < 4 ? (half ? all[I].z : all[I].x) : (half ? all[I].w : all[I].y);
            const double r = number(word, e % 4);
            high[e] = fma(WEIGHT<I>, r, high[e]);
            low[e] = fma(REST<I>, r, low[e]);
        }
        weigh_eight<I + 1>(all, half, high, low);
    }
}

// The sums less the nearest multiple of M: C', rounded once.
__device__ __forceinline__ double settle(double high, double low) {
    const double times = rint(high * PER_M);
    return fma(-times, M_HIGH, high) + fma(-times, M_LOW, low);
}
