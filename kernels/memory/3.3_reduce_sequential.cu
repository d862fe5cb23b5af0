// Reduction 3.3: neighbouring threads add at neighbouring places.
//
// New:        a step adds the upper half to the lower half, so a warp's lanes use 32 different banks.
// Parameters: as 3.1.
// Expected:   no conflicts; half of the threads still idle from the first step on.
// Takes:      any n.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_sequential(const float* x, long long n, float* sums) {  // x: [n]; sums: [gridDim.x]
    __shared__ float part[THREADS];
    const int t = threadIdx.x;
    const long long i = (long long)blockIdx.x * THREADS + t;
    float sum = i < n ? x[i] : 0.0f;
    part[t] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            part[t] += part[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = part[0];
    }
}
