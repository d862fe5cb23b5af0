// Level S2: three TF32 products.
//
// New:        a second slice holds what rounding to TF32 left, so two slices hold an element but for 2^-23. Three of the
//             four products of slices are made; that of the two small ones is below 2^-22.
// Parameters: as level S1; a step takes two slots.
// Expected:   errors of SGEMM at a third of the TF32 rate.
// Takes:      as level S1.

#include "sgemm/products.cuh"

using Element = tf32;
constexpr int SLICES = 2, CUT = 1;  // slices of an element; products of slices i + j <= CUT

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
