// wgmma on TF32: four warps multiply a 64 x 8 by an 8 x 128 tile, and add to sums in registers.
//
// As wgmma.cuh says of bf16, but: a row of a tile is 32 elements of k (128 bytes), the instruction takes 8 of them, and
// both operands must be K-major. An element is an fp32 of which the tensor core reads the sign, the exponent and 10 bits
// of the fraction.

#pragma once

#include "common/wgmma.cuh"

struct tf32 {
    float value;
};

constexpr int NEXT_K8 = 32 >> 4;  // added to a descriptor: the next 8 values of k

// The sums as operands, d[i] onwards, and their names in the instruction's text, as in wgmma.cuh.
#define SUMS_8(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "

// d = A B + (add ? d : 0). A: [64, 8] and B: [128, 8] as described by `a` and `b`.
__device__ __forceinline__ void wgmma_tf32(float (&d)[64], Descriptor a, Descriptor b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
                 "%60, %61, %62, %63}, %64, %65, add, 1, 1;\n}"
                 : SUMS_32(0), SUMS_32(32)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef TEN
#undef SUMS_32
#undef SUMS_8
