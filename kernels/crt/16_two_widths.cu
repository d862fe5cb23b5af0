// Level R16: tiles of two widths.
//
// New:        4096 columns are 21 tiles of 192 and a third of one more, so level R15 multiplies 3% in vain there. They are 16
//             tiles of 208 and 4 of 192, too: nothing is multiplied in vain.
// Parameters: tiles of 128 x 208 and 128 x 192, 5 stages of 42 KB; consumers have 240 registers, of which 208 are sums.
// Expected:   0.97 of level R15's work and operands at 4096, 0.992 at 8192 and 16384: 1.02 times level R15 at 4096.
//             C has level R7's bits.
// Takes:      as level R5.

#define UNSIGNED 1

#include "crt/eight.cuh"
#include "crt/two_widths.cuh"
#include "crt/one_pass.cuh"

// The whole product of each modulus. Shapes: two_widths.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint2* residues,
         int m, int n, int k) {
    multiply_in_two_widths(residues_a, residues_b, residues, m, n, k);
}

constexpr int UNITS = WARPS * PARTS;  // of a tile: 16 x 16 elements of C, which a warp takes
constexpr int TOGETHER = 4;           // units per block

// grid: UNITS / TOGETHER * tiles   block: (32, TOGETHER)
extern "C" __global__ void __launch_bounds__(32 * TOGETHER, 6)
reconstruct_residues(const uint2* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const TileColumns columns(n);
    const int place = blockIdx.x / (UNITS / TOGETHER), row = place / columns.count, col = place % columns.count;
    const int lane = threadIdx.x;
    const int unit = blockIdx.x % (UNITS / TOGETHER) * TOGETHER + threadIdx.y, part = unit % PARTS;
    if (part * 16 >= columns.width(col)) {
        return;
    }
    const size_t next = static_cast<size_t>(gridDim.x) * TOGETHER * 32;  // to the next modulus
    const uint2* from = residues + (static_cast<size_t>(place) * UNITS + unit) * 32 + lane;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const uint2 two = __ldcs(&from[i * next]);
        all[i] = make_uint4(two.x, two.y, 0, 0);
    }
    double high[8] = {}, low[8] = {};
    weigh_eight(all, 0, high, low);
    const int top = row * BM + unit / PARTS * 16 + lane / 4;
    const int left = columns.start(col) + part * 16 + lane % 4 * 2;
    write_eight(high, low, top, left, exponents_a, exponents_b, c, m, n);
}
