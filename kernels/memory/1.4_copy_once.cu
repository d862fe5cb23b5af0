// Copy 1.4: one access a thread, and as many threads as there are accesses.
//
// New:        no loop: a thread moves 16 bytes and ends, and the grid covers the array. Blocks of 256 threads start in
//             the order of the array, eight on a multiprocessor, so at any moment the GPU works on one stretch of 4 MB.
// Parameters: 256 threads, plain loads and stores. With hints (ld.global.nc with L1::no_allocate, st.global.cs) it
//             makes 0.975 of cudaMemcpy's rate, with two or four loads a thread 0.92 and 0.90, in a loop of as many
//             blocks as the GPU holds 0.84 to 0.90, and by the copy engine through shared memory 0.92 to 0.95 (H200).
// Expected:   0.97 of cudaMemcpy or more. 2048 threads with 16 bytes each are 32 KB a multiprocessor in flight, enough.
// Takes:      any n, from 16-byte boundaries: the first threads copy the elements after the last whole access.

#include "common/element.cuh"

constexpr int THREADS = 256;
using Element = ELEMENT;
using Wide = uint4;
constexpr int EACH = sizeof(Wide) / sizeof(Element);  // elements an access

extern "C" __global__ void __launch_bounds__(THREADS)
copy_once(const Element* src, Element* dst, long long n) {  // src, dst: [n]
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long whole = n / EACH;
    if (i < whole) {
        reinterpret_cast<Wide*>(dst)[i] = reinterpret_cast<const Wide*>(src)[i];
    }
    const long long rest = whole * EACH + i;
    if (rest < n) {
        dst[rest] = src[rest];
    }
}
