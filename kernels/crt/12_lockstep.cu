// Level R12: blocks in lockstep.
//
// New:        nothing holds the blocks of level R9's product together, and they drift: at 16384 they read 190 GB from DRAM
//             where the panels of their waves hold 65. As in level H10 the producers meet, here every 64 steps of K, so
//             that what they have in flight fits half of the L2 (lockstep.cuh).
// Parameters: as level R9; a meeting every EVERY = 64 steps.
// Expected:   at 16384 115 to 150 GB less of 228. DRAM costs power, and power is clock: 1.09 to 1.12 times level R9
//             sustained. At 8192 1.02 to 1.03; at 4096 nothing, where a product's factors fit the L2. C has level R9's bits.
// Takes:      as level R9.

// Level R9's passes, and its product as a function that nobody calls.
#pragma push_macro("__grid_constant__")
#undef __grid_constant__
#define __grid_constant__
#define multiply(...) drifting(); __device__ __forceinline__ void multiply_drifting(__VA_ARGS__)
#include "crt/9_winograd.cu"
#undef multiply
#pragma pop_macro("__grid_constant__")

#include "crt/lockstep.cuh"

// Seven products a modulus, of blocks. Shapes: in_turn.cuh
// meeting: one, of this launch
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap factors_a, const __grid_constant__ TensorMap factors_b, Meeting* meeting,
         uint4* residues, int m, int n, int k) {
    const int half_m = half_rows(m), half_n = half_columns(n), steps = (half_depth(k) + BK - 1) / BK;
    const int rows = (half_m + BM - 1) / BM, cols = (half_n + BN - 1) / BN, tiles = PRODUCTS * COUNT * rows * cols;
    const auto place = [&](int t) {
        const Tile tile = tile_at(t, rows, cols);
        return Corner{tile.product * half_m + tile.row * BM, tile.product * half_n + tile.col * BN};
    };
    const auto finish = [&](const int (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const Tile tile = tile_at(t, rows, cols);
        const size_t at = (static_cast<size_t>(tile.product) * rows + tile.row) * cols + tile.col;
        const Modulus p = modulus(tile.product / PRODUCTS);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            uint4* to = residues + (at * WARPS + half * 4 + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[half][part * 16];
                const auto word = [&](int i) {
                    return bytes(residue(d[4 * i], p), residue(d[4 * i + 1], p), residue(d[4 * i + 2], p),
                                 residue(d[4 * i + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    };
    const InStep pace{meeting, tiles / static_cast<int>(gridDim.x) * steps};
    walk_in_step<int>(factors_a, factors_b, tiles, steps, place, finish, pace);
}
