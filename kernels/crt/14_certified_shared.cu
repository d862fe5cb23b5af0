// Level R14: a bound for every element, on shared tiles.
//
// New:        where the bound lets every tile take residues and K is long, level R13's tiles (multiply_whole); otherwise level
//             R10's product of the tiles that a list names. The device decides, so both are launched, and one leaves at once.
// Parameters: as levels R10 and R13.
// Expected:   one launch more, 2 us; 1.02 times level R10 at 8192 and 1.10 at 16384, where its blocks drift apart. C has
//             level R10's bits.
// Takes:      as level R10.

// Level R10, and its decision as a function.
#define decide(...) decide_alone(); __device__ __forceinline__ void decide_tiles(__VA_ARGS__)
#include "crt/10_certified.cu"
#undef decide

// It declares the half of a shared tile as listed.cuh does, so its names have a space of their own.
namespace in_step {
#include "crt/lockstep.cuh"
}
#include "crt/shared_tile.cuh"

#ifndef LONG
#define LONG 6144
#endif

// Whether the product is made on shared tiles: every tile of C takes residues, and K is so long that the bytes saved count
// for more than the epilogues exposed.
__device__ __forceinline__ bool is_shared(const int* plan, int m, int n, int k) {
    return k >= LONG && plan[PLAN_TILES] == (m + BM - 1) / BM * ((n + BN - 1) / BN);
}

// One block of 1024. some: moduli and tiles that take residues, as `multiply` reads them of a plan; no tile, where tiles are
// shared.
extern "C" __global__ void __launch_bounds__(1024)
decide(const float4* worst, int* plan, int* some, int* list, int* natives, unsigned char* kinds, int m, int n, int k,
       int loosened, int eager) {
    decide_tiles(worst, plan, list, natives, kinds, m, n, k, loosened, eager);
    if (threadIdx.x == 1023) {  // which has written the plan
        some[PLAN_COUNT] = plan[PLAN_COUNT];
        some[PLAN_TILES] = is_shared(plan, m, n, k) ? 0 : plan[PLAN_TILES];
    }
}

// All tiles, where they are shared. Shapes: shared_tile.cuh   meeting: one, of this launch
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply_whole(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, const int* plan,
               in_step::Meeting* meeting, uint4* residues, int m, int n, int k) {
    if (is_shared(plan, m, n, k)) {
        multiply_shared<1, in_step::InStep>(residues_a, residues_b, meeting, residues, plan[PLAN_COUNT], m, n, k);
    }
}
