// The moduli of scheme II and what follows from them, worked out by the compiler: gemmrepro.ozaki.moduli holds the same.
//
// C' = A' B' is known by its residues modulo COUNT pairwise coprime numbers, if |C'| < M / 2, M being their product.
// Of each pair of scaled vectors, |c'| <= ||a'|| ||b'||; so every vector gets the norm RADIUS, just below sqrt(M / 2).

#pragma once

#ifndef NUMBERS
#define NUMBERS 15
#endif
constexpr int COUNT = NUMBERS;

using Word = unsigned int;
using Long = unsigned long long;
using Wide = unsigned __int128;

constexpr int MODULI[] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193};
static_assert(COUNT >= 12 && COUNT <= 16, "M must fit 128 bits, a scaled integer 63, and leave bits beside sqrt(k)");

constexpr Wide product() {
    Wide m = 1;
    for (int i = 0; i < COUNT; ++i) {
        m *= MODULI[i];
    }
    return m;
}
constexpr Wide M = product();

constexpr int bits(Wide x) {
    return x ? 1 + bits(x >> 1) : 0;
}

// x as a double, bits below the first 53 cut off.
constexpr double real(Wide x) {
    const int cut = bits(x) > 53 ? bits(x) - 53 : 0;
    double value = static_cast<double>(static_cast<Long>(x >> cut));
    for (int i = 0; i < cut; ++i) {
        value *= 2.0;
    }
    return value;
}

constexpr Long inverse(Long a, Long p) {
    for (Long x = 1; x < p; ++x) {
        if (a * x % p == 1) {
            return x;
        }
    }
    return 0;
}

// C' = sum of r_i w_i modulo M, where w_i is 1 modulo the i-th modulus and 0 modulo the others. A weight is cut in two:
// the upper parts are so short (41 bits) that COUNT <= 16 products with residues below 2^8 are added exactly in
// double, and M's upper part times the quotient is subtracted exactly. What the lower parts lose is below 2^-76 M.
constexpr int LOW = bits(M) - 41;
constexpr double upper(Wide x) {
    return real((x >> LOW) << LOW);
}
constexpr double lower(Wide x) {
    return real(x - ((x >> LOW) << LOW));
}

struct Weights {
    double high[COUNT], low[COUNT];
    constexpr Weights() : high(), low() {
        for (int i = 0; i < COUNT; ++i) {
            const Wide others = M / MODULI[i];
            const Wide weight = others * inverse(static_cast<Long>(others % MODULI[i]), MODULI[i]);
            high[i] = upper(weight);
            low[i] = lower(weight);
        }
    }
};

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
// A margin of 2^-22 leaves the quotient C' / M away from 1 / 2, so that rounding the upper sum finds the right one.
constexpr double RADIUS = root(real(M) / 2) * (1 - 0x1p-22);
