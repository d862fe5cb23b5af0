// Level 0: vector addition in place, y = x + y.
//
// Idea:       a grid of blocks of threads, each thread identified by blockIdx and threadIdx. The grid-stride loop lets
//             any grid cover any length, and neighbouring threads access neighbouring elements in every iteration.
// Parameters: 256 threads a block, as in the article, which launches ceil(n / 256) blocks.
// Published:  no figure. The article adds 2^20 elements in managed memory to teach launching, and that a launch is
//             asynchronous.
// Takes:      any n below 2^31 (32-bit indices).

constexpr int THREADS = 256;
static_assert(THREADS % 32 == 0, "a block is whole warps");

extern "C" __global__ void __launch_bounds__(THREADS)
vector_add(int n, const float* x, float* y) {  // x, y: [n]
    const int stride = gridDim.x * THREADS;
    // Unsigned: i + stride may pass 2^31 on the last step.
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < unsigned(n); i += stride) {
        y[i] = x[i] + y[i];
    }
}
