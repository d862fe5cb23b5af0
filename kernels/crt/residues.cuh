// From a number to its residues, one byte each: of a scaled element of A or B, and of an int32 sum.
//
// An integer's bytes, weighed by 256^i modulo p, are added by dp4a: a number congruent to it, below 2^20. Its multiple
// of p is found in single precision: FADD turns it into a float, FFMA with 1.5 2^23 rounds the quotient to an integer
// in the float's lowest bits. Only the lowest byte of what remains is kept, so the float's upper bits do no harm. The
// start value of dp4a holds the exponent of 2^23 already, and takes back what an offset, which makes a signed number
// unsigned, adds modulo p. tests/unit/test_crt.py runs these very functions on the CPU.

#pragma once

#include "crt/scaling.cuh"

#ifndef UNSIGNED
#define UNSIGNED 0  // 1: residues of A and B are 0 to p - 1, in unsigned bytes, instead of symmetric
#endif

constexpr Word TWO_23 = 0x4B000000;  // 2^23 as a float
constexpr float ROUNDER = 12582912.0f;  // 1.5 2^23

// 256^from to 256^(from + 3) modulo p, a byte each.
constexpr Word digits(int p, int from) {
    Word word = 0, power = 1;
    for (int i = 0; i < from + 4; ++i) {
        if (i >= from) {
            word |= power << (8 * (i - from));
        }
        power = power * 256 % p;
    }
    return word;
}

// What takes 2^bit back, modulo p.
constexpr Word without(int p, int bit) {
    Word power = 1;
    for (int i = 0; i < bit; ++i) {
        power = power * 2 % p;
    }
    return (p - power) % p;
}

template <int P>
constexpr Word DIGITS_0 = digits(P, 0);
template <int P>
constexpr Word DIGITS_4 = digits(P, 4);
template <int P>
constexpr Word START = TWO_23 + without(P, 63);
template <int P>
constexpr float BASE = 8388608.0f + UNSIGNED * (P / 2);  // rounding t - P / 2 leaves what is above 0

// The integer nearest to x 2^s, |.| < 2^63, with 2^63 added, as two words.
struct Integer {
    Word low, high;
};

__device__ __forceinline__ Integer integer(double x, const Scale& s) {
    const long long whole = __double2ll_rn(x * s.one * s.other);
    return {static_cast<Word>(whole), static_cast<Word>(whole >> 32) ^ 0x80000000u};
}

// The residue modulo P in the lowest byte: |.| <= P / 2, or 0 to P - 1 if UNSIGNED.
template <int P>
__device__ __forceinline__ Word residue(const Integer& x) {
    if constexpr (P == 256) {
        return x.low;
    } else {
        const Word t = __dp4a(x.low, DIGITS_0<P>, __dp4a(x.high, DIGITS_4<P>, START<P>));
        const float value = __uint_as_float(t) - BASE<P>;
        return t - __float_as_uint(fmaf(value, 1.0f / P, ROUNDER)) * P;
    }
}

// The lowest bytes of four words, side by side.
__device__ __forceinline__ Word bytes(Word a, Word b, Word c, Word d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Residues of four neighbours, modulo each number: word i goes to to[i * stride].
template <int I = 0>
__device__ __forceinline__ void store_residues(const Integer (&x)[4], Word* to, size_t stride) {
    if constexpr (I < COUNT) {
        constexpr int P = MODULI[I];
        to[I * stride] = bytes(residue<P>(x[0]), residue<P>(x[1]), residue<P>(x[2]), residue<P>(x[3]));
        store_residues<I + 1>(x, to, stride);
    }
}

// Bytes from one row of residues to the next. TMA wants multiples of 16; a row of a tile that begins within a line of 128
// bytes touches two of them, and the product runs at little more than half its speed.
__device__ __forceinline__ int pitch(int k) {
    return (k + 127) / 128 * 128;
}

// Columns 4 quad to 4 quad + 3 of a row of k numbers, zeros beyond.
__device__ __forceinline__ void load_quad(double (&x)[4], const double* row, int quad, int k) {
    if (k % 2 == 0 && 4 * quad + 3 < k) {
        const double2 left = reinterpret_cast<const double2*>(row)[2 * quad];
        const double2 right = reinterpret_cast<const double2*>(row)[2 * quad + 1];
        x[0] = left.x, x[1] = left.y, x[2] = right.x, x[3] = right.y;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = 4 * quad + i < k ? row[4 * quad + i] : 0.0;
        }
    }
}

// A sum x modulo P, 0 to P - 1, in the lowest byte: of any int32, or any unsigned 32 bits if UNSIGNED.
constexpr Word SIGN = UNSIGNED ? 0 : 0x80000000u;  // flipped to make a signed sum unsigned, 2^31 more
template <int P>
constexpr Word START_32 = TWO_23 + (UNSIGNED ? 0 : without(P, 31));
template <int P>
__device__ __forceinline__ Word residue(int x) {
    if constexpr (P == 256) {
        return x;
    } else {
        const Word t = __dp4a(static_cast<Word>(x) ^ SIGN, DIGITS_0<P>, START_32<P>);
        const float value = __uint_as_float(t) - (8388608.0f + P / 2);
        return t - __float_as_uint(fmaf(value, 1.0f / P, ROUNDER)) * P;
    }
}

// The same where the modulus is known only when the kernel runs.
struct Modulus {
    Word p, digits, start;
    float inverse, base;
};

__constant__ int MODULUS[16] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193};

__device__ __forceinline__ Modulus modulus(int i) {
    const Word p = MODULUS[i], one = 256 % p, two = one * one % p, three = two * one % p;
    // 128 256^3 is 2^31.
    return {p, 1 | one << 8 | two << 16 | three << 24, TWO_23 + (UNSIGNED ? 0 : p - three * 128 % p), 1.0f / static_cast<float>(p),
            8388608.0f + p / 2};
}

__device__ __forceinline__ Word residue(int x, const Modulus& m) {
    const Word t = __dp4a(static_cast<Word>(x) ^ SIGN, m.digits, m.start);
    const float value = __uint_as_float(t) - m.base;
    return t - __float_as_uint(fmaf(value, m.inverse, ROUNDER)) * m.p;
}
