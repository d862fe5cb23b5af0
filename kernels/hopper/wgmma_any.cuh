// wgmma of many widths, where a problem is narrow or fills its last turn with them. What wgmma is, how operands and
// sums lie and what orders them stands in common/wgmma.cuh.

#pragma once

#include "common/wgmma_widths.cuh"

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in common/wgmma.cuh.
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define THIRTY TEN() ", " TEN(1) ", " TEN(2)
#define FORTY THIRTY ", " TEN(3)
#define EIGHTY FORTY ", " TEN(4) ", " TEN(5) ", " TEN(6) ", " TEN(7)
#define NAMES_16 TEN() ", %10, %11, %12, %13, %14, %15"
#define NAMES_36 THIRTY ", %30, %31, %32, %33, %34, %35"
#define NAMES_48 FORTY ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_80 EIGHTY
#define NAMES_84 EIGHTY ", %80, %81, %82, %83"
#define NAMES_88 EIGHTY ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA(N, NAMES, A, B, ADD, ...) \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, %" #A ", %" #B \
                 ", add, 1, 1, 0, 0;\n}" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// As wgmma_of_width in common/wgmma_widths.cuh, of bf16, for these widths and for all that it has.
template <int N>
__device__ __forceinline__ void wgmma_any(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    if constexpr (N == 32) {
        WGMMA(32, NAMES_16, 16, 17, 18, SUMS_16(0));
    } else if constexpr (N == 72) {
        WGMMA(72, NAMES_36, 36, 37, 38, SUMS_32(0), SUMS_4(32));
    } else if constexpr (N == 96) {
        WGMMA(96, NAMES_48, 48, 49, 50, SUMS_32(0), SUMS_16(32));
    } else if constexpr (N == 160) {
        WGMMA(160, NAMES_80, 80, 81, 82, SUMS_32(0), SUMS_32(32), SUMS_16(64));
    } else if constexpr (N == 168) {
        WGMMA(168, NAMES_84, 84, 85, 86, SUMS_32(0), SUMS_32(32), SUMS_16(64), SUMS_4(80));
    } else if constexpr (N == 176) {
        WGMMA(176, NAMES_88, 88, 89, 90, SUMS_32(0), SUMS_32(32), SUMS_16(64), SUMS_4(80), SUMS_4(84));
    } else {
        wgmma_of_width<N, bf16>(d, a, b, add);
    }
}

#undef WGMMA
#undef NAMES_88
#undef NAMES_84
#undef NAMES_80
#undef NAMES_48
#undef NAMES_36
#undef NAMES_16
#undef EIGHTY
#undef FORTY
#undef THIRTY
#undef TEN
#undef SUMS_32
#undef SUMS_16
#undef SUMS_4
