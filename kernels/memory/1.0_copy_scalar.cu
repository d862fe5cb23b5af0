// Copy 1.0: an element an access.
//
// Idea:       the plain copy loop. Neighbouring threads touch neighbouring elements, so a warp asks for 64 contiguous
//             bytes of half or 128 of float in one request.
// Parameters: 1024 threads a block and at most 4096 blocks, as in the article; the loop strides by the whole grid.
// Published:  the article plots this against wider accesses on an A100 and prints no number.
// Floor:      bytes = 2 * sizeof(Element) * n: each element is read once and written once.
// Takes:      any n. ELEMENT is fp16 or float; a copy moves bits.

#include "common/element.cuh"

constexpr int THREADS = 1024;
using Element = ELEMENT;

extern "C" __global__ void __launch_bounds__(THREADS)
copy_scalar(const Element* src, Element* dst, long long n) {  // src, dst: [n]
    const long long stride = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        dst[i] = src[i];
    }
}
