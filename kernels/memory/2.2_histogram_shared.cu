// Histogram v2: counts a block in shared memory first.
//
// New:        a block counts in a histogram of its own in shared memory, where an atomic costs some clocks instead of a
//             journey to the L2 cache, and adds that to the global one at its end: bins + 1 atomics a block instead of
//             one an id.
// Parameters: 256 threads; the loop strides by the whole grid. The histogram must fit into shared memory.
// Published:  256M ids, 256 bins on an A100: 3.3 ms.
// Expected:   ids of one warp that meet in a bank of shared memory still take turns: 32 uniform ids fall into 32 banks
//             3.5 deep, a constant id 32 deep, unless the hardware adds up equal addresses.
// Takes:      any n; bins up to 12287 (48 KB). Ids outside [0, bins) are counted in the last place.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
clear_counts(int bins, unsigned* counts) {  // counts: [bins + 1]
    const int bin = blockIdx.x * THREADS + threadIdx.x;
    if (bin <= bins) {
        counts[bin] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
histogram_shared(const int* ids, long long n, int bins, unsigned* counts) {  // ids: [n]; counts: [bins + 1]
    extern __shared__ unsigned own[];  // [bins + 1]
    for (int bin = threadIdx.x; bin <= bins; bin += THREADS) {
        own[bin] = 0;
    }
    __syncthreads();
    const long long stride = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        atomicAdd(&own[min((unsigned)ids[i], (unsigned)bins)], 1u);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin <= bins; bin += THREADS) {
        if (own[bin]) {
            atomicAdd(&counts[bin], own[bin]);
        }
    }
}
