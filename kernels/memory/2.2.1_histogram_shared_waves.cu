// Histogram v2.1: v2 with a grid of one wave.
//
// New:        2112 blocks, 16 for each of 132 multiprocessors, whatever n is. A block counts 127,000 of 2^28 ids before
//             it adds its counts: bins + 1 global atomics a block are half a million instead of 67 million. Loops over
//             the bins let it have more bins than a block has threads, and a count of zero is not added.
// Parameters: 256 threads; the loop strides by the whole grid. The histogram must fit into shared memory.
// Expected:   six times v2, as v3 is. Ids of one warp that meet in a bank of shared memory still take turns: 32 uniform
//             ids fall into 32 banks 3.5 deep, a constant id 32 deep, unless the hardware adds up equal addresses.
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
histogram_shared_waves(const int* ids, long long n, int bins, unsigned* counts) {  // ids: [n]; counts: [bins + 1]
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
