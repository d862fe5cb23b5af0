// Level R16: narrow tiles at the edge.
//
// New:        4096 columns are 21 tiles of 192 and 64 columns more, for which tiles of 192 multiply 128 columns in vain: 3% of
//             all. Where no more than 64 columns are left, tiles are of 256 x 64, in the same ring.
// Parameters: as level R15.
// Expected:   10,240 tiles' worth of work instead of 10,560 at 4096: 1.02 times level R15. Nothing where n is a multiple of 192
//             or leaves more than 64. C has level R7's bits.
// Takes:      as level R5.

// Level R15's passes, and its product as a function that nobody calls.
#pragma push_macro("__grid_constant__")
#undef __grid_constant__
#define __grid_constant__
#define multiply(...) in_turn(); __device__ __forceinline__ void multiply_alone(__VA_ARGS__)
#include "crt/15_one_pass.cu"
#undef multiply
#pragma pop_macro("__grid_constant__")

#include "crt/edge.cuh"

// The whole product of each modulus. Shapes: edge.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    multiply_to_the_edge(residues_a, residues_b, residues, m, n, k);
}
