"""cuTile 3: C = A B in fp64 without ct.mma: a tile of sums and an outer product a step of K.

New:        ct.mma is left alone. A column of the tile of A times a row of the tile of B, element by element, is added
            to the sums, BK times a tile; what the compiler would not do inside ct.mma it does here: fuse the product
            with the sum, one DFMA for a DMUL and a DADD.
Parameters: 128 x 64 sums a block; K in steps of 8, unrolled.
Published:  no figure; the article's fp64 goes through ct.mma.
Expected:   several times the speed of C1 in fp64, and far from cuBLAS, which has tensor cores. The ordinary
            units will not be busy either: the machine code reads shared memory once (LDS.128) for two DFMA, which
            takes longer.
Takes:      any m; even n and k.
"""

import cuda.tile as ct

Constant = ct.Constant[int]


@ct.kernel
def outer(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant):
    # a: [m, k]   b: [k, n]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    sums = ct.zeros((BM, BN), ct.float64)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ct.PaddingMode.ZERO)  # (BM, BK)
        tb = ct.load(b, (step, col), (BK, BN), padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
        for p in ct.static_iter(range(BK)):
            sums = ct.extract(ta, (0, p), (BM, 1)) * ct.extract(tb, (p, 0), (1, BN)) + sums
    ct.store(c, (row, col), sums)
