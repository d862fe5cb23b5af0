// wgmma: four warps multiply a 64 x 16 by a 16 x N tile, both read from shared memory, and add to sums in registers.
//
// Operands. Both tiles lie K-major in shared memory, 64 elements (128 bytes) of k a row, in the 128-byte swizzle of
// TMA: eight rows make a block of 1024 bytes, in which the 16-byte chunk c of row r stands at chunk c ^ (r % 8). A
// descriptor names such a tile; the instruction reads 16 of its 64 values of k, and the next 16 are 32 bytes on.
//
// Sums. d[N / 2] of a thread: warp w (0 to 3) holds rows 16 w to 16 w + 15. Of every 8 columns j, lane l holds
//     d[4j + 0], d[4j + 1]: row 16 w + l / 4,     columns 8 j + l % 4 * 2 and the next;
//     d[4j + 2], d[4j + 3]: row 16 w + l / 4 + 8, the same columns.
//
// Order. wgmma_fence before the first wgmma, and whenever other code touched the sums; then any number of wgmma, which
// run asynchronously and in order; wgmma_commit closes a group; wgmma_wait<G> returns when at most G groups still run.
// Until then the sums and the tiles belong to the tensor cores. wgmma_finish waits for all, before the sums are read.
//
// Two things make ptxas wait after every wgmma (it says so: C7510 to C7519), and look harmless: sums that are declared
// without a value, though the first wgmma replaces them; and sums read without wgmma_finish.

#pragma once

#include "common/element.cuh"
#include "common/mbarrier.cuh"

using Descriptor = unsigned long long;

// Describe a tile whose rows are 128 swizzled bytes, at a multiple of 1024 bytes of shared memory. In units of 16
// bytes, bits 0-13 hold the address and bits 32-45 the distance of one block of eight rows to the next, 1024 bytes; bits
// 62-63 say 128-byte swizzle. (Bits 16-29, a second distance, say nothing in this layout.)
__device__ __forceinline__ Descriptor describe(const void* tile) {
    const unsigned address = (shared_address(tile) & 0x3FFFF) >> 4;
    return (1ull << 62) | (static_cast<Descriptor>(1024 >> 4) << 32) | address;
}

constexpr int NEXT_K16 = 32 >> 4;  // added to a descriptor: the next 16 values of k

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int GROUPS>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

// Wait for every group, and let nothing that reads the sums be moved ahead of it: to the compiler they are ordinary
// registers, so it is told that each of them changes here.
template <int COUNT>
__device__ __forceinline__ void wgmma_finish(float (&d)[COUNT]) {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

// The sums as operands, d[i] onwards ...
#define SUMS_8(i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)
// ... and their names in the instruction's text: TEN(4) is "%40, %41, ..., %49, ".
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define NAMES_32 TEN() TEN(1) TEN(2) "%30, %31"
#define NAMES_64 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63"
#define NAMES_128                                                                                              \
    TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) \
    "%120, %121, %122, %123, %124, %125, %126, %127"
// S sums a thread, then as operands S, S + 1 and S + 2 the descriptors and whether to add to the sums or replace them.
#define WGMMA(TYPE, N, S, A, B, ADD)                                                                     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES_##S "}, %" #A \
                 ", %" #B ", add, 1, 1, 0, 0;\n}"                                                        \
                 : SUMS_##S(0)                                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define WGMMA_TYPES(N, S, A, B, ADD)           \
    if constexpr (SAME<Element, bf16>) {       \
        WGMMA("bf16", N, S, A, B, ADD);        \
    } else {                                   \
        WGMMA("f16", N, S, A, B, ADD);         \
    }

// d = A B + (add ? d : 0). A: [64, 16] and B: [N, 16] as described by `a` and `b`.
template <int N, class Element>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    static_assert(N == 64 || N == 128 || N == 256, "the widths that the ladder uses");
    if constexpr (N == 64) {
        WGMMA_TYPES(64, 32, 32, 33, 34)
    } else if constexpr (N == 128) {
        WGMMA_TYPES(128, 64, 64, 65, 66)
    } else {
        WGMMA_TYPES(256, 128, 128, 129, 130)
    }
}

#undef WGMMA_TYPES
#undef WGMMA
#undef NAMES_128
#undef NAMES_64
#undef NAMES_32
#undef TEN
#undef SUMS_128
#undef SUMS_64
#undef SUMS_32
#undef SUMS_8

// Move registers between warpgroups: give back all but COUNT a thread, or claim up to COUNT of what others gave back.
// All four warps of a warpgroup do so together.
template <int COUNT>
__device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void registers_claim() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Store four 8 x 8 tiles of 16-bit elements from a warp's registers to shared memory: register i of lane l holds two
// elements of row l / 4 of tile i, as the sums do; lane l names the address of row l % 8 of tile l / 8.
__device__ __forceinline__ void stmatrix(unsigned address, Word one, Word two, Word three, Word four) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(one), "r"(two),
                 "r"(three), "r"(four)
                 : "memory");
}
