// wgmma on unsigned bytes for tiles of 64 columns. Operands as in common/wgmma_int8.cuh.

#pragma once

#include "common/wgmma_int8.cuh"

#define SUMS_8(i)                                                                                                   \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
        "+r"(d[i + 7])

// d = A B + (add ? d : 0). A: [64, 32] and B: [64, 32], K-major, as described by `a` and `b`.
__device__ __forceinline__ void wgmma_64(int (&d)[32], Descriptor a, Descriptor b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                 "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add;\n}"
                 : SUMS_8(0), SUMS_8(8), SUMS_8(16), SUMS_8(24)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef SUMS_8
