// Reduction 3.1: a tree over neighbours.
//
// Idea:       a block sums THREADS elements by a binary tree in shared memory: first neighbours, then pairs of pairs.
//             Its sum is one element of the next pass, and passes follow until a single element is left.
// Parameters: 256 threads, one element each.
// Published:  no figure; the article names tree reduction and measures none. The steps are those of M. Harris,
//             "Optimizing Parallel Reduction in CUDA" (NVIDIA, 2007).
// Floor:      bytes = 4 * n read. The passes after the first add 1/256.
// Expected:   far from the floor: threads that work are 2, 4, 8 ... apart, so every warp goes through all eight steps
//             for fewer and fewer lanes, and a step costs a division's remainder.
// Takes:      any n.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_divergent(const float* x, long long n, float* sums) {  // x: [n]; sums: [gridDim.x]
    __shared__ float part[THREADS];
    const int t = threadIdx.x;
    const long long i = (long long)blockIdx.x * THREADS + t;
    float sum = i < n ? x[i] : 0.0f;
    part[t] = sum;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        if (t % (2 * step) == 0) {
            part[t] += part[t + step];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = part[0];
    }
}
