// GELU in one kernel: y = x · 0.5 · (1 + erf(x / 1.41421)).
//
// Idea:       PyTorch runs the formula as five kernels, each of which reads whole arrays from memory and writes one; here
//             an element is read once and written once, and everything between happens in registers. 16 bytes an
//             access.
// Parameters: 256 threads, UNROLL loads of 16 bytes a thread. One is fastest at every size: 4 KB a block, as in the
//             fastest copy (NOTES.md).
// Floor:      8 bytes an element, against 44 of the five kernels (four read one array and write one, the last reads
//             two). erff and the rest are some thirty instructions an element, half of what an H200 has time for at 4.3
//             TB/s.
// Published:  4.51 times the eager formula on a T4, by torch.jit.script.
// Takes:      any n below 2^31; x and y aligned to 16 bytes. The last n mod 4 elements are taken one by one.

constexpr int THREADS = 256;
#ifndef UNROLL_LOADS
#define UNROLL_LOADS 1
#endif
constexpr int UNROLL = UNROLL_LOADS;
// The article's constant, not the square root of two; multiplied by its reciprocal, as PyTorch divides by a number.
constexpr float RECIPROCAL = 1.0f / 1.41421f;

__device__ float gelu(float x) {
    return x * 0.5f * (1.0f + erff(x * RECIPROCAL));
}

extern "C" __global__ void __launch_bounds__(THREADS)
gelu_fused(int n, const float* __restrict__ x, float* __restrict__ y) {  // x, y: [n]
    const int groups = n / 4;
    const float4* x4 = reinterpret_cast<const float4*>(x);  // [groups]
    float4* y4 = reinterpret_cast<float4*>(y);
    const int first = blockIdx.x * THREADS * UNROLL + threadIdx.x;
    float4 values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS < groups) {
            values[u] = x4[first + u * THREADS];
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS < groups) {
            const float4 v = values[u];
            y4[first + u * THREADS] = make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
        }
    }
    const int tail = 4 * groups + threadIdx.x;
    if (blockIdx.x == 0 && tail < n) {
        y[tail] = gelu(x[tail]);
    }
}
