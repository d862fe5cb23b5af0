// wgmma on 8-bit floats: four warps multiply a 64 x 32 by a 32 x N tile of e4m3, and add to fp32 sums in registers.
//
// As wgmma.cuh says of bf16, but: a row of a tile is 128 elements of k (128 bytes), the instruction takes 32 of them,
// and both operands must be K-major. Sums lie in registers as those of bf16 do, but the instruction keeps some 14 bits
// of them: it aligns the sum and 32 products to the largest of them and drops what lies 2^-13 below it. A sum begun
// anew (`add` false) and added to another by FADD loses no more than its own instructions lose.

#pragma once

#include "common/wgmma.cuh"

struct e4m3 {
    unsigned char bits;  // sign, 4 bits of exponent, 3 of fraction; no infinity
};

constexpr int NEXT_K32 = 32 >> 4;  // added to a descriptor: the next 32 values of k

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in wgmma.cuh.
#define SUMS_8(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_48(i) SUMS_16(i), SUMS_16(i + 16), SUMS_16(i + 32)
#define SUMS_64(i) SUMS_48(i), SUMS_16(i + 48)
#define SUMS_96(i) SUMS_48(i), SUMS_48(i + 48)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FORTY TEN() TEN(1) TEN(2) TEN(3)
#define NAMES_48 FORTY "%40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 FORTY TEN(4) TEN(5) "%60, %61, %62, %63"
#define NAMES_96 FORTY TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95"
// S sums a thread, then as operands S, S + 1 and S + 2 the descriptors and whether to add to the sums or replace them.
#define WGMMA(N, S, A, B, ADD)                                                                                      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" NAMES_##S "}, %" #A ", %" #B ", add, 1, 1;\n}" \
                 : SUMS_##S(0)                                                                                      \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// d = A B + (add ? d : 0). A: [64, 32] and B: [N, 32] as described by `a` and `b`.
template <int N>
__device__ __forceinline__ void wgmma_e4m3(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    static_assert(N == 96 || N == 128 || N == 192, "the widths that are used");
    if constexpr (N == 96) {
        WGMMA(96, 48, 48, 49, 50);
    } else if constexpr (N == 128) {
        WGMMA(128, 64, 64, 65, 66);
    } else {
        WGMMA(192, 96, 96, 97, 98);
    }
}

// Wait until at most GROUPS groups still run, and let nothing that reads `d`, the sums of one that is done, be moved
// ahead of it, as wgmma_finish does for all groups.
template <int GROUPS, int COUNT>
__device__ __forceinline__ void wgmma_arrived(float (&d)[COUNT]) {
    wgmma_wait<GROUPS>();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

#undef WGMMA
#undef NAMES_96
#undef NAMES_64
#undef NAMES_48
#undef FORTY
#undef TEN
#undef SUMS_96
#undef SUMS_64
#undef SUMS_48
#undef SUMS_16
#undef SUMS_8
