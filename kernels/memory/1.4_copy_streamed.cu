// Copy 1.4: as fast as the driver's own.
#include "common/element.cuh"
#ifndef PARAMETERS
#define PARAMETERS THREADS = 512, UNROLL = 4
#endif
#ifndef LOAD
#define LOAD "ld.global.nc.L1::no_allocate"
#endif
#ifndef STORE
#define STORE "st.global.cs"
#endif
constexpr int PARAMETERS;
using Element = ELEMENT;
using Wide = uint4;
constexpr int EACH = sizeof(Wide) / sizeof(Element);

__device__ __forceinline__ Wide load(const Wide* from) {
    Wide value;
    asm volatile(LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(from));
    return value;
}

__device__ __forceinline__ void store(Wide* to, Wide value) {
    asm volatile(STORE ".v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_streamed(const Element* src, Element* dst, long long n) {  // src, dst: [n]
    const Wide* from = reinterpret_cast<const Wide*>(src);
    Wide* to = reinterpret_cast<Wide*>(dst);
    const long long whole = n / EACH;
    const long long stride = (long long)gridDim.x * THREADS * UNROLL;
    long long i = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    for (; i + (UNROLL - 1) * THREADS < whole; i += stride) {
        Wide values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            values[u] = load(from + i + u * THREADS);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            store(to + i + u * THREADS, values[u]);
        }
    }
    for (int u = 0; u < UNROLL; ++u) {
        if (i + u * THREADS < whole) {
            store(to + i + u * THREADS, load(from + i + u * THREADS));
        }
    }
    const long long rest = whole * EACH + (long long)blockIdx.x * THREADS + threadIdx.x;
    if (rest < n) {
        dst[rest] = src[rest];
    }
}
