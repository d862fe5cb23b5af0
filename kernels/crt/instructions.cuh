// Instructions that only the certified mode uses: wgmma on e5m2, mma on doubles, and copies of 8 bytes.

#pragma once

#include "common/wgmma_int8.cuh"

#define SUMS_8(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "

// d = A B + (add ? d : 0) in fp32. A: [64, 32] and B: [192, 32] of e5m2, K-major, as described by `a` and `b`; sums lie
// in registers as in wgmma.cuh. No document says how the products of a step are aligned; see NOTES.md.
__device__ __forceinline__ void wgmma_e5m2(float (&d)[96], Descriptor a, Descriptor b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k32.f32.e5m2.e5m2 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6)
                 TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95}, %96, %97, add, 1, 1;\n}"
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef TEN
#undef SUMS_32
#undef SUMS_8

// c += A B in double, by a warp. A: [16, 8], B: [8, 8]. With g = lane / 4 and t = lane % 4, a thread holds
//     a: rows g, g + 8, g, g + 8 of columns t, t, t + 4, t + 4;      b: rows t and t + 4 of column g;
//     c: columns 2 t and 2 t + 1 of row g, then of row g + 8.
__device__ __forceinline__ void dmma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

// Start copying a double to shared memory. Where `wanted` is false nothing is read, and it becomes zero.
__device__ __forceinline__ void copy8(double* to, const double* from, bool wanted) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 8 : 0)
                 : "memory");
}
