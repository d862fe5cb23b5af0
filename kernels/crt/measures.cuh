// What the certified mode measures of a row of A or a column of B: its norms, its lowest bit, and a lower bound of its
// magnitudes in e5m2. NOTES.md, "Certified", has the inequalities.
//
// Elements are taken times 2^shift, exactly: `shift` is the inner exponent of their k, of A, or its opposite, of B. It may
// lie far outside double's range, so exponents are added as integers and never to the number itself.

#pragma once

#include "crt/scaling.cuh"

constexpr int NOTHING = -100000;  // the exponent of zero
constexpr int WHOLE = 100000;     // the lowest bit of zero
constexpr int HEADROOM = 4;       // binades above the largest sampled element, of e5m2's 31
constexpr int SAMPLES = 64;       // elements of a row or a column that say where e5m2's range begins

// Sums of squares, in units of 4^(unit - 1023), and of magnitudes, of 2^(unit - 1023), where `unit` is the line's, below.
// top: no exponent is larger. low: every element is a multiple of 2^low, or the line is too fine to be integers with
// LEAST moduli (`enough`); SPOILED if one is Inf or NaN.
struct Measure {
    double squares, ones;
    int top, low;
};

// size 2^(biased - 1023) is no less than the norm; 0 of zeros.
struct Summary {
    double size;
    int biased, low;
};

__device__ __forceinline__ Measure no_measure() {
    return {0.0, 0.0, NOTHING, WHOLE};
}

// What a line is measured in: the exponent of its largest sampled element.
__device__ __forceinline__ int unit_of(int sampled) {
    return sampled == NOTHING ? 1023 : sampled;
}

// 2^(s + shift) as two factors; beyond 1200 either way, only zeros are scaled, or everything becomes zero.
__device__ __forceinline__ Scale shifted_scale(int s, int shift) {
    return scale(max(-1200, min(1200, s + shift)));
}

// No line whose lowest bit is as low as this is one of integers: no radius is above 2^53, nor the norm below the unit.
__device__ __forceinline__ int low_enough(int unit) {
    return unit - 1023 - 53;
}

// |x| in units of the line, which `measure` now includes; down: 2^(1023 - unit + shift). The search for the lowest bit, the
// dearest part, ends at `enough`.
__device__ __forceinline__ double include(Measure& measure, double x, int shift, const Scale& down, int enough) {
    const int high = __double2hiint(x) & 0x7FFFFFFF, biased = high >> 20;
    const double y = fabs(x) * down.one * down.other;
    measure.squares = fma(y, y, measure.squares);
    measure.ones += y;
    const bool zero = x == 0.0;
    measure.top = max(measure.top, zero ? NOTHING : biased + shift);
    if (measure.low > enough && !zero) {
        const Long field = static_cast<Long>(__double_as_longlong(x)) & 0xFFFFFFFFFFFFFull;
        const Long fraction = biased ? field | 1ull << 52 : field;
        const int last = __ffsll(static_cast<long long>(fraction)) - 1;
        measure.low = min(measure.low, max(biased, 1) - 1023 - 52 + shift + last);
    }
    if (biased == 2047) {
        measure.low = SPOILED;
    }
    return y;
}

__device__ __forceinline__ Measure join(const Measure& one, const Measure& other) {
    return {one.squares + other.squares, one.ones + other.ones, max(one.top, other.top), min(one.low, other.low)};
}

// Over all lanes of a warp.
__device__ __forceinline__ Measure over_warp(Measure measure) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        measure = join(measure, {__shfl_xor_sync(~0u, measure.squares, step), __shfl_xor_sync(~0u, measure.ones, step),
                                 __shfl_xor_sync(~0u, measure.top, step), __shfl_xor_sync(~0u, measure.low, step)});
    }
    return measure;
}

// Every rounding on the way, k + 64 at most, is on the safe side.
__device__ __forceinline__ double rounded_away(double x, int k) {
    return x * (1.0 + (k + 64) * 0x1p-52);
}

// sampled: the exponent of the largest sampled element. Of a line whose samples are all zero, and nothing else, its unit
// says nothing: it counts as spoiled.
__device__ __forceinline__ Summary summary(const Measure& measure, int sampled, int k) {
    const bool unknown = sampled == NOTHING && measure.top != NOTHING;
    return {rounded_away(sqrt(measure.squares), k), unit_of(sampled), unknown ? SPOILED : measure.low};
}

// The largest s with ||2^s x|| + sqrt(k) / 2 <= radius; 0 of zeros and of rows whose tiles take no residues.
__device__ __forceinline__ int exponent_of(const Summary& x, double radius, int k) {
    if (x.size == 0.0 || x.low == SPOILED) {
        return 0;
    }
    return biased_exponent((radius - 0.51 * sqrt(static_cast<double>(k))) / x.size) - x.biased;
}

// The norm and the sum of magnitudes in units of 2^(offset - 1008), rounded up: what e5m2 bytes of that offset count in.
// The norm stands for what rounding to integers may lose: nothing where every element is one.
struct Gauge {
    float norm, ones;
};

__device__ __forceinline__ Gauge gauge(const Measure& measure, const Summary& x, int offset, double least_radius, int k) {
    if (x.low == SPOILED || measure.top - offset - 15 > 60) {
        return {__int_as_float(0x7F800000), __int_as_float(0x7F800000)};
    }
    if (x.size == 0.0) {
        return {0.0f, 0.0f};
    }
    const double unit = power(1023 + max(x.biased - offset - 15, -60));
    const bool exact = x.low + exponent_of(x, least_radius, k) >= 0;
    return {exact ? 0.0f : __double2float_ru(x.size * unit), __double2float_ru(rounded_away(measure.ones, k) * unit)};
}

// Where the range of e5m2 begins if the largest sampled element has this exponent.
__device__ __forceinline__ int offset_below(int sampled) {
    return sampled == NOTHING ? 0 : sampled + HEADROOM - 30;
}

// The largest e5m2 number that is no more than |x| 2^shift in units of 2^(offset - 1008): its exponent's field and two
// bits of fraction, cut off; `shift` is less the offset. Subnormals count as zero, Inf as the largest finite number.
__device__ __forceinline__ Word coarse_byte(double x, int shift) {
    const int high = __double2hiint(x) & 0x7FFFFFFF;
    return high < 0x100000 ? 0 : static_cast<Word>(max(0, min((high >> 18) + 4 * shift, 0x7B)));
}

// Which of k elements is the q-th sample.
__device__ __forceinline__ int sampled(int q, int k) {
    return static_cast<int>(static_cast<long long>(q) * k / SAMPLES);
}

// The exponent of one sampled element; NOTHING of zero, Inf and NaN.
__device__ __forceinline__ int sampled_exponent(double x, int shift) {
    const int biased = biased_exponent(x);
    return biased == 0 || biased == 2047 ? NOTHING : biased + shift;
}
