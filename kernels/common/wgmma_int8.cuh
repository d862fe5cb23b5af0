// wgmma on 8-bit integers: four warps multiply a 64 x 32 by a 32 x N tile, and add to 32-bit sums in registers.
//
// As wgmma.cuh says of bf16, but: a row of a tile is 128 elements of k (128 bytes), the instruction takes 32 of them,
// and both operands must be K-major. Elements are signed or not; sums wrap modulo 2^32 either way. They lie in
// registers as those of bf16 do.

#pragma once

#include "common/wgmma.cuh"

constexpr int NEXT_K32 = 32 >> 4;  // added to a descriptor: the next 32 values of k

// As wgmma_finish of wgmma.cuh, for integers.
template <int COUNT>
__device__ __forceinline__ void wgmma_finish(int (&d)[COUNT]) {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        asm volatile("" : "+r"(d[i])::"memory");
    }
}

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in wgmma.cuh.
#define SUMS_8(i)                                                                                                   \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
        "+r"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_96(i) SUMS_64(i), SUMS_32(i + 64)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define SIXTY TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#define NAMES_96 SIXTY TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95"
#define NAMES_128 SIXTY TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
// S sums a thread, then as operands S, S + 1 and S + 2 the descriptors and whether to add to the sums or replace them.
#define WGMMA(TYPE, N, S, A, B, ADD)                                                                           \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32." TYPE "." TYPE " {" NAMES_##S "}, %" #A ", %" #B ", add;\n}" \
                 : SUMS_##S(0)                                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))

#define WGMMA_TYPES(N, S, A, B, ADD)              \
    if constexpr (SAME<Element, unsigned char>) { \
        WGMMA("u8", N, S, A, B, ADD);             \
    } else {                                      \
        WGMMA("s8", N, S, A, B, ADD);             \
    }

// d = A B + (add ? d : 0). A: [64, 32] and B: [N, 32] as described by `a` and `b`, of signed or unsigned char.
template <int N, class Element>
__device__ __forceinline__ void wgmma_int8(int (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    static_assert(N == 192 || N == 256, "the widths that are used");
    static_assert(SAME<Element, signed char> || SAME<Element, unsigned char>, "8-bit integers");
    if constexpr (N == 192) {
        WGMMA_TYPES(192, 96, 96, 97, 98)
    } else {
        WGMMA_TYPES(256, 128, 128, 129, 130)
    }
}

#undef WGMMA_TYPES
#undef WGMMA
#undef NAMES_128
#undef NAMES_96
#undef SIXTY
#undef TEN
#undef SUMS_128
#undef SUMS_96
#undef SUMS_64
#undef SUMS_32
#undef SUMS_8
