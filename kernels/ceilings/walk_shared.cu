// Latency of shared memory: one thread follows links.
//
// Idea:       as walk_global, with the links copied to shared memory first and turned into addresses there, so that a
//             hop is one LDS and nothing else.
// Parameters: 32 hops per iteration of the loop. The walk starts one hop before the clock.
// Expected:   29 cycles on an H200; the article says ~20 (kernels/ladder/NOTES.md).
// Takes:      at most 8192 words of links, a link every two words or more; k a multiple of 32. One block of one warp.

#include "common/clocks.cuh"

constexpr int UNROLL = 32;
constexpr int WORDS = 8192;

extern "C" __global__ void __launch_bounds__(32) walk_shared(const char* links, int n, int k, int* result) {
    // links: n words, some pairs of them addresses within links   result: [last place in words, cycles, nanoseconds]
    __shared__ unsigned near[WORDS];  // at the place of each link: the address of the next in shared memory
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(near));
#pragma unroll 1
    for (int word = 2 * threadIdx.x; word < n; word += 64) {
        const char* next = *reinterpret_cast<const char* const*>(links + 4 * word);
        near[word] = base + static_cast<unsigned>(next - links);
    }
    __syncthreads();

    unsigned place = near[0];
    if (place == ~0u) {  // never: a branch on the link, so that the clock is read after it has arrived
        return;
    }
    const Clocks start = read_clocks();
#pragma unroll 1
    for (int i = 0; i < k; i += UNROLL) {
#pragma unroll
        for (int hop = 0; hop < UNROLL; ++hop) {
            asm volatile("ld.shared.u32 %0, [%0];" : "+r"(place)::"memory");
        }
    }
    if (place == ~0u) {
        return;
    }
    const Clocks end = read_clocks();
    if (threadIdx.x == 0) {
        result[0] = (place - base) / 4;
        result[1] = end.cycles - start.cycles;
        result[2] = end.nanoseconds - start.nanoseconds;
    }
}
