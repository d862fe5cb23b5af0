// wgmma on unsigned bytes for tiles of 208 columns, with room in the sums' registers for 192. Operands as in
// common/wgmma_int8.cuh.

#pragma once

#include "common/wgmma_int8.cuh"

#define SUMS_8(i)                                                                                                   \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
        "+r"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "

// d = A B + (add ? d : 0). A: [64, 32] and B: [208, 32], K-major, as described by `a` and `b`.
__device__ __forceinline__ void wgmma_208(int (&d)[104], Descriptor a, Descriptor b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %106, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n208k32.s32.u8.u8 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6)
                 TEN(7) TEN(8) TEN(9) "%100, %101, %102, %103}, %104, %105, add;\n}"
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_8(96)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef TEN
#undef SUMS_32
#undef SUMS_8
