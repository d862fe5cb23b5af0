// Level R7: a consumer a tile.
//
// New:        as in level H12 one consumer multiplies a whole tile, now of 128 x 192, while the other reduces and stores the
//             one before, so the tensor cores never wait for an epilogue. No clusters: requests of neighbours for one
//             line are joined on their way to the L2.
// Parameters: a tile of 128 x 192 a consumer, steps of 128 bytes along K, 5 stages of 40 KB; GROUP 16 tiles.
// Expected:   no epilogue (6% of the product at 4096, 3% at 8192) against 0.8 to 3% of tiles that reach beyond C.
// Takes:      as level R5.

#define UNSIGNED 1

#include "crt/columns.cuh"
#include "crt/eight.cuh"
#include "crt/in_turn.cuh"

// The whole product of each modulus. Shapes: in_turn.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, uint4* residues,
         int m, int n, int k) {
    multiply_in_turn<1>(residues_a, residues_b, residues, m, n, k);
}

constexpr int ROW = 24 * 1024;  // numbers of a row that are kept in shared memory

// A: [m, k]   residues: COUNT x [m, pitch]   grid: m   block: 512   shared memory: a row, if it fits
extern "C" __global__ void __launch_bounds__(512) row_pass(const double* a, int* exponents, signed char* residues, int m,
                                                           int k) {
    __shared__ int chosen;
    double2* const kept = reinterpret_cast<double2*>(shared_bytes);  // left halves of the quads, then right halves
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    const int quads = pitch(k) / 4;
    const bool keeps = k <= ROW;
    Norm norm{};
    for (int quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        double x[4];
        load_quad(x, row, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            include(norm, x[i]);
        }
        if (keeps) {
            kept[quad] = make_double2(x[0], x[1]);
            kept[quads + quad] = make_double2(x[2], x[3]);
        }
    }
    norm = over_block(norm);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = chosen = exponent(norm, k);
    }
    __syncthreads();
    const Scale s = scale(chosen);
    Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        double x[4];
        if (keeps) {  // each thread reads what it wrote itself
            const double2 left = kept[quad], right = kept[quads + quad];
            x[0] = left.x, x[1] = left.y, x[2] = right.x, x[3] = right.y;
        } else {
            load_quad(x, row, quad, k);
        }
        const Integer whole[4] = {integer(x[0], s), integer(x[1], s), integer(x[2], s), integer(x[3], s)};
        store_residues(whole, to + quad, static_cast<size_t>(m) * pitch(k) / 4);
    }
}

// grid: PARTS * tiles   block: (32, 8): a warp's lanes, the warps that a tile's residues came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct_residues(const uint4* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const int tile_row = place / cols, tile_col = place % cols;
    const size_t next = static_cast<size_t>(gridDim.x) * WARPS * 32;  // to the next modulus
    const size_t warp = static_cast<size_t>(place) * WARPS + threadIdx.y;
    const uint4* from = residues + (warp * PARTS + part) * 32 + threadIdx.x;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = tile_row * BM + threadIdx.y * 16 + threadIdx.x / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_eight(all, half, high, low);
        const int left = tile_col * BN + part * 32 + half * 16 + threadIdx.x % 4 * 2;
        write_eight(high, low, top, left, exponents_a, exponents_b, c, m, n);
    }
}
