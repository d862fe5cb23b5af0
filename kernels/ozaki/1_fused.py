"""Ozaki 1: Fast Mode with the fused split: one maximum, one launch for all slices, pairs with p + q < d.

New:        the scales of all slices follow from the first maximum: slice p takes the digits of the unit 2^(c - p STEP -
            beta), c = ceil(log2 max|x|), so one launch makes them all and nothing waits for the host. The article reads
            the maximum back to the host once; here a launch hands it to the next. Elements are divided by 2^c first, so
            that every sigma is a constant and none overflows. Pairs with p + q >= D are left out. All pairs of one p +
            q have one scale, a power of two.
Parameters: S slices, STEP = m2 - 1 bits from one to the next and beta = min(m2, (24 - ceil(log2 k)) / 2) bits in each:
            what the article's slice counts and errors give away (`ozaki.programs`). SIGNIFICANT = m2. VECTOR =
            1 takes a maximum a row of A and a column of B instead of one a matrix, which the papers on the scheme do
            and the article does not. FAST leaves Hopper's sums of 8-bit floats in the tensor core for the whole of K.
Sums:       fp32 for a pair over the whole of K, in registers; then scaled and added to fp64 sums, in registers too.
Launches:   `product` multiplies all pairs in one. Its blocks take so long that they drift apart: at n = 16384 they find
            each other's tiles in L2 no more. `pairs` multiplies those of one p + q, by blocks that stay and walk
            through tiles of pair after pair together; their sums wait in memory for `add`, which puts a p + q at a time
            into C. The fp64 sums are then in another order: those of one p + q, which are exact, and so on.
Published:  bf16, d = 9: 26.84 TFLOP/s at 16384 with 39 pairs, which are 1.05 PFLOP/s of bf16 (B200).
Expected:   the inner loop is that of a plain product; a pair ends with 64 conversions and 64 fp64 multiply-adds a
            thread, 1 % of its time for K = 16384.
Takes:      any m; even n (with `pairs` a multiple of 4), and k whose rows of slices are whole 16 bytes. Inf and NaN
            become NaN of their row of A or column of B; they are not counted into the maximum.
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


@ct.kernel
def row_exponents(x, c, ROWS: Constant, COLUMNS: Constant):
    # x: [rows, columns]   c: [rows]   grid: ceil(rows / ROWS)
    most = ct.zeros((ROWS, COLUMNS), ct.float64)
    for step in range(ct.cdiv(x.shape[1], COLUMNS)):
        most = ct.maximum(most, size(ct.load(x, (ct.bid(0), step), (ROWS, COLUMNS), padding_mode=ZERO)))
    ct.store(c, (ct.bid(0),), ceil_log2(ct.max(most, axis=1)))


@ct.kernel
def column_exponents(x, c, ROWS: Constant, COLUMNS: Constant):
    # x: [rows, columns]   c: [columns]   grid: ceil(columns / COLUMNS)
    most = ct.zeros((ROWS, COLUMNS), ct.float64)
    for step in range(ct.cdiv(x.shape[0], ROWS)):
        most = ct.maximum(most, size(ct.load(x, (step, ct.bid(0)), (ROWS, COLUMNS), padding_mode=ZERO)))
    ct.store(c, (ct.bid(0),), ceil_log2(ct.max(most, axis=0)))


@ct.function
def sigma(k, p, SIGNIFICANT, STEP):
    """0.75 2^(53 - beta - p STEP): adding it rounds to multiples of 2^(-beta - p STEP)."""
    bits = 24
    for i in ct.static_iter(range(24)):
        bits = bits - ct.where(k > (1 << i), 1, 0)
    return 0.75 * power(53 - min(bits // 2, SIGNIFICANT) - p * STEP)


@ct.kernel
def split_a(
    x,
    c,
    slices,
    ROWS: Constant,
    COLUMNS: Constant,
    S: Constant,
    STEP: Constant,
    SIGNIFICANT: Constant,
    VECTOR: Constant,
):
    # x: [m, k]   c: [m] or [1]   slices: [S, m, k]   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    if VECTOR == 1:
        scale = ct.load(c, (row,), (ROWS,)).reshape((ROWS, 1))
    else:
        scale = ct.load(c, (0,), (1,)).reshape((1, 1))
    left = times_power(ct.load(x, (row, column), (ROWS, COLUMNS), padding_mode=ZERO), -scale)
    left = ct.where(ct.abs(left) <= 1.0, left, float("nan"))
    for p in ct.static_iter(range(S)):
        large = sigma(x.shape[1], p, SIGNIFICANT, STEP)
        part = (left + large) - large
        left = left - part
        digits = ct.astype(ct.astype(part * 2.0 ** (p * STEP), ct.float32), slices.dtype)
        ct.store(slices, (p, row, column), digits.reshape((1, ROWS, COLUMNS)))


@ct.kernel
def split_b(
    x,
    c,
    slices,
    ROWS: Constant,
    COLUMNS: Constant,
    S: Constant,
    STEP: Constant,
    SIGNIFICANT: Constant,
    VECTOR: Constant,
):
    # x: [k, n]   c: [n] or [1]   slices: [S, n, k], K contiguous   grid: tiles of x
    across = ct.cdiv(x.shape[1], COLUMNS)
    row, column = ct.bid(0) // across, ct.bid(0) % across
    if VECTOR == 1:
        scale = ct.load(c, (column,), (COLUMNS,)).reshape((1, COLUMNS))
    else:
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


@ct.function
def exponents_of(c_a, c_b, row, col, BM, BN, VECTOR):
    """The exponents of a tile of C: (BM, BN) where rows of A and columns of B have their own, else (1, 1)."""
    if VECTOR == 1:
        return ct.load(c_a, (row,), (BM,)).reshape((BM, 1)) + ct.load(c_b, (col,), (BN,)).reshape((1, BN))
    return ct.load(c_a, (0,), (1,)).reshape((1, 1)) + ct.load(c_b, (0,), (1,)).reshape((1, 1))


@ct.kernel
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
    VECTOR: Constant,
    FAST: Constant,
):
    # a: [S, m, k]   b: [S, n, k]   c: [m, n]   grid: tiles of C
    row, col = place(ct.bid(0), ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN), GROUP)

    total = ct.zeros((BM, BN), ct.float64)  # (BM, BN)
    for p in range(min(S, D)):
        for q in range(min(S, D - p)):
            sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
            for step in range(ct.cdiv(a.shape[2], BK)):
                ta = ct.load(a, (p, row, step), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
                tb = ct.load(b, (q, col, step), (1, BN, BK), padding_mode=ZERO).reshape((BN, BK))
                sums = ct.mma(ta, tb.transpose(), sums, use_fast_acc=FAST == 1)
            total = total + ct.astype(sums, ct.float64) * power(-(p + q) * STEP)
    ct.store(c, (row, col), times_power(total, exponents_of(c_a, c_b, row, col, BM, BN, VECTOR)))


@ct.kernel
def pairs(a, b, sums, diagonal, first, count, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant):
    # a: [S, m, k]   b: [S, n, k]   sums: [count tile rows of C, n], pair below pair   grid: blocks, however many
    # The pairs (p, diagonal - p) for p = first, first + 1, ... count of them.
    rows, cols = ct.cdiv(a.shape[1], BM), ct.cdiv(b.shape[1], BN)
    for tile in range(ct.bid(0), count * rows * cols, ct.num_blocks(0)):
        pair, within = tile // (rows * cols), tile % (rows * cols)
        row, col = place(within, rows, cols, GROUP)
        p, q = first + pair, diagonal - first - pair

        part = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
        for step in range(ct.cdiv(a.shape[2], BK)):
            ta = ct.load(a, (p, row, step), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
            tb = ct.load(b, (q, col, step), (1, BN, BK), padding_mode=ZERO).reshape((BN, BK))
            part = ct.mma(ta, tb.transpose(), part)
        ct.store(sums, (pair * rows + row, col), part)


@ct.kernel
def add(
    sums,
    c_a,
    c_b,
    c,
    diagonal,
    count,
    last,
    BM: Constant,
    ROWS: Constant,
    COLUMNS: Constant,
    STEP: Constant,
    VECTOR: Constant,
):
    # sums: as above   c: [m, n], of the diagonals before   grid: parts of C   last: 1 where no diagonal follows, else 0
    across, below = ct.cdiv(c.shape[1], COLUMNS), ct.cdiv(c.shape[0], BM) * (BM // ROWS)
    row, col = ct.bid(0) // across, ct.bid(0) % across
    total = ct.zeros((ROWS, COLUMNS), ct.float64)  # (ROWS, COLUMNS)
    for pair in range(count):
        part = ct.load(sums, (pair * below + row, col), (ROWS, COLUMNS), padding_mode=ZERO)
        total = total + ct.astype(part, ct.float64)
    before = ct.load(c, (row, col), (ROWS, COLUMNS), padding_mode=ZERO)
    total = ct.where(diagonal == 0, 0.0, before) + total * power(-diagonal * STEP)
    scale = exponents_of(c_a, c_b, row, col, ROWS, COLUMNS, VECTOR)
    ct.store(c, (row, col), times_power(total, scale * last))
