// Level R13: a tile for both consumers, and for two blocks.
//
// New:        at the power cap bytes cost speed. Both consumers multiply one tile of 256 x 192, and two blocks load half of
//             their tile of B each: 44 KB per step from the L2 and 56 into shared memory, for 80 and 80 in level R12. In
//             return epilogues are exposed: 2880 cycles of a tile's 98,000 at 16384.
// Parameters: 256 x 192 per block, steps of 128 bytes along K, 4 stages of 56 KB; a meeting every EVERY = 32 steps.
// Expected:   the product alone takes 0.95 to 0.97 of level R12's time at 16384, so 1.03 to 1.04 in all. C has level R9's
//             bits.
// Takes:      as level R9.

// Level R9's passes, and its product as a function that nobody calls.
#pragma push_macro("__grid_constant__")
#undef __grid_constant__
#define __grid_constant__
#define multiply(...) in_turn(); __device__ __forceinline__ void multiply_alone(__VA_ARGS__)
#include "crt/9_winograd.cu"
#undef multiply
#pragma pop_macro("__grid_constant__")

#include "crt/lockstep.cuh"
#include "crt/shared_tile.cuh"

// Seven products a modulus, of blocks. Shapes: shared_tile.cuh   meeting: one, of this launch
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap factors_a, const __grid_constant__ TensorMap factors_b, Meeting* meeting,
         uint4* residues, int m, int n, int k) {
    multiply_shared<PRODUCTS, InStep>(factors_a, factors_b, meeting, residues, PRODUCTS * COUNT, half_rows(m),
                                      half_columns(n), half_depth(k));
}
