// Copies 1.6: 32, 64 or 128 bits an access through a cast. The article's program, as printed.
//
// New:        what 1.1 to 1.3 are not: the number of accesses is n over a ratio in fp32, so n is converted, divided and
//             converted back before the loop, which counts in an int. The article prints int2 and int4; int is the
//             same kernel of its repository, and the one of which it says that the cast has an overhead.
// Parameters: 1024 threads a block and at most 4096 blocks, as in the article. Its kernels promise no size of a block;
//             the promise here changes no instruction, but the order of int4's for sm_80.
// Published:  no great difference at small sizes, some from a few MB on; of floats, int is slower than scalar (A100).
// Expected:   our own wide copies' times within 5%: conversion and division cost ten instructions or so a thread.
// Takes:      multiples of 128 up to 2^31 less the grid's threads. An fp32 has 24 bits, so every such n is one, and its
//             quotient is exact; the kernel leaves out the last elements of a length that is no multiple of an access.

#include "common/element.cuh"

extern "C" __global__ void __launch_bounds__(1024)
printed_vector(ELEMENT* d_in, ELEMENT* d_out, const size_t n) {  // d_in, d_out: [n]
    const float ratio = ((float)sizeof(WIDE)) / sizeof(ELEMENT);
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = blockDim.x * gridDim.x;
    const int m = n / ratio;
    for (int i = idx; i < m; i += stride) {
        reinterpret_cast<WIDE*>(d_out)[i] = reinterpret_cast<WIDE*>(d_in)[i];
    }
}
