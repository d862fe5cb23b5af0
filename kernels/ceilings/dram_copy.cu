// Ceiling: how many bytes a second the GPU copies from one buffer to another.
//
// Idea:       the plainest copy that keeps memory busy. A thread starts UNROLL independent 128-bit loads before its
//             first store, so that a multiprocessor has enough bytes in flight to cover the latency of DRAM; a warp's
//             lanes touch neighbours, so every request is 512 contiguous bytes. The loop strides by the whole grid.
// Parameters: 256 threads, 4 loads of 16 bytes: 16 KB a block in flight, 128 KB a multiprocessor of 2048 threads. By
//             Little's law 4.8 TB/s at 700 ns needs 3.4 MB, 26 KB for each of 132 multiprocessors.
// Floor:      bytes = 2 * 16 * count: each element is read once and written once. Buffers must be several times the
//             L2.

constexpr int THREADS = 256;
constexpr int UNROLL = 4;

extern "C" __global__ void __launch_bounds__(THREADS)
dram_copy(const float4* src, float4* dst, long long count) {  // src, dst: [count] of 16 bytes each
    const long long stride = (long long)gridDim.x * THREADS * UNROLL;
    for (long long i0 = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x; i0 < count; i0 += stride) {
        float4 values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (i0 + u * THREADS < count) {
                values[u] = src[i0 + u * THREADS];
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (i0 + u * THREADS < count) {
                dst[i0 + u * THREADS] = values[u];
            }
        }
    }
}
