// Level S1: one TF32 product.
//
// New:        fp32 matrices on tensor cores. A pass over A and one over B scale lines by powers of two, round elements to
//             the 11 bits of TF32 and lay both out K-major, as wgmma wants them: B is transposed on the way.
// Parameters: tiles of 128 x 128, steps of 32 of k, 6 slots of 32 KB; a sum is promoted every step.
// Expected:   2^-11 an element, so C is good to three digits: where this ladder begins, at some 7 times SGEMM.
// Takes:      any m, n and k, alpha and beta.

#include "sgemm/products.cuh"

using Element = tf32;
constexpr int SLICES = 1, CUT = 0;  // slices of an element; products of slices i + j <= CUT

extern "C" __global__ void __launch_bounds__(256)
row_slices(const float* x, int ld, int* exponents, Element* slices, int lines, int k) {
    slice_row<SLICES>(x, ld, exponents, slices, lines, k);
}

extern "C" __global__ void __launch_bounds__(256)
column_peaks(const float* x, int ld, Word* peaks, int lines, int k) {
    find_peaks(x, ld, peaks, lines, k);
}

extern "C" __global__ void __launch_bounds__(256)
column_slices(const float* x, int ld, const Word* peaks, int* exponents, Element* slices, int lines, int k) {
    slice_columns<SLICES>(x, ld, peaks, exponents, slices, lines, k);
}

// Shapes: products.cuh
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap slices_a, const __grid_constant__ TensorMap slices_b, const int* exponents_a,
         const int* exponents_b, float* c, int ldc, int m, int n, int k, float alpha, float beta) {
    multiply_tiles<Element, SLICES, CUT>(slices_a, slices_b, exponents_a, exponents_b, c, ldc, m, n, k, alpha, beta);
}
