// Copy 1.5: one element an access. The article's program, as printed.
//
// New:        what 1.0 is not: the index is an int and is compared with a size_t, so a turn of the loop extends its sign
//             and compares 64 bits, and the loop is not unrolled.
// Parameters: 1024 threads a block and at most 4096 blocks, as in the article. Its kernel promises no size of a block;
//             the promise here changes no instruction (sm_80, sm_90).
// Published:  at small sizes as fast as wider accesses; float faster than the 32-bit copy with a cast (A100).
// Expected:   the time of our own scalar copy, for memory bounds it: the code has a few more instructions a turn.
// Takes:      a turn adds the grid's threads to an int, so n is at most 2^31 less these. Multiples of 128: see 1.6.

#include "common/element.cuh"

extern "C" __global__ void __launch_bounds__(1024)
printed_scalar(ELEMENT* d_in, ELEMENT* d_out, const size_t n) {  // d_in, d_out: [n]
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = blockDim.x * gridDim.x;
    for (int i = idx; i < n; i += stride) {
        d_out[i] = d_in[i];
    }
}
