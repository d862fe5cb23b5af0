// Reduction 3.7: many elements a thread.
//
// New:        a thread adds elements one grid apart before the tree, so the tree and its barriers come once for
//             thousands of elements, and a grid of a few blocks a multiprocessor leaves so few sums that a second pass
//             of one block ends it.
// Parameters: 256 threads; at most 2112 blocks, 16 for each of 132 multiprocessors.
// Expected:   near the floor, as long as enough loads are in flight: one 32-bit load a thread, 8 KB a multiprocessor of
//             2048 threads, where DRAM at 4.8 TB/s and 700 ns wants 26 KB. So about a third, unless the compiler
//             unrolls.
// Takes:      any n.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_many(const float* x, long long n, float* sums) {  // x: [n]; sums: [gridDim.x]
    __shared__ float part[THREADS];
    const int t = threadIdx.x;
    const long long stride = (long long)gridDim.x * THREADS;
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * THREADS + t; i < n; i += stride) {
        sum += x[i];
    }
    part[t] = sum;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 16; half /= 2) {
        if (t < half) {
            part[t] = sum = sum + part[t + half];
        }
        __syncthreads();
    }
    if (t < 32) {
        sum += __shfl_down_sync(~0u, sum, 16);
        sum += __shfl_down_sync(~0u, sum, 8);
        sum += __shfl_down_sync(~0u, sum, 4);
        sum += __shfl_down_sync(~0u, sum, 2);
        sum += __shfl_down_sync(~0u, sum, 1);
    }
    if (t == 0) {
        sums[blockIdx.x] = sum;
    }
}
