"""cuTile 1: C = A B, tile by tile, in whatever type the arrays have.

New:        ct.mma: the tensor cores without an instruction, a fragment or a barrier in sight. A block makes one BM x BN
            tile of C and walks K in steps of BK; the compiler turns the loop into TMA copies, a pipeline of stages in
            shared memory and the widest instruction of the architecture.
Parameters: BM x BN x BK by type: 128 x 128, and of K as much as 128 bytes hold, so that a row of a tile fills the
            widest swizzle. GROUP = 8 rows of tiles are walked together, so that blocks that run at the same time share
            tiles of A and of B in the L2.
Sums:       by type: fp64 in fp64 and int8 in int32; all others in fp32. fp32 in memory is multiplied as TF32.
Published:  fp16 1483, fp8 e5m2 2981, tf32 784, fp64 1.12 TFLOP/s at 8192 (B200); 1.6 in fp64 with smaller tiles.
Expected:   near cuBLAS in 16 bits. In 32 and in 8 bits Hopper's wgmma reads B from shared memory K-major alone: B must
            be turned round on its way, which costs. In fp64 the compiler uses no tensor core.
Takes:      any m; n and k whose rows are whole 16 bytes (TMA), or any with a record that promises nothing of them.
            Tiles that reach beyond a matrix are filled with zeros, and what lies outside C is not stored.
"""

import cuda.tile as ct

Constant = ct.Constant[int]


@ct.kernel
def matmul(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant):
    # a: [m, k]   b: [k, n]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    kind = ct.float64 if a.dtype == ct.float64 else ct.int32 if a.dtype == ct.int8 else ct.float32
    sums = ct.zeros((BM, BN), kind)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ct.PaddingMode.ZERO)  # (BM, BK)
        tb = ct.load(b, (step, col), (BK, BN), padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
        if a.dtype == ct.float32:
            ta, tb = ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32)
        sums = ct.mma(ta, tb, sums)
    ct.store(c, (row, col), ct.astype(sums, c.dtype))
