// wgmma of further widths: tiles that are 112, 144 or 192 columns wide, where a problem fills its last turn with them.
// What wgmma is, how operands and sums lie and what orders them stands in wgmma.cuh.

#pragma once

#include "common/wgmma.cuh"

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in wgmma.cuh.
#define SUMS_8(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_24(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16)
#define SUMS_56(i) SUMS_24(i), SUMS_24(i + 24), SUMS_8(i + 48)
#define SUMS_72(i) SUMS_24(i), SUMS_24(i + 24), SUMS_24(i + 48)
#define SUMS_96(i) SUMS_72(i), SUMS_24(i + 72)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FIFTY TEN() TEN(1) TEN(2) TEN(3) TEN(4)
#define NAMES_56 FIFTY "%50, %51, %52, %53, %54, %55"
#define NAMES_72 FIFTY TEN(5) TEN(6) "%70, %71"
#define NAMES_96 FIFTY TEN(5) TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95"
// S sums a thread, then as operands S, S + 1 and S + 2 the descriptors and whether to add to the sums or replace them.
#define WGMMA(TYPE, N, S, A, B, ADD)                                                                     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES_##S "}, %" #A \
                 ", %" #B ", add, 1, 1, 0, 0;\n}"                                                        \
                 : SUMS_##S(0)                                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define WGMMA_TYPES(N, S, A, B, ADD)           \
    if constexpr (SAME<Element, bf16>) {       \
        WGMMA("bf16", N, S, A, B, ADD);        \
    } else {                                   \
        WGMMA("f16", N, S, A, B, ADD);         \
    }

// d = A B + (add ? d : 0). A: [64, 16] and B: [N, 16] as described by `a` and `b`.
template <int N, class Element>
__device__ __forceinline__ void wgmma_of_width(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    if constexpr (N == 112) {
        WGMMA_TYPES(112, 56, 56, 57, 58)
    } else if constexpr (N == 144) {
        WGMMA_TYPES(144, 72, 72, 73, 74)
    } else if constexpr (N == 192) {
        WGMMA_TYPES(192, 96, 96, 97, 98)
    } else {
        wgmma<N, Element>(d, a, b, add);
    }
}

#undef WGMMA_TYPES
#undef WGMMA
#undef NAMES_96
#undef NAMES_72
#undef NAMES_56
#undef FIFTY
#undef TEN
#undef SUMS_96
#undef SUMS_72
#undef SUMS_56
#undef SUMS_24
#undef SUMS_8

// Store two 8 x 8 tiles, as stmatrix in wgmma.cuh stores four; lanes 0 to 15 name the addresses.
__device__ __forceinline__ void stmatrix_two(unsigned address, Word one, Word two) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(one), "r"(two)
                 : "memory");
}
