// Reduction 3.8: bound by memory alone.
//
// New:        (1) Elements are loaded 128 bits a lane, UNROLL loads in flight, past the L1 cache, and added in four
//             sums a thread, so that no addition waits for the one before. (2) A warp sums by shuffles, a block its
//             warps' sums by one warp more: one barrier. As before, a second launch of one block adds the blocks'
//             sums, in their order, so the result repeats bit for bit. Nothing outlives a launch.
// Parameters: 512 threads, 4 loads in flight; the grid is what the GPU holds at a time.
// Expected:   4 * n bytes at the rate at which DRAM is read: 2048 threads a multiprocessor with 64 bytes each in flight
//             are 128 KB, five times what 4.8 TB/s at 700 ns wants.
// Takes:      any n, x from a 16-byte boundary.

#ifndef PARAMETERS
#define PARAMETERS THREADS = 512, UNROLL = 4
#endif
constexpr int PARAMETERS;
constexpr int WARPS = THREADS / 32;
static_assert(WARPS <= 32, "one warp adds the warps' sums");

// Four elements, loaded once: L1 need not keep them.
__device__ __forceinline__ float4 load4(const float4* from) {
    float4 four;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "l"(from));
    return four;
}

// The sum of all threads' values, in thread 0.
__device__ __forceinline__ float block_sum(float sum) {
    __shared__ float of_warp[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int away = 16; away > 0; away /= 2) {
        sum += __shfl_down_sync(~0u, sum, away);
    }
    if (lane == 0) {
        of_warp[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        sum = lane < WARPS ? of_warp[lane] : 0.0f;
#pragma unroll
        for (int away = 16; away > 0; away /= 2) {
            sum += __shfl_down_sync(~0u, sum, away);
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_wide(const float* x, long long n, float* sums_of_blocks) {  // x: [n]; sums_of_blocks: [gridDim.x]
    const float4* fours = reinterpret_cast<const float4*>(x);
    const long long whole = n / 4;
    const long long stride = (long long)gridDim.x * THREADS * UNROLL;
    long long i = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
    const auto add = [&](float4 four) {
        sums.x += four.x, sums.y += four.y, sums.z += four.z, sums.w += four.w;
    };
    for (; i + (UNROLL - 1) * THREADS < whole; i += stride) {
        float4 four[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            four[u] = load4(fours + i + u * THREADS);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            add(four[u]);
        }
    }
    for (int u = 0; u < UNROLL; ++u) {  // the last, incomplete step of this thread
        if (i + u * THREADS < whole) {
            add(load4(fours + i + u * THREADS));
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < n % 4) {
        sums.x += x[whole * 4 + threadIdx.x];
    }
    const float sum = block_sum((sums.x + sums.y) + (sums.z + sums.w));
    if (threadIdx.x == 0) {
        sums_of_blocks[blockIdx.x] = sum;
    }
}
