// Level S4: all nine bf16 products.
//
// New:        every product of slices, so A B is summed from exact products. It is what cuBLAS 13 calls BF16x9.
// Parameters: as level S3.
// Expected:   two thirds of the speed of S3, and no smaller errors on ordinary input: the sums round, not the products.
// Takes:      as level S1.

#include "sgemm/products.cuh"

using Element = bf16;
constexpr int SLICES = 3, CUT = 4;  // slices of an element; products of slices i + j <= CUT

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
