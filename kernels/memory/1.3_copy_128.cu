// Copy 1.3: 128 bits an access.
//
// New:        128 bits, the widest access of these GPUs: a warp asks for 512 bytes at a time.
// Parameters: 1024 threads a block and at most 4096 blocks, as in the article.
// Published:  no gain at small sizes, a slight one from a few MB on (A100).
// Takes:      any n, from 16-byte boundaries (cudaMalloc's are 256): the first threads copy the elements after the last
//             whole access one by one.

#include "common/element.cuh"

constexpr int THREADS = 1024;
using Element = ELEMENT;
using Wide = uint4;
constexpr int EACH = sizeof(Wide) / sizeof(Element);  // elements an access
static_assert(EACH >= 1 && EACH * sizeof(Element) == sizeof(Wide), "an access is whole elements");

extern "C" __global__ void __launch_bounds__(THREADS)
copy_128(const Element* src, Element* dst, long long n) {  // src, dst: [n]
    const Wide* from = reinterpret_cast<const Wide*>(src);
    Wide* to = reinterpret_cast<Wide*>(dst);
    const long long first = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long stride = (long long)gridDim.x * THREADS;
    const long long whole = n / EACH;
    for (long long i = first; i < whole; i += stride) {
        to[i] = from[i];
    }
    const long long rest = whole * EACH + first;
    if (rest < n) {
        dst[rest] = src[rest];
    }
}
