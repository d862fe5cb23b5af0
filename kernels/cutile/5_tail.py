"""cuTile 5: C = A B by blocks that stay, and a last wave that is nearly empty in smaller tiles.

New:        131 of 132 multiprocessors may wait for the last one's tile. full_waves takes the first TILES tiles as
            4_persistent.py does; what is left, where it is so little that all of it in tiles of TM x TN is one wave, is
            last_wave's, a block a part of a tile. Both add up along K in the same steps and the same order, so C has
            the bits that 4_persistent.py gives it. Two launches, since two such loops in one kernel share the
            compiler's registers and its pipeline: it spills, and no wgmma runs on into the next step.
Parameters: 128 x 128 x 64 in 16 bits, and 64 x 64, the smallest tile of wgmma, in the last wave: of 4096 tiles at 8192
            4 are left over, of 16,384 at 16384 16. At 4096 it is 100 of 1024: whole tiles, as before. K_MAJOR and FAST
            are as in 4_persistent.py.
Published:  no figure.
Expected:   the last wave in half its time at 8192 and 16384; nothing where it is well filled.
Takes:      as 1_matmul.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]


@ct.function
def place(tile, c, BM: Constant, BN: Constant, GROUP: Constant):
    # row and column, in tiles, of a tile of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = tile // (GROUP * cols), tile % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


@ct.function
def multiply(a, b, c, row, col, BM: Constant, BN: Constant, BK: Constant, K_MAJOR: Constant, FAST: Constant):
    # the tile of C in this row and column of tiles of BM x BN
    kind = ct.float64 if a.dtype == ct.float64 else ct.int32 if a.dtype == ct.int8 else ct.float32
    sums = ct.zeros((BM, BN), kind)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ct.PaddingMode.ZERO)  # (BM, BK)
        if K_MAJOR == 1:
            tb = ct.load(b, (step, col), (BK, BN), order="F", padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
        else:
            tb = ct.load(b, (step, col), (BK, BN), padding_mode=ct.PaddingMode.ZERO)  # (BK, BN)
        if a.dtype == ct.float32:
            ta, tb = ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32)
        sums = ct.mma(ta, tb, sums, use_fast_acc=FAST == 1)
    ct.store(c, (row, col), ct.astype(sums, c.dtype))


@ct.kernel
def full_waves(
    a, b, c, tiles, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, K_MAJOR: Constant, FAST: Constant
):
    # a: [m, k]   b: [k, n], or [n, k] if K_MAJOR   c: [m, n]   tiles: of C, from the first   grid: blocks, however many
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        row, col = place(tile, c, BM, BN, GROUP)
        multiply(a, b, c, row, col, BM, BN, BK, K_MAJOR, FAST)


@ct.kernel
def last_wave(
    a,
    b,
    c,
    first,
    BM: Constant,
    BN: Constant,
    BK: Constant,
    GROUP: Constant,
    TM: Constant,
    TN: Constant,
    K_MAJOR: Constant,
    FAST: Constant,
):
    # a, b, c: as above   first: tile of C that is not done yet   grid: parts of TM x TN of the tiles from there on
    parts = (BM // TM) * (BN // TN)  # of a tile
    row, col = place(first + ct.bid(0) // parts, c, BM, BN, GROUP)
    part = ct.bid(0) % parts
    row, col = row * (BM // TM) + part // (BN // TN), col * (BN // TN) + part % (BN // TN)
    multiply(a, b, c, row, col, TM, TN, BK, K_MAJOR, FAST)
