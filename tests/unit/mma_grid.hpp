// What hopper_grid.hpp lacks for kernels/ada: the warp's own instructions, ldmatrix and mma.sync, with fp32 and fp16 sums.
//
// All lanes of a warp show one another what they pass, meet, and each computes what it gets. Operands in registers are
// those of the moment of issue, as the instructions are synchronous.
#pragma once
#include "hopper_grid.hpp"

struct alignas(8) float2 {
    float x, y;
};

namespace mma_grid {

// fp16, of NaN and of numbers that it holds exactly.
inline float value_of(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                            : exponent     ? ldexpf(1024 + fraction, exponent - 25)
                                           : ldexpf(fraction, -24);
    return bits >> 15 ? -magnitude : magnitude;
}
inline unsigned bits_of(float value) {
    if (value != value) {
        return 0x7E00;
    }
    if (value == 0) {
        return 0;
    }
    int exponent;
    const float fraction = frexpf(fabsf(value), &exponent);
    return (value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | (unsigned(fraction * 2048) & 1023);
}
inline std::vector<float> all_values() {
    std::vector<float> values(1 << 16);
    for (size_t bits = 0; bits < values.size(); ++bits) {
        values[bits] = value_of(bits);
    }
    return values;
}
inline const std::vector<float> VALUES = all_values();
inline float half_of(Word both, int which) {
    return VALUES[both >> 16 * which & 0xFFFF];
}

// What each lane passes to an instruction, and to the one before: a lane may be on its way to the next while others still
// read this one's.
constexpr int THREADS = 16 * 1024;
inline Word passed[2][THREADS][6];
inline unsigned issued[THREADS];

// Shows `words` to the warp; returns what its 32 lanes show, by lane.
template <int COUNT>
const Word (*show(const Word (&words)[COUNT]))[6] {
    const unsigned thread = hopper_grid::running->block->index * 1024 + threadIdx.x;
    auto& table = passed[issued[thread]++ % 2];
    memcpy(table[thread], words, sizeof words);
    const unsigned warp = thread / 32 * 32;
    hopper_grid::perhaps_yield();
    hopper_grid::meet(hopper_grid::Wait::warp);
    return &table[warp];
}

// The lane's part of 16 x 16 by 16 x 8: rows g and g + 8, columns 2t and 2t + 1, added to `sums` in the order of mma.cuh.
inline void multiply(float (&sums)[4], const Word (*lanes)[6], unsigned lane) {
    for (int part = 0; part < 4; ++part) {
        const int half = part / 2, column = lane % 4 * 2 + part % 2;
        for (int k = 0; k < 16; ++k) {
            const Word a = lanes[lane / 4 * 4 + k % 8 / 2][half + k / 8 * 2], b = lanes[column * 4 + k % 8 / 2][4 + k / 8];
            sums[part] += half_of(a, k % 2) * half_of(b, k % 2);
        }
    }
}

}  // namespace mma_grid

inline fp16 half_from(float value) {
    return {static_cast<unsigned short>(mma_grid::bits_of(value))};
}

// common/mma.cuh
inline unsigned shared_offset(const void* pointer) {
    return shared_address(pointer);
}
inline void ldmatrix(Word& to0, Word& to1, Word& to2, Word& to3, unsigned offset) {
    const auto* lanes = mma_grid::show<1>({offset});
    const unsigned lane = threadIdx.x % 32;
    Word* const to[] = {&to0, &to1, &to2, &to3};
    for (int tile = 0; tile < 4; ++tile) {
        memcpy(to[tile], hopper_grid::running->block->shared + lanes[tile * 8 + lane / 4][0] + lane % 4 * 4, 4);
    }
}
inline void mma(float (&sums)[4], const Word (&a)[4], const Word (&b)[2]) {
    const auto* lanes = mma_grid::show<6>({a[0], a[1], a[2], a[3], b[0], b[1]});
    mma_grid::multiply(sums, lanes, threadIdx.x % 32);
}
inline void store_tile(float* C, int m, int n, int row, int col, const float (&sums)[4]) {
    row += threadIdx.x % 32 / 4, col += threadIdx.x % 4 * 2;
    for (int part = 0; part < 4; ++part) {
        const int r = row + part / 2 * 8, c = col + part % 2;
        if (r < m && c < n) {
            C[size_t(r) * n + c] = sums[part];
        }
    }
}

// common/mma_ada.cuh
inline float2 unpack_half(Word both) {
    return {mma_grid::half_of(both, 0), mma_grid::half_of(both, 1)};
}
inline void mma_half(Word (&sums)[2], const Word (&a)[4], const Word (&b)[2], const Word (&start)[2]) {
    const auto* lanes = mma_grid::show<6>({a[0], a[1], a[2], a[3], b[0], b[1]});
    const float2 upper = unpack_half(start[0]), lower = unpack_half(start[1]);
    float wide[4] = {upper.x, upper.y, lower.x, lower.y};
    mma_grid::multiply(wide, lanes, threadIdx.x % 32);
    for (int half = 0; half < 2; ++half) {
        sums[half] = mma_grid::bits_of(wide[2 * half]) | mma_grid::bits_of(wide[2 * half + 1]) << 16;
    }
}
