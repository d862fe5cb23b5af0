// CUDA's vectors and arithmetic as C++.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

using std::max;
using std::min;

template <class To, class From>
To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct double2 {
    double x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 32; i += 8) {
        sum += (a >> i & 0xFF) * (b >> i & 0xFF);
    }
    return sum;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= static_cast<unsigned>(both >> (8 * (selector >> (4 * i) & 7)) & 0xFF) << (8 * i);
    }
    return result;
}
inline unsigned __viaddmin_u16x2(unsigned a, unsigned b, unsigned c) {
    unsigned result = 0;
    for (int i = 0; i < 32; i += 16) {
        result |= min<unsigned>(((a >> i) + (b >> i)) & 0xFFFF, c >> i & 0xFFFF) << i;
    }
    return result;
}
inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
inline int __double2hiint(double value) { return static_cast<int>(same_bits<uint64_t>(value) >> 32); }
inline double __hiloint2double(int high, int low) {
    return same_bits<double>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low));
}
inline long long __double2ll_rn(double value) { return llrint(value); }
