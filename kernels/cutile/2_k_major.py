"""cuTile 2: C = A B with B given by columns, so that K is contiguous in both ("K-major").

New:        B arrives as [n, k]; order="F" makes a load see it as [k, n]. It is the order in which wgmma reads 32- and
            8-bit operands from shared memory, so B need not be turned round on its way. Nothing else differs.
            FAST = 1 leaves Hopper's sums of 8-bit floats in the tensor core for the whole of K, which keeps some 14
            bits of them; without it every tile's sum is added up in fp32, by the ordinary units, at the price of
            registers for a second set of sums.
Parameters: as in 1_matmul.py; 128 x 64 in 8-bit floats that are added up in fp32: two sets of sums of 128 x 128 spill.
Published:  no figure; the article gives B by rows.
Expected:   as before in 16 bits; faster in tf32, fp8 and int8.
Takes:      any m and n; k of whole 16 bytes, and n too, for the rows of C.
"""

import cuda.tile as ct

Constant = ct.Constant[int]


@ct.kernel
def k_major(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, FAST: Constant):
    # a: [m, k]   b: [n, k]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    kind = ct.float64 if a.dtype == ct.float64 else ct.int32 if a.dtype == ct.int8 else ct.float32
    sums = ct.zeros((BM, BN), kind)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ct.PaddingMode.ZERO)  # (BM, BK)
        tb = ct.load(b, (step, col), (BK, BN), order="F", padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
        if a.dtype == ct.float32:
            ta, tb = ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32)
        sums = ct.mma(ta, tb, sums, use_fast_acc=FAST == 1)
    ct.store(c, (row, col), ct.astype(sums, c.dtype))
