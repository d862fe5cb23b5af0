// Histogram v3.1: partial histograms with a grid of one wave, and a merge that any number of bins fits.
//
// New:        the grid of v2.1, so that the merge alone tells the two apart; and a merge with a block for 32 bins, in
//             which a warp walks every eighth partial histogram and reads 128 contiguous bytes, where v3 reads single
//             counts a histogram apart. Nothing to clear, and the same stores whatever the ids are.
// Parameters: 256 threads, 2112 blocks.
// Expected:   v2.1's time. It spends (bins + 1) * blocks atomics on the merge, half a million, 2112 of them in turn at
//             each address: some microseconds, so the merge gains next to nothing.
// Takes:      any n; bins up to 12287 (48 KB). Ids outside [0, bins) are counted in the last place.

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

// ids: [n]; partials: [gridDim.x, bins + 1]
extern "C" __global__ void __launch_bounds__(THREADS)
histogram_merged_waves(const int* ids, long long n, int bins, unsigned* partials) {
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
        partials[(long long)blockIdx.x * (bins + 1) + bin] = own[bin];
    }
}

// partials: [blocks, bins + 1]; counts: [bins + 1]. A block merges 32 bins, so a warp reads 128 contiguous bytes.
extern "C" __global__ void __launch_bounds__(THREADS)
merge_counts(int blocks, int bins, const unsigned* partials, unsigned* counts) {
    __shared__ unsigned sums[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int bin = blockIdx.x * 32 + lane;
    unsigned sum = 0;
    if (bin <= bins) {
        for (int block = warp; block < blocks; block += WARPS) {
            sum += partials[(long long)block * (bins + 1) + bin];
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && bin <= bins) {
        for (int other = 1; other < WARPS; ++other) {
            sum += sums[other][lane];
        }
        counts[bin] = sum;
    }
}
