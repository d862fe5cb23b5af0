// Level R1: scheme II around a library's INT8 products.
//
// C = A B in FP64 from COUNT products of 8-bit residues. Rows of A and columns of B are scaled by powers of two and
// rounded to integers A', B' so small that |A' B'| < M / 2; their residues modulo each of COUNT numbers are multiplied
// by the library, int8 in and int32 out; the sums' residues give A' B' back (Chinese remainder theorem), which is
// scaled back and rounded once. Everything but the scaling of A and B to integers is exact, up to 2^-76 M.
//
// Parameters: COUNT moduli. CHUNK and DEPTH in columns.cuh.
// Bytes:      of n x n: 8 n^2 read for either's exponents, again for its residues, COUNT n^2 written; 4 COUNT n^2 written
//             by the products, read by the reconstruction, which writes 8 n^2.
// Expected:   the library's INT8 speed over the number of moduli, less what the other launches cost.
// Source:     K. Ozaki, Y. Uchino, T. Imamura, arXiv:2504.08009; exponents from the condition itself, as
//             gemmrepro.ozaki.residues derives them.
// Takes:      any m, n and k up to 2^17. A row of A or column of B that holds an Inf or NaN makes NaN of all of its C.

#include "crt/columns.cuh"
#include "crt/reconstruction.cuh"
#include "crt/rows.cuh"

// sums: COUNT matrices [m, n rounded up to 16]   grid: m * (n / 256, rounded up)   block: 256
extern "C" __global__ void __launch_bounds__(256) reconstruct_rows(const int* sums, const int* exponents_a,
                                                                   const int* exponents_b, double* c, int m, int n) {
    const int blocks = (n + 255) / 256, row = blockIdx.x / blocks, column = blockIdx.x % blocks * 256 + threadIdx.x;
    if (column < n) {
        const size_t pitch = (n + 15) / 16 * 16;
        const int* from = sums + row * pitch + column;
        const double whole = reconstruct([&](auto i) {
            return number(residue<MODULI[i.value]>(from[i.value * m * pitch]), 0);
        });
        c[static_cast<size_t>(row) * n + column] = scaled_back(whole, exponents_a[row], exponents_b[column]);
    }
}
