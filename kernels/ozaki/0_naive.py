"""Ozaki 0: the article's first program: slices split off one at a time, then all pairs in one launch.

New:        an FP64 product from low-precision tensor cores. The host reads the largest |x| of what is left of an
            operand, chooses sigma = 0.75 2^(rho + c), c = ceil(log2 max|x|), and launches `extract`, which takes the
            next slice off; it does so until nothing is left, waiting for the GPU each time. How many slices there are
            is the data's affair: 10 to 17. `product` then multiplies every slice of A by every slice of B.
Parameters: rho = max(ceil(53 - (24 - log2 k) / 2), 53 - m2), chosen by the host (`programs.py`).
Sums:       fp32 for a pair over the whole of K; then scaled and added to fp64 sums, both in registers. FAST leaves
            Hopper's sums of 8-bit floats in the tensor core for the whole of K; without it every tile's sum is added up
            in fp32 outside of it.
Published:  fp16 4.67 TFLOP/s at 16384 with 196 pairs, e4m3 4.85 at 8192 with 289 (B200); the split takes 0.07 to 0.56
            of the time.
Expected:   the products are as many times slower than cuBLAS in the low type as there are pairs.
Takes:      any m; even n, and k whose rows of slices are whole 16 bytes. max|x| below 2^970, for sigma is a float64,
            and what 32 slices hold: some 200 bits between the largest element and the last bit of the smallest. Inf and
            NaN become NaN of their row of A or column of B; they are not counted into the maximum.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.function
def finite(x):
    """Whether x is neither Inf nor NaN, from its bits: the compiler takes a literal for an fp32 number."""
    return ((ct.bitcast(x, ct.int64) >> 52) & 2047) != 2047


@ct.kernel
def maxima(x, partial, ROWS: Constant, COLUMNS: Constant, BLOCKS: Constant):
    # x: [rows, columns]   partial: [BLOCKS]   grid: BLOCKS, each takes every BLOCKS-th tile
    across = ct.cdiv(x.shape[1], COLUMNS)
    most = ct.zeros((ROWS, COLUMNS), ct.float64)
    for tile in range(ct.bid(0), ct.cdiv(x.shape[0], ROWS) * across, BLOCKS):
        found = ct.load(x, (tile // across, tile % across), (ROWS, COLUMNS), padding_mode=ZERO)
        most = ct.maximum(most, ct.where(finite(found), ct.abs(found), 0.0))
    ct.store(partial, (ct.bid(0),), ct.max(most, axis=None, keepdims=False))


@ct.kernel
def extract(x, sigma, inverse, left, slices, ROWS: Constant, COLUMNS: Constant):
    # x, left: [m, k]   slices: [1, m, k]   sigma, inverse: [1], inverse = 2^-c   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    at = (ct.bid(0) // across, ct.bid(0) % across)
    values = ct.load(x, at, (ROWS, COLUMNS), padding_mode=ZERO)
    values = ct.where(finite(values), values, float("nan"))
    large = ct.load(sigma, (0,), (1,)).reshape((1, 1))
    part = (values + large) - large
    ct.store(left, at, values - part)
    scaled = ct.astype(ct.astype(part * ct.load(inverse, (0,), (1,)).reshape((1, 1)), ct.float32), slices.dtype)
    ct.store(slices, (0, *at), scaled.reshape((1, ROWS, COLUMNS)))


@ct.kernel
def extract_turned(x, sigma, inverse, left, slices, ROWS: Constant, COLUMNS: Constant):
    # x, left: [k, n]   slices: [1, n, k], K contiguous   sigma, inverse: [1]   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    values = ct.load(x, (row, column), (ROWS, COLUMNS), padding_mode=ZERO)
    values = ct.where(finite(values), values, float("nan"))
    large = ct.load(sigma, (0,), (1,)).reshape((1, 1))
    part = (values + large) - large
    ct.store(left, (row, column), values - part)
    scaled = ct.astype(ct.astype(part * ct.load(inverse, (0,), (1,)).reshape((1, 1)), ct.float32), slices.dtype)
    ct.store(slices, (0, column, row), scaled.transpose().reshape((1, COLUMNS, ROWS)))


@ct.kernel
def product(a, b, scale_a, scale_b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, FAST: Constant):
    # a: [slices, m, k]   b: [slices, n, k]   scale_a, scale_b: 2^c a slice   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    total = ct.zeros((BM, BN), ct.float64)  # (BM, BN)
    for p in range(a.shape[0]):
        for q in range(b.shape[0]):
            sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
            for step in range(ct.cdiv(a.shape[2], BK)):
                ta = ct.load(a, (p, row, step), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
                tb = ct.load(b, (q, col, step), (1, BN, BK), padding_mode=ZERO).reshape((BN, BK))
                sums = ct.mma(ta, tb.transpose(), sums, use_fast_acc=FAST == 1)
            scale = ct.load(scale_a, (p,), (1,)).item() * ct.load(scale_b, (q,), (1,)).item()
            total = total + ct.astype(sums, ct.float64) * scale
    ct.store(c, (row, col), total)
