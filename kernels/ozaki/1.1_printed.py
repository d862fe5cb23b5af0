"""Ozaki 1.1: the article's product and split with its hints, and the loop over slices spread over blocks.

New:        1_fused.py has tiles, a K step and hints chosen here. The article prints for its product num_ctas = 2 on
            sm_100, K steps of 128 and GROUP = 8, and for its split occupancy = 4; it prints no rows and columns of a
            tile. It also tried to spread the loop over the slices of A over blocks, which had no effect: with PARTS > 1
            a tile of C has that many blocks, each of which takes every PARTS-th slice of A, and `gather` adds their
            sums in the order of the slices.
Parameters: BM x BN x BK by the record. S, D, STEP and SIGNIFICANT as in 1_fused.py; one scale a matrix.
Sums:       fp32 for a pair over the whole of K, in registers; then scaled and added to fp64 sums, in registers too. The
            fp64 sums of PARTS blocks go through memory.
Published:  no effect (B200).
Expected:   at 8192 there are 4096 tiles for 132 multiprocessors and nothing to gain from more blocks; their sums, 8
            PARTS bytes an element of C, are written and read. At 1024 there are 64 tiles of 128 x 128, which leave half
            the GPU idle: seven times as many blocks gain there.
Takes:      as 1_fused.py.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.function
def power(exponent):
    """2^exponent, for exponents within +-1022."""
    return ct.bitcast((ct.astype(exponent, ct.int64) + 1023) << 52, ct.float64)


@ct.function
def times_power(x, exponent):
    """x 2^exponent for any exponent that leaves a normal number; what falls below that may be rounded twice."""
    third = exponent // 3
    return x * power(third) * power(third) * power(exponent - 2 * third)


@ct.function
def finite(x):
    """Whether x is neither Inf nor NaN, from its bits: the compiler takes a literal for an fp32 number."""
    return ((ct.bitcast(x, ct.int64) >> 52) & 2047) != 2047


@ct.function
def size(x):
    """|x|, and 0 of Inf and NaN."""
    return ct.where(finite(x), ct.abs(x), 0.0)


@ct.function
def ceil_log2(x):
    """ceil(log2 x) of x > 0, from its bits; 0 of 0."""
    small = (ct.bitcast(x, ct.int64) >> 52) < 100  # subnormals among them
    bits = ct.bitcast(ct.where(small, x * power(100), x), ct.int64)
    found = (bits >> 52) - 1023 + ct.where((bits & ((1 << 52) - 1)) != 0, 1, 0) - ct.where(small, 100, 0)
    return ct.astype(ct.where(x > 0.0, found, 0), ct.int32)


@ct.kernel
def maxima(x, partial, ROWS: Constant, COLUMNS: Constant, BLOCKS: Constant):
    # x: [rows, columns]   partial: [BLOCKS]   grid: BLOCKS, each takes every BLOCKS-th tile
    across = ct.cdiv(x.shape[1], COLUMNS)
    most = ct.zeros((ROWS, COLUMNS), ct.float64)
    for tile in range(ct.bid(0), ct.cdiv(x.shape[0], ROWS) * across, BLOCKS):
        at = (tile // across, tile % across)
        most = ct.maximum(most, size(ct.load(x, at, (ROWS, COLUMNS), padding_mode=ZERO)))
    ct.store(partial, (ct.bid(0),), ct.max(most, axis=None, keepdims=False))


@ct.kernel
def exponents(partial_a, partial_b, c_a, c_b, BLOCKS: Constant):
    # partial_a, partial_b: [BLOCKS]   c_a, c_b: [1]   grid: 1
    ct.store(c_a, (0,), ceil_log2(ct.max(ct.load(partial_a, (0,), (BLOCKS,)), axis=None, keepdims=False)))
    ct.store(c_b, (0,), ceil_log2(ct.max(ct.load(partial_b, (0,), (BLOCKS,)), axis=None, keepdims=False)))


@ct.function
def sigma(k, p, SIGNIFICANT, STEP):
    """0.75 2^(53 - beta - p STEP): adding it rounds to multiples of 2^(-beta - p STEP)."""
    bits = 24
    for i in ct.static_iter(range(24)):
        bits = bits - ct.where(k > (1 << i), 1, 0)
    return 0.75 * power(53 - min(bits // 2, SIGNIFICANT) - p * STEP)


@ct.kernel(occupancy=4)
def split_a(x, c, slices, ROWS: Constant, COLUMNS: Constant, S: Constant, STEP: Constant, SIGNIFICANT: Constant):
    # x: [m, k]   c: [1]   slices: [S, m, k]   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    scale = ct.load(c, (0,), (1,)).reshape((1, 1))
    left = times_power(ct.load(x, (row, column), (ROWS, COLUMNS), padding_mode=ZERO), -scale)
    left = ct.where(ct.abs(left) <= 1.0, left, float("nan"))
    for p in ct.static_iter(range(S)):
        large = sigma(x.shape[1], p, SIGNIFICANT, STEP)
        part = (left + large) - large
        left = left - part
        digits = ct.astype(ct.astype(part * 2.0 ** (p * STEP), ct.float32), slices.dtype)
        ct.store(slices, (p, row, column), digits.reshape((1, ROWS, COLUMNS)))


@ct.kernel(occupancy=4)
def split_b(x, c, slices, ROWS: Constant, COLUMNS: Constant, S: Constant, STEP: Constant, SIGNIFICANT: Constant):
    # x: [k, n]   c: [1]   slices: [S, n, k], K contiguous   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    scale = ct.load(c, (0,), (1,)).reshape((1, 1))
    left = times_power(ct.load(x, (row, column), (ROWS, COLUMNS), padding_mode=ZERO), -scale)
    left = ct.where(ct.abs(left) <= 1.0, left, float("nan"))
    for p in ct.static_iter(range(S)):
        large = sigma(x.shape[0], p, SIGNIFICANT, STEP)
        part = (left + large) - large
        left = left - part
        digits = ct.astype(ct.astype(part * 2.0 ** (p * STEP), ct.float32), slices.dtype)
        ct.store(slices, (p, column, row), digits.transpose().reshape((1, COLUMNS, ROWS)))


@ct.function
def place(tile, rows, cols, GROUP):
    """Row and column of the tile-th of rows x cols tiles: groups of GROUP rows, each walked column by column."""
    group, within = tile // (GROUP * cols), tile % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


@ct.kernel(num_ctas=ct.ByTarget(sm_100=2))
def product(
    a,
    b,
    c_a,
    c_b,
    c,
    BM: Constant,
    BN: Constant,
    BK: Constant,
    GROUP: Constant,
    S: Constant,
    D: Constant,
    STEP: Constant,
    PARTS: Constant,
):
    # a: [S, m, k]   b: [S, n, k]   c: [PARTS tile rows of C, n], part below part   grid: PARTS times the tiles of C
    rows, cols = ct.cdiv(a.shape[1], BM), ct.cdiv(b.shape[1], BN)
    first, tile = ct.bid(0) // (rows * cols), ct.bid(0) % (rows * cols)
    row, col = place(tile, rows, cols, GROUP)

    total = ct.zeros((BM, BN), ct.float64)  # (BM, BN)
    for p in range(first, min(S, D), PARTS):
        for q in range(min(S, D - p)):
            sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
            for step in range(ct.cdiv(a.shape[2], BK)):
                ta = ct.load(a, (p, row, step), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
                tb = ct.load(b, (q, col, step), (1, BN, BK), padding_mode=ZERO).reshape((BN, BK))
                sums = ct.mma(ta, tb.transpose(), sums)
            total = total + ct.astype(sums, ct.float64) * power(-(p + q) * STEP)
    exponent = ct.load(c_a, (0,), (1,)).reshape((1, 1)) + ct.load(c_b, (0,), (1,)).reshape((1, 1))
    ct.store(c, (first * rows + row, col), times_power(total, exponent))


@ct.kernel
def gather(sums, c, BM: Constant, ROWS: Constant, COLUMNS: Constant, PARTS: Constant):
    # sums: [PARTS tile rows of C, n], as above   c: [m, n]   grid: parts of C
    across, below = ct.cdiv(c.shape[1], COLUMNS), ct.cdiv(c.shape[0], BM) * (BM // ROWS)
    row, col = ct.bid(0) // across, ct.bid(0) % across
    total = ct.load(sums, (row, col), (ROWS, COLUMNS), padding_mode=ZERO)  # (ROWS, COLUMNS)
    for part in range(1, PARTS):
        total = total + ct.load(sums, (part * below + row, col), (ROWS, COLUMNS), padding_mode=ZERO)
    ct.store(c, (row, col), total)
