// wgmma with fp16 sums and operands that are contiguous along m and n ("MN-major"): m64n64k16 only.
//
// Operands. A tile lies in shared memory as rows of k: 64 elements (128 bytes) of m or n a row, in the 128-byte swizzle of
// TMA: eight rows make a block of 1024 bytes, in which the 16-byte chunk c of row r stands at chunk c ^ (r % 8). A wgmma
// reads 16 rows, two blocks; the next 16 are 2048 bytes on. The instruction's last two bits say that A and B are to be
// read transposed; only 16-bit types have these bits.
//
// Sums. Two to a register, as fp16: of every 8 columns j, lane l of warp w holds
//     d[2j]:     row 16 w + l / 4,     columns 8 j + l % 4 * 2 and the next;
//     d[2j + 1]: row 16 w + l / 4 + 8, the same columns.
//
// Order as in wgmma.cuh.

#pragma once

#include "common/wgmma.cuh"

// Describe a tile of rows of 128 swizzled bytes, at a multiple of 1024 bytes of shared memory. In units of 16 bytes, bits
// 0-13 hold the address and bits 32-45 the distance of one block of eight rows to the next, 1024 bytes. Bits 16-29 would
// hold the distance to the next 64 elements of m or n, which a 64-wide instruction does not read. Bits 62-63 say
// 128-byte swizzle.
__device__ __forceinline__ Descriptor describe_mn(const void* tile) {
    constexpr Descriptor SWIZZLE_128 = 1ull << 62;
    const unsigned address = (shared_address(tile) & 0x3FFFF) >> 4;
    return SWIZZLE_128 | (static_cast<Descriptor>(1024 >> 4) << 32) | address;
}

constexpr int NEXT_K16_MN = 2048 >> 4;  // added to a descriptor: the next 16 rows of k

// d = A B + (add ? d : 0), every sum rounded to fp16. A: [16, 64] and B: [16, 64] as described by `a` and `b`.
__device__ __forceinline__ void wgmma_f16(Word (&d)[16], Descriptor a, Descriptor b, bool add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16"
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, add, 1, 1, 1, 1;\n"
        "}"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
          "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// Wait for every group, and let nothing that reads the sums be moved ahead of it, as wgmma_finish.
__device__ __forceinline__ void wgmma_finish(Word (&d)[16]) {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        asm volatile("" : "+r"(d[i])::"memory");
    }
}
