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
#include "crt/in_turn.cuh"
#include "crt/reconstruction.cuh"

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

// grid: (PARTS * tile columns, tile rows)   block: (32, 8): a warp's lanes, the warps that a tile's residues came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct_residues(const uint4* residues, const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    const int rows = gridDim.y, cols = (n + BN - 1) / BN, tile_col = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const size_t place = static_cast<size_t>(blockIdx.y) * cols + tile_col;
    const size_t next = static_cast<size_t>(rows) * cols * WARPS * PARTS * 32;  // to the next modulus
    const uint4* from = residues + (place * WARPS + threadIdx.y) * PARTS * 32 + part * 32 + threadIdx.x;
    uint4 all[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = blockIdx.y * BM + threadIdx.y * 16 + threadIdx.x / 4;
    int s[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        s[r] = top + 8 * r < m ? exponents_a[top + 8 * r] : 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_eight(all, half, high, low);
        const int left = tile_col * BN + part * 32 + half * 16 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int e = 0; e < 8; e += 2) {  // pairs of neighbours
            const int r = e / 2 % 2, row = top + 8 * r, column = left + e / 4 * 8;
            if (row < m && column < n) {
                const bool both = column + 1 < n;
                const int t = exponents_b[column], u = both ? exponents_b[column + 1] : 0;
                double one = settle(high[e], low[e]), other = settle(high[e + 1], low[e + 1]);
                if (max(abs(s[r]), max(abs(t), abs(u))) <= 450 && s[r] != SPOILED && t != SPOILED && u != SPOILED) {
                    // |C'| < 2^126: nothing overflows on the way, nothing is lost below.
                    one = one * power(1023 - s[r]) * power(1023 - t);
                    other = other * power(1023 - s[r]) * power(1023 - u);
                } else {
                    one = scaled_back(one, s[r], t);
                    other = scaled_back(other, s[r], u);
                }
                double* to = c + static_cast<size_t>(row) * n + column;
                if (n % 2 == 0) {
                    __stcs(reinterpret_cast<double2*>(to), make_double2(one, other));
                } else {
                    to[0] = one;
                    if (both) {
                        to[1] = other;
                    }
                }
            }
        }
    }
}
