"""cuTile 6: C = A B in TF32 with B by rows: B is turned round once, in a launch of its own.

New:        in 1_matmul.py every block turns its tiles of B round on their way to wgmma, which reads 32-bit operands
            K-major alone: the same element once for each of the m / BM rows of tiles of C. turn does it once for all,
            into a copy of B [n, k]; multiply is 4_persistent.py on that copy.
Parameters: ROWS x COLUMNS of B a block that turns; of the product, those that suit B by columns.
Published:  no figure.
Expected:   the speed of B by columns less 8 bytes an element of B at the memory's rate: 3 % of the time at 8192, 6 % at
            4096.
Takes:      as 1_matmul.py. The copy takes 4 n k bytes.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def turn(b, turned, ROWS: Constant, COLUMNS: Constant):
    # b: [k, n]   turned: [n, k]   grid: tiles of b
    across = ct.cdiv(b.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    tile = ct.load(b, (row, column), (ROWS, COLUMNS), padding_mode=ZERO)  # (ROWS, COLUMNS)
    ct.store(turned, (column, row), tile.transpose())


@ct.kernel
def multiply(a, turned, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant):
    # a: [m, k]   turned: [n, k]   c: [m, n]   grid: blocks, however many
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    for tile in range(ct.bid(0), rows * cols, ct.num_blocks(0)):
        group, within = tile // (GROUP * cols), tile % (GROUP * cols)
        height = min(GROUP, rows - group * GROUP)  # the last group may be lower
        row, col = group * GROUP + within % height, within // height

        sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
        for step in range(ct.cdiv(a.shape[1], BK)):
            ta = ct.load(a, (row, step), (BM, BK), padding_mode=ZERO)  # (BM, BK)
            tb = ct.load(turned, (step, col), (BK, BN), order="F", padding_mode=ZERO)  # (BK, BN)
            sums = ct.mma(ct.astype(ta, ct.tfloat32), ct.astype(tb, ct.tfloat32), sums)
        ct.store(c, (row, col), sums)
