// Level R15: one pass over B.
//
// New:        a cluster of eight blocks keeps 16 columns of B in its shared memory, 512 rows per block, and adds up their
//             norms. So B is read once, as A has been since level R6, with one launch instead of three. A thread takes eight
//             neighbours, and stores 8 bytes per modulus; in the reconstruction it takes 8 elements instead of 16, so that
//             more warps hide each other's waits.
// Parameters: clusters of 8 blocks of 256 threads, 64 KB each; blocks of 128 threads for the reconstruction.
// Expected:   134 MB less of 1.3 GB at 4096, and passes take 377 us instead of 439: 1.034 times level R7 there. From K = 4096
//             on, what does not fit is read twice. C has level R7's bits.
// Takes:      as level R5.

#define UNSIGNED 1

#include "crt/eight.cuh"
#include "crt/in_turn.cuh"
#include "crt/one_pass.cuh"

// The whole product of each modulus. Shapes: in_turn.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    multiply_in_turn<1>(residues_a, residues_b, residues, m, n, k);
}

constexpr int UNITS = WARPS * PARTS;  // of a tile: 32 lanes' words, four each

// A thread takes two of four words. grid: UNITS / 2 * tiles   block: 128, for two units
extern "C" __global__ void __launch_bounds__(128, 6)
reconstruct_residues(const uint4* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / (UNITS / 2);
    const int tile_row = place / cols, tile_col = place % cols;
    const int unit = blockIdx.x % (UNITS / 2) * 2 + threadIdx.x / 64, half = threadIdx.x % 2, lane = threadIdx.x / 2 % 32;
    const size_t next = static_cast<size_t>(gridDim.x) * 2 * 64;  // to the next modulus
    const size_t first = (static_cast<size_t>(place) * UNITS + unit) * 64;
    const uint2* from = reinterpret_cast<const uint2*>(residues) + first + threadIdx.x % 64;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const uint2 two = __ldcs(&from[i * next]);
        all[i] = make_uint4(two.x, two.y, 0, 0);
    }
    double high[8] = {}, low[8] = {};
    weigh_eight(all, 0, high, low);
    const int top = tile_row * BM + unit / PARTS * 16 + lane / 4;
    const int left = tile_col * BN + unit % PARTS * 32 + half * 16 + lane % 4 * 2;
    write_eight(high, low, top, left, exponents_a, exponents_b, c, m, n);
}
