"""FP64 matrix products from low-precision tensor cores: the reference in NumPy.

C[m,n] = A[m,k] B[k,n] in float64, computed from exact products of short integers. Nothing here needs a GPU. Functions
take NumPy arrays and, unless documented otherwise, call only what CuPy has too.

Where to look, in reading order:

===========  ==========================================================================================================
accumulate   what an operand must be; NumPy or CuPy; the policy for Inf and NaN; exact inner products of digits
exactness    fp16, bf16, e4m3, e5m2; rho; how long an inner product of digits stays exact; the article's bf16 argument
splitting    a matrix as a sum of slices of integer digits, one scale per matrix, row or column
pairs        which pairs of slices are multiplied: all of them, or those with p + q < d (Fast Mode)
bounds       the error of skipping pairs; the choice of d
programs     the article's two programs, as parameters of the above, and the host side of the first
moduli       pairwise coprime moduli up to 256
residues     scheme II: the radius of the moduli, exponents by an INT8 product
scheme2      the errors of scheme II: fast, accurate and certified
decided      what the certified mode's decision on the device rests on
exact        products in double-double; error measures
inputs       operands that are hard for one scheme or another
===========  ==========================================================================================================

Notation. u = 2^-53. A slice of x is v = D 2^e with integer digits D and a power of two common to the matrix, the row or
the column. beta is the number of bits per slice: |D| <= 2^beta.

Sources. The article `ozaki` of this suite (numbers: articles/ozaki/numbers.csv) takes its split, its rho and Fast Mode
from the Ozaki scheme on FP16 tensor cores: K. Ozaki, T. Ogita, S. Oishi and S. M. Rump, "Error-free transformations of
matrix multiplication by using fast routines of matrix multiplication and its applications", Numer. Algorithms 59, 2012
(the split by sigma); D. Mukunoki, K. Ozaki, T. Ogita and T. Imamura, "DGEMM using Tensor Cores, and its accurate and
reproducible versions", ISC 2020 (rho for a 24-bit accumulator, Fast Mode). Its bound 2 sqrt(k) u |A||B| is of the kind
of N. J. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5),
2019. Scheme II: K. Ozaki, Y. Uchino and T. Imamura, arXiv:2504.08009 (power-of-two scaling so that twice the
integer product is below the product of the moduli, residues in int8, reconstruction); its fast and accurate modes as
compared in arXiv:2508.03984 and, for the fast mode's scale, arXiv:2606.29129.
The certified mode and the bounds stated in `scheme2` are worked out here.

Special values, in every scheme: a row of A or a column of B that holds Inf or NaN makes that row or column of C NaN and
touches nothing else. This differs from DGEMM, which would return Inf in some of those places: a scheme that reads
exponents cannot know, and a NaN hides nothing. Zeros of C are +0, whatever the signs of the zeros of A and B.
Subnormals count in full. Results beyond the largest float become Inf; results below the least normal one are rounded
twice, by at most 2^-1074 in all.
"""
