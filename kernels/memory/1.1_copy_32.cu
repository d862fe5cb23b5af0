// Copy 1.1: 32 bits an access.
//
// New:        pointers cast to 32-bit words: two halves an access. A float is a word already: for float only the cast
//             is new.
// Parameters: 1024 threads a block and at most 4096 blocks, as in the article.
// Published:  with float slower than the scalar copy on an A100.
// Expected:   for half half the requests; for float no difference, as the accesses are the same.
// Takes:      any n, from 4-byte boundaries (cudaMalloc's are 256): the first threads copy the elements after the last
//             whole access one by one.

#include "common/element.cuh"

constexpr int THREADS = 1024;
using Element = ELEMENT;
using Wide = unsigned;
constexpr int EACH = sizeof(Wide) / sizeof(Element);  // elements an access
static_assert(EACH >= 1 && EACH * sizeof(Element) == sizeof(Wide), "an access is whole elements");

extern "C" __global__ void __launch_bounds__(THREADS)
copy_32(const Element* src, Element* dst, long long n) {  // src, dst: [n]
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
