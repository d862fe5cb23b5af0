// Level 0: vector addition, z = x + y.
//
// Idea:       a grid of blocks of threads, each thread known by blockIdx and threadIdx. The loop strides by the whole
//             grid, so any grid covers any length, and neighbouring threads touch neighbouring elements at every
//             step.
// Parameters: 256 threads a block: eight warps, enough to fill a multiprocessor in a few blocks, and a divisor of
//             every architecture's thread limit.
// Published:  no figure. The article adds 2^20 elements to teach launching, and that a launch is asynchronous.
// Takes:      any n below 2^31 (32-bit indices).

constexpr int THREADS = 256;
static_assert(THREADS % 32 == 0, "a block is whole warps");

extern "C" __global__ void __launch_bounds__(THREADS)
vector_add(int n, const float* x, const float* y, float* z) {  // x, y, z: [n]
    const int stride = gridDim.x * THREADS;
    // Unsigned: i + stride may pass 2^31 on the last step.
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < unsigned(n); i += stride) {
        z[i] = x[i] + y[i];
    }
}
