"""cuTile 10: C = A B by blocks that stay, with tiles of 128 x 256 in four stages.

New:        latency is 6 in both loads. Left alone, or with 4 or 5, the compiler gives 128 x 256 three stages and 64 KB
            in which C waits for TMA; told 6, four stages, and C passes through 32 KB in two halves. Nothing else
            differs from 4_persistent.py.
Parameters: 128 x 256 x 64, eight worker warps, one block per SM, GROUP = 16.
Published:  no figure.
Expected:   bf16, sustained: 651, 670 and 668 TFLOP/s at 4096, 8192 and 16384, 635 to 650 from tiles of 128 x 128.
Takes:      as 1_matmul.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def stages(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, LATENCY: Constant):
    # a: [m, k]   b: [k, n]   c: [m, n]   grid: blocks, however many
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    for tile in range(ct.bid(0), rows * cols, ct.num_blocks(0)):
        group, within = tile // (GROUP * cols), tile % (GROUP * cols)
        height = min(GROUP, rows - group * GROUP)  # the last group may be lower
        row, col = group * GROUP + within % height, within // height

        sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
        for step in range(ct.cdiv(a.shape[1], BK)):
            ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO, latency=LATENCY)  # (BM, BK)
            tb = ct.load(b, (step, col), (BK, BN), padding_mode=ZERO, latency=LATENCY)  # (BK, BN)
            sums = ct.mma(ta, tb, sums)
        ct.store(c, (row, col), ct.astype(sums, c.dtype))
