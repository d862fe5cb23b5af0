"""cuTile 1.1: the article's kernel with the constants it was measured with.

New:        1_matmul.py has tiles chosen here. The article times NVIDIA's TileGym, whose program tries four tiles for
            every type and size and keeps the fastest: 128 x 128 x 32; 256 x 256 x 64 on a cluster of two blocks, and
            of four; 512 x 256 x 64 on two. Each is compiled with its own num_ctas, so the hint printed with the
            kernel, num_ctas = 2 on sm_100, is in force only where a caller gives none.
Parameters: BM x BN x BK of the candidate, GROUP = 8, occupancy = 1. The article chose on a B200, family.py chooses
            among the same four for an H200.
Sums:       fp64 in fp64, as the article changed it; all others in fp32. fp32 in memory is multiplied as TF32.
Published:  fp16 1483, fp8 e5m2 2981, tf32 784, fp64 1.12 TFLOP/s at 8192 (B200).
Expected:   slower than C1 on an H200: rows of 64 bytes of K are half the widest swizzle, and a cluster of
            four has each of its blocks wait for the operands of all.
Takes:      as 1_matmul.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel(num_ctas=ct.ByTarget(sm_100=2))
def published(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant):
    # a: [m, k]   b: [k, n]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + ct.bid(0) % height, within // height

    sums = ct.full((BM, BN), 0, ct.float64 if a.dtype == ct.float64 else ct.float32)  # (BM, BN)
    kind = ct.tfloat32 if a.dtype == ct.float32 else a.dtype
    for step in range(ct.num_tiles(a, 1, (BM, BK))):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO).astype(kind)  # (BM, BK)
        tb = ct.load(b, (step, col), (BK, BN), padding_mode=ZERO).astype(kind)  # (BK, BN)
        sums = ct.mma(ta, tb, sums)
    ct.store(c, (row, col), ct.astype(sums, c.dtype))
