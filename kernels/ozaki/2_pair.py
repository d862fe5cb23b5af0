"""Ozaki 2: one pair of slices alone, C = A B in fp32: what a sum of integer products keeps of itself.

New:        nothing but the loop over K of the products of 0 and 1, with fp32 results, for the experiment `accumulator`:
            inputs are integers, so a sum that is not exact shows.
Parameters: FAST leaves the sums of 8-bit floats in the tensor core for the whole of K; without it every BK of K start
            at zero and are added up in fp32 outside.
Published:  bf16 is exact where K is cut into 128, since 16 + log2(128) = 23 <= 24 bits; no measurement.
Expected:   16-bit types exact up to sums of 2^24 whatever BK is, since nothing empties the accumulator after a tile.
            8-bit floats on Hopper up to 2^13 or 2^14 of a tile.
Takes:      any m; n and k of whole 16 bytes.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def pair(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, FAST: Constant):
    # a: [m, k]   b: [n, k]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO)  # (BM, BK)
        tb = ct.load(b, (col, step), (BN, BK), padding_mode=ZERO)  # (BN, BK)
        sums = ct.mma(ta, tb.transpose(), sums, use_fast_acc=FAST == 1)
    ct.store(c, (row, col), sums)
