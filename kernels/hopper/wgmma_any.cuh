// wgmma of further widths again: 32, 96 and 160 columns, where a problem is narrow or fills its last turn with them. What
// wgmma is, how operands and sums lie and what orders them stands in common/wgmma.cuh.

#pragma once

#include "common/wgmma_widths.cuh"

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in common/wgmma.cuh.
#define SUMS_16(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),      \
        "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),           \
        "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define SUMS_48(i) SUMS_16(i), SUMS_16(i + 16), SUMS_16(i + 32)
#define SUMS_80(i) SUMS_48(i), SUMS_16(i + 48), SUMS_16(i + 64)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define NAMES_16 TEN() ", %10, %11, %12, %13, %14, %15"
#define NAMES_48 TEN() ", " TEN(1) ", " TEN(2) ", " TEN(3) ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_80 TEN() ", " TEN(1) ", " TEN(2) ", " TEN(3) ", " TEN(4) ", " TEN(5) ", " TEN(6) ", " TEN(7)
#define WGMMA(N, S, A, B, ADD)                                                                            \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES_##S "}, %" #A ", %" #B \
                 ", add, 1, 1, 0, 0;\n}"                                                                  \
                 : SUMS_##S(0)                                                                            \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// As wgmma_of_width in common/wgmma_widths.cuh, of bf16, for these widths and for all that it has.
template <int N>
__device__ __forceinline__ void wgmma_any(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    if constexpr (N == 32) {
        WGMMA(32, 16, 16, 17, 18);
    } else if constexpr (N == 96) {
        WGMMA(96, 48, 48, 49, 50);
    } else if constexpr (N == 160) {
        WGMMA(160, 80, 80, 81, 82);
    } else {
        wgmma_of_width<N, bf16>(d, a, b, add);
    }
}

#undef WGMMA
#undef NAMES_80
#undef NAMES_48
#undef NAMES_16
#undef TEN
#undef SUMS_80
#undef SUMS_48
#undef SUMS_16
