// What the Ada article's kernels use beside mma.cuh: ldmatrix of two blocks, cp.async that asks for a whole line, and
// mma.sync with fp16 sums.
//
// Their tiles keep rows of 32 elements, 64 bytes, two to a line of shared memory, which is 128 bytes and touches all 32
// banks once. Piece p of 16 bytes of row r stands in line r / 2 at place (4 (r % 2) + p) ^ (r / 2 % 4). So eight rows'
// pieces p, which ldmatrix reads at once, lie in eight different groups of banks, and so do the eight pieces of a line,
// which eight threads write at once.

#pragma once

#include "common/mma.cuh"

// Where piece p of row r stands in its line.
__device__ __forceinline__ constexpr int place(int r, int p) {
    return (r % 2 * 4 + p) ^ (r / 2 % 4);
}

// Two blocks of 8 x 8 elements from shared memory; lanes 0 to 15 name the rows.
__device__ __forceinline__ void ldmatrix2(Word& to0, Word& to1, unsigned offset) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to0), "=r"(to1)
                 : "r"(offset)
                 : "memory");
}

// Start copying 16 bytes past the L1; the L2 fetches the whole line.
__device__ __forceinline__ void copy16_line(unsigned to_offset, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to_offset), "l"(from) : "memory");
}

// sums = a b + start, for fp16 operands and fp16 sums. sums[0] holds row g, columns 2t and 2t + 1, sums[1] row g + 8.
__device__ __forceinline__ void mma_half(Word (&sums)[2], const Word (&a)[4], const Word (&b)[2],
                                         const Word (&start)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
        : "=r"(sums[0]), "=r"(sums[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start[0]), "r"(start[1]));
}

// Two fp16 numbers of a word as fp32, the one of the lower address first.
__device__ __forceinline__ float2 unpack_half(Word both) {
    float2 wide;
    asm("{.reg .b16 low, high;\n mov.b32 {low, high}, %2;\n cvt.f32.f16 %0, low;\n cvt.f32.f16 %1, high;}"
        : "=f"(wide.x), "=f"(wide.y)
        : "r"(both));
    return wide;
}

// Add a tile's fp16 sums to its fp32 sums.
__device__ __forceinline__ void promote(float (&sums)[4], const Word (&half)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float2 wide = unpack_half(half[row]);
        sums[2 * row] += wide.x;
        sums[2 * row + 1] += wide.y;
    }
}

// This thread's number in a block of two dimensions.
__device__ __forceinline__ int thread_number() {
    return threadIdx.y * blockDim.x + threadIdx.x;
}

// Where a lane's first two sums of a 16 x 8 tile stand in C with n columns, the tile's corner being (row, col).
__device__ __forceinline__ int first_pair(int n, int row, int col, int lane) {
    return (row + lane / 4) * n + col + lane % 4 * 2;
}

// A lane's sums of a tile: two where `to` points, two in the eighth row below.
__device__ __forceinline__ void store_pairs(float* to, int n, const float (&sums)[4]) {
    *reinterpret_cast<float2*>(to) = {sums[0], sums[1]};
    *reinterpret_cast<float2*>(to + 8 * n) = {sums[2], sums[3]};
}
