// Reduction 3.2: the threads that work are neighbours.
//
// New:        the first threads do a step's additions, at places 2, 4, 8 ... apart: whole warps are idle or busy.
// Parameters: as 3.1.
// Expected:   faster than the divergent tree by the warps that leave; what is left is that the places of a warp's lanes
//             fall into one bank of shared memory up to 32 deep.
// Takes:      any n.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_strided(const float* x, long long n, float* sums) {  // x: [n]; sums: [gridDim.x]
    __shared__ float part[THREADS];
    const int t = threadIdx.x;
    const long long i = (long long)blockIdx.x * THREADS + t;
    float sum = i < n ? x[i] : 0.0f;
    part[t] = sum;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        const int at = 2 * step * t;
        if (at < THREADS) {
            part[at] += part[at + step];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = part[0];
    }
}
