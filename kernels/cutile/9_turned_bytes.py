"""cuTile 9: C = A B in int8 with B by rows: one launch turns the bytes of B, the product is launched before it ends.

New:        wgmma reads 8-bit operands K-major alone, and 1_matmul.py turns its tiles of B round byte by byte in every
            block. As 6_turned.py does in TF32, turn does it once for all rows of tiles of C, into a copy of B [n, k].
            turn lets multiply begin at once (griddepcontrol): its blocks set up their barriers and wait for the copy.
Parameters: ROWS x COLUMNS of B a block that turns; of the product, those of 7_pairs.py with B by columns.
Published:  no figure.
Expected:   of the speed with B by columns 0.92 at 4096 and 0.96 at 8192: 2 bytes an element of B at the memory's rate
            are 9 and 34 us beside 110 and 870, if stores of single bytes to shared memory keep up.
Takes:      as 1_matmul.py. The copy takes n k bytes.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def turn(b, turned, ROWS: Constant, COLUMNS: Constant):
    # b: [k, n]   turned: [n, k]   grid: tiles of b
    ct.grid_dependency_control_launch_dependents()
    across = ct.cdiv(b.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    tile = ct.load(b, (row, column), (ROWS, COLUMNS), padding_mode=ZERO)  # (ROWS, COLUMNS)
    ct.store(turned, (column, row), tile.transpose())


@ct.kernel
def multiply(a, turned, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, LATENCY: Constant):
    # a: [m, k]   turned: [n, k]   c: [m, n]   grid: blocks, however many
    ct.grid_dependency_control_wait()
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    for tile in range(ct.bid(0), rows * cols, ct.num_blocks(0)):
        group, within = tile // (GROUP * cols), tile % (GROUP * cols)
        height = min(GROUP, rows - group * GROUP)  # the last group may be lower
        row, col = group * GROUP + within % height, within // height

        sums = ct.zeros((BM, BN), ct.int32)  # (BM, BN)
        for step in range(ct.cdiv(a.shape[1], BK)):
            ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO, latency=LATENCY)  # (BM, BK)
            tb = ct.load(turned, (step, col), (BK, BN), order="F", padding_mode=ZERO, latency=LATENCY)  # (BK, BN)
            sums = ct.mma(ta, tb, sums)
        ct.store(c, (row, col), ct.astype(sums, c.dtype))
