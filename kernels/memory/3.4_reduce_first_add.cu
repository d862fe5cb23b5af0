// Reduction 3.4: the first addition on loading.
//
// New:        a thread loads two elements and adds them before the tree: half as many blocks for the same elements.
// Parameters: 256 threads, two elements each.
// Expected:   up to twice as fast: the tree's cost a block stays, and blocks are halved.
// Takes:      any n.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_first_add(const float* x, long long n, float* sums) {  // x: [n]; sums: [gridDim.x]
    __shared__ float part[THREADS];
    const int t = threadIdx.x;
    const long long i = (long long)blockIdx.x * (2 * THREADS) + t;
    float sum = i < n ? x[i] : 0.0f;
    if (i + THREADS < n) {
        sum += x[i + THREADS];
    }
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
