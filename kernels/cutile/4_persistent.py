"""cuTile 4: C = A B by blocks that stay: as many as fit the GPU, each walking through tiles of C.

New:        the grid no longer counts tiles. A block takes every BLOCKS-th tile, so the hardware starts each block once;
            whether the loads of the next tile begin while this one is stored is the compiler's to decide.
            K_MAJOR = 1 takes B as [n, k], as 2_k_major.py does, and FAST is as there.
Parameters: 128 x 256 x 64 in 16 bits with eight worker warps, a block a multiprocessor; GROUP = 16 rows of tiles.
Published:  no figure; the article launches a block a tile.
Expected:   a gain where the last wave of blocks is nearly empty and where starting and storing show, at 2048 and 4096.
Takes:      as 1_matmul.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]


@ct.kernel
def persistent(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, K_MAJOR: Constant, FAST: Constant):
    # a: [m, k]   b: [k, n], or [n, k] if K_MAJOR   c: [m, n]   grid: blocks, however many
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    steps = ct.cdiv(a.shape[1], BK)
    kind = ct.float64 if a.dtype == ct.float64 else ct.int32 if a.dtype == ct.int8 else ct.float32
    for tile in range(ct.bid(0), rows * cols, ct.num_blocks(0)):
        group, within = tile // (GROUP * cols), tile % (GROUP * cols)
        height = min(GROUP, rows - group * GROUP)  # the last group may be lower
        row, col = group * GROUP + within % height, within // height

        sums = ct.zeros((BM, BN), kind)  # (BM, BN)
        for step in range(steps):
            ta = ct.load(a, (row, step), (BM, BK), padding_mode=ct.PaddingMode.ZERO)  # (BM, BK)
            if K_MAJOR == 1:
                tb = ct.load(b, (step, col), (BK, BN), order="F", padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
            else:
                tb = ct.load(b, (step, col), (BK, BN), padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
            if a.dtype == ct.float32:
                ta, tb = ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32)
            sums = ct.mma(ta, tb, sums, use_fast_acc=FAST == 1)
        ct.store(c, (row, col), ct.astype(sums, c.dtype))
