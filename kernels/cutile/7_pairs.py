"""cuTile 7: C = A B by blocks that stay, two on every multiprocessor, and a last wave launched before they end.

New:        latency, by the documentation a hint about the traffic, is the number of an operand's stages. Left to
            itself the compiler gives two persistent blocks so much that they spill, and lets no wgmma run on into the
            next step. With LATENCY = 2 they fit, and wgmma do run on: one block stores and begins its next tile while
            the other multiplies. full_waves lets the launch after it begin at once (griddepcontrol); last_wave, in
            parts as in 5_tail.py, takes its place where a block has finished, sets up its barriers, and waits.
Parameters: 128 x 128, K steps of 128 bytes, LATENCY = 2, occupancy = 2; TM x TN = 64 x 64 in the last wave. K_MAJOR and
            FAST are as in 4_persistent.py.
Published:  no figure.
Expected:   bf16 0.99 of cuBLAS at 4096, where one block has 0.967, and 1.01 at 8192; int8 by columns 0.97 and 0.98.
Takes:      as 1_matmul.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.function
def place(tile, c, BM: Constant, BN: Constant, GROUP: Constant):
    # row and column, in tiles, of a tile of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = tile // (GROUP * cols), tile % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


@ct.function
def product(
    a, b, row, col, BM: Constant, BN: Constant, BK: Constant, K_MAJOR: Constant, FAST: Constant, LATENCY: Constant
):
    # sums of the tile in this row and column of tiles of BM x BN
    sums = ct.zeros((BM, BN), ct.int32 if a.dtype == ct.int8 else ct.float32)  # (BM, BN)
    for step in range(ct.cdiv(a.shape[1], BK)):
        ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO, latency=LATENCY)  # (BM, BK)
        if K_MAJOR == 1:
            tb = ct.load(b, (step, col), (BK, BN), order="F", padding_mode=ZERO, latency=LATENCY)  # (BK, BN)
        else:
            tb = ct.load(b, (step, col), (BK, BN), padding_mode=ZERO, latency=LATENCY)  # (BK, BN)
        if a.dtype == ct.float32:
            ta, tb = ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32)
        sums = ct.mma(ta, tb, sums, use_fast_acc=FAST == 1)
    return sums


@ct.kernel
def full_waves(
    a,
    b,
    c,
    tiles,
    BM: Constant,
    BN: Constant,
    BK: Constant,
    GROUP: Constant,
    K_MAJOR: Constant,
    FAST: Constant,
    LATENCY: Constant,
):
    # a: [m, k]   b: [k, n], or [n, k] if K_MAJOR   c: [m, n]   tiles: of C, from the first   grid: blocks, however many
    ct.grid_dependency_control_launch_dependents()
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        row, col = place(tile, c, BM, BN, GROUP)
        sums = product(a, b, row, col, BM, BN, BK, K_MAJOR, FAST, LATENCY)
        ct.store(c, (row, col), ct.astype(sums, c.dtype))


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
    K_MAJOR: Constant,
    FAST: Constant,
    LATENCY: Constant,
    TM: Constant,
    TN: Constant,
):
    # a, b, c: as above   first: tile of C that is not done yet   grid: parts of TM x TN of the tiles from there on
    ct.grid_dependency_control_wait()
    parts = (BM // TM) * (BN // TN)  # of a tile
    row, col = place(first + ct.bid(0) // parts, c, BM, BN, GROUP)
    part = ct.bid(0) % parts
    row, col = row * (BM // TM) + part // (BN // TN), col * (BN // TN) + part % (BN // TN)
    sums = product(a, b, row, col, TM, TN, BK, K_MAJOR, FAST, LATENCY)
    ct.store(c, (row, col), ct.astype(sums, c.dtype))
