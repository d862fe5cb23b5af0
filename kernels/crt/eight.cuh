// The end of the reconstruction in R6 to R8, R15 and R16: eight elements of C from the sums of their weighed residues.

#pragma once

#include "crt/reconstruction.cuh"
#include "crt/scaling.cuh"

// Elements 2 i and 2 i + 1 are neighbours of row top + i % 2 * 8, from column left + i / 2 * 8 on.
// C: [m, n]   exponents_a: [m]   exponents_b: [n]
__device__ __forceinline__ void write_eight(const double (&high)[8], const double (&low)[8], int top, int left,
                                            const int* exponents_a, const int* exponents_b, double* c, int m, int n) {
    int s[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        s[r] = top + 8 * r < m ? exponents_a[top + 8 * r] : 0;
    }
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
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
