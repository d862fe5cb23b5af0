// Latency of global memory: one thread follows links.
//
// Idea:       each link is the address of the next, so that no load can start before the one before has returned, and
//             a hop is one load and nothing else. Cycles over hops is the latency. Where the links are when the walk
//             begins, in L2 or in DRAM, is the launch's choice: how large the array is, and what ran before. The loads
//             bypass L1.
// Parameters: 32 hops per iteration of the loop, so that its own instructions do not count. The walk starts one hop
//             before the clock.
// Expected:   270 cycles in L2 and 600 in DRAM on an H200; the article says ~200 and ~400 (kernels/ladder/NOTES.md).
// Takes:      links of 8 bytes anywhere in an array of n words; k a multiple of 32. One block of one warp, whose lanes
//             all take the same way.

#include "common/clocks.cuh"

constexpr int UNROLL = 32;

extern "C" __global__ void __launch_bounds__(32) walk_global(const char* links, int n, int k, int* result) {
    // links: n words, some pairs of them addresses within links   result: [last place in words, cycles, nanoseconds]
    const char* place = links;
    asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(place)::"memory");
    if (place == nullptr) {  // never: a branch on the link, so that the clock is read after it has arrived
        return;
    }
    const Clocks start = read_clocks();
#pragma unroll 1
    for (int i = 0; i < k; i += UNROLL) {
#pragma unroll
        for (int hop = 0; hop < UNROLL; ++hop) {
            asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(place)::"memory");
        }
    }
    if (place == nullptr) {
        return;
    }
    const Clocks end = read_clocks();
    if (threadIdx.x == 0) {
        result[0] = (place - links) / 4;
        result[1] = end.cycles - start.cycles;
        result[2] = end.nanoseconds - start.nanoseconds;
    }
}
