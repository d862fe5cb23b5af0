// The warp's tensor core instruction of Ampere and Ada, mma.sync m16n8k16, and ldmatrix, which brings its operands.
//
// The 32 lanes of a warp hold a fragment of 16 x 16 of A, 8 columns of 16 of B, and 16 x 8 of the sums between them. With
// g = lane / 4 and t = lane % 4, a lane's registers are (each Word two elements, neighbours along k)
//
//     a[0]: row g,     k = 2t, 2t+1        a[2]: row g,     k = 2t+8, 2t+9
//     a[1]: row g + 8, k = 2t, 2t+1        a[3]: row g + 8, k = 2t+8, 2t+9
//     b[0]: column g,  k = 2t, 2t+1        b[1]: column g,  k = 2t+8, 2t+9
//     sums[0], sums[1]: row g, columns 2t, 2t+1        sums[2], sums[3]: row g + 8, the same columns

#pragma once

#include "common/element.cuh"

// The 32-bit address that instructions on shared memory take.
__device__ __forceinline__ unsigned shared_offset(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// sums += a b, for fp16 operands and fp32 sums.
__device__ __forceinline__ void mma(float (&sums)[4], const Word (&a)[4], const Word (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four blocks of 8 x 8 elements from shared memory. Lane l names the l % 8-th row (16 bytes, in shared memory at
// `offset`) of block l / 8; of block i every lane then holds, in to[i], elements 2t and 2t + 1 of row g.
__device__ __forceinline__ void ldmatrix(Word& to0, Word& to1, Word& to2, Word& to3, unsigned offset) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3)
                 : "r"(offset)
                 : "memory");
}

// A lane's sums of a 16 x 8 tile whose corner stands at (row, col) of C [m, n]. Pairs are stored at once where rows of C
// are aligned for it.
__device__ __forceinline__ void store_tile(float* C, int m, int n, int row, int col, const float (&sums)[4]) {
    row += threadIdx.x % 32 / 4, col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half, row += 8) {
        float* to = &C[static_cast<size_t>(row) * n + col];
        if (row < m && col + 1 < n && n % 2 == 0) {
            *reinterpret_cast<float2*>(to) = {sums[2 * half], sums[2 * half + 1]};
        } else if (row < m && col < n) {
            to[0] = sums[2 * half];
            if (col + 1 < n) {
                to[1] = sums[2 * half + 1];
            }
        }
    }
}
