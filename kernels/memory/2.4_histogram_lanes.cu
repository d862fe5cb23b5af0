// Histogram v4: every lane counts in a bank of its own.
//
// New:        (1) The block's histogram is there 32 times, interleaved: the counter of lane l for a bin is word l of
//             that bin's 128 bytes, in bank l. The lanes of a warp never meet, in no bank and at no address, whatever
//             the ids: an atomic of a warp is one pass over shared memory for uniform and for constant ids alike. (2)
//             Ids are loaded 128 bits a lane, UNROLL loads in flight, past the L1 cache, in which nothing is found
//             again. Nothing outlives a launch, so any number of them may run at once, on counts of their own.
// Parameters: 1024 threads share 33 KB of counters; two blocks fill a multiprocessor, and the grid is what the GPU
//             holds at a time. With blocks of 512 and 256 threads it makes 0.92 and 0.82 of its speed (H200, uniform
//             ids), and one histogram a block instead of 32 makes no difference to blocks of 512: see NOTES.md.
// Expected:   4 * n bytes at the rate at which DRAM is read, if an SM counts 4 ids a clock. A pass of 32 ids takes two
//             clocks or so, and address, range check and atomic are three instructions an id: 16 a clock and 42.
// Takes:      any n, ids from a 16-byte boundary; bins up to 256. Ids outside [0, bins) are counted in the last place.

#ifndef PARAMETERS
#define PARAMETERS THREADS = 1024, UNROLL = 4
#endif
constexpr int PARAMETERS;
constexpr int MOST_BINS = 256;
constexpr int WARPS = THREADS / 32;

// Four ids, loaded once: L1 need not keep them.
__device__ __forceinline__ uint4 load_ids(const uint4* from) {
    uint4 ids;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ids.x), "=r"(ids.y), "=r"(ids.z), "=r"(ids.w)
                 : "l"(from));
    return ids;
}

extern "C" __global__ void __launch_bounds__(256)
clear_counts(int bins, unsigned* counts) {  // counts: [bins + 1]
    const int bin = blockIdx.x * 256 + threadIdx.x;
    if (bin <= bins) {
        counts[bin] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
histogram_lanes(const int* ids, long long n, int bins, unsigned* counts) {  // ids: [n]; counts: [bins + 1]
    __shared__ unsigned own[MOST_BINS + 1][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned outside = bins;
    for (int bin = warp; bin <= bins; bin += WARPS) {
        own[bin][lane] = 0;
    }
    __syncthreads();

    const auto count = [&](unsigned id) { atomicAdd(&own[min(id, outside)][lane], 1u); };
    const uint4* fours = reinterpret_cast<const uint4*>(ids);
    const long long whole = n / 4;
    const long long stride = (long long)gridDim.x * THREADS * UNROLL;
    long long i = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    for (; i + (UNROLL - 1) * THREADS < whole; i += stride) {
        uint4 four[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            four[u] = load_ids(fours + i + u * THREADS);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            count(four[u].x), count(four[u].y), count(four[u].z), count(four[u].w);
        }
    }
    for (int u = 0; u < UNROLL; ++u) {  // the last, incomplete step of this thread
        if (i + u * THREADS < whole) {
            const uint4 four = load_ids(fours + i + u * THREADS);
            count(four.x), count(four.y), count(four.z), count(four.w);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < n % 4) {
        count(ids[whole * 4 + threadIdx.x]);
    }
    __syncthreads();

    for (int bin = warp; bin <= bins; bin += WARPS) {
        const unsigned sum = __reduce_add_sync(~0u, own[bin][lane]);
        if (lane == 0 && sum) {
            atomicAdd(&counts[bin], sum);
        }
    }
}
