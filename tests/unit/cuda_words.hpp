// Words of CUDA as C++, for device functions that use neither threads nor shared memory.
#pragma once
#include "cuda_numbers.hpp"

#define __device__
#define __constant__ static const
#define __forceinline__ inline
#define __global__
#define __shared__ static

struct Index3 {
    unsigned x, y, z;
};
static Index3 threadIdx, blockDim;
inline void __syncthreads() {}
template <class T>
T __shfl_xor_sync(unsigned, T value, int) {
    return value;
}
