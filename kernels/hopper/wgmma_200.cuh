// wgmma of one more width, 200 columns: with 128 rows and some tiles of 192, 5120 x 5120 has 7.9 waves of tiles and nothing
// beyond C. What wgmma is, how operands and sums lie and what orders them stands in common/wgmma.cuh.

#pragma once

#include "common/wgmma_widths.cuh"

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in common/wgmma.cuh.
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_20(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12), SUMS_4(i + 16)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define NAMES \
    TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99"
#define WGMMA(TYPE)                                                                      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %102, 0;\n"                       \
                 "wgmma.mma_async.sync.aligned.m64n200k16.f32." TYPE "." TYPE " {" NAMES \
                 "}, %100, %101, add, 1, 1, 0, 0;\n}"                                    \
                 : SUMS_20(0), SUMS_20(20), SUMS_20(40), SUMS_20(60), SUMS_20(80)        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// As wgmma_of_width in common/wgmma_widths.cuh, for 200 columns and for all that it has.
template <int N, class Element>
__device__ __forceinline__ void wgmma_of_form(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    if constexpr (N == 200 && SAME<Element, bf16>) {
        WGMMA("bf16");
    } else if constexpr (N == 200) {
        WGMMA("f16");
    } else {
        wgmma_of_width<N, Element>(d, a, b, add);
    }
}

#undef WGMMA
#undef NAMES
#undef TEN
#undef SUMS_20
#undef SUMS_4
