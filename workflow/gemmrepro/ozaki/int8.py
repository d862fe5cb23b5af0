"""INT8 slices: a row of A (a column of B) as 2^e sum of D_p 2^(-7p), seven bits per slice, int32 sums exact.

arXiv:2306.11975 truncates digits toward zero, |D| <= 127. arXiv:2409.13313 rounds to nearest instead, which at seven
bits per slice leaves |D| <= 64, and adds the pairs of one diagonal p + q = g, which share their scale, in int32 before
anything is converted to float64. With |D| <= D_max an int32 accumulator takes floor((2^31 - 1) / (k D_max^2)) pairs
(`group_limit`): at k = 16384, 8 pairs of truncated slices and 31 of rounded ones. One pair fits up to k = 133 144 (so
2^17) truncated and k = 524 287 (just short of 2^19) rounded; longer products are cut into blocks of k.
"""

from __future__ import annotations

from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, pairs
from gemmrepro.ozaki.arrays import check_matrix, namespace, peak, scaled_back, set_aside, spoil
from gemmrepro.ozaki.splitting import Slice, Split, remainder

BITS = 7
"""Bits of x per slice."""

LARGEST = {"nearest": 64, "truncate": 127}
"""The largest |digit|, by rounding."""


def split(x: Any, count: int, scale: str = "row", rounding: str = "nearest") -> Split:
    """Split finite float64 `x` [rows, columns] into `count` slices of int8 digits, by fixed steps of seven bits.

    With 2^e the least power of two above the row's (column's) maximum, the residual is at most 2^(e - 7 count).

    Raises:
        UserError: `x` is no finite float64 matrix, or an argument is out of range.
    """
    check_matrix(x, "the matrix to split")
    xp = namespace(x)
    if count < 1:
        raise UserError(f"count is {count}; ask for at least one slice.")
    if rounding not in LARGEST:
        raise UserError(f"rounding is {rounding!r}; choose 'nearest' or 'truncate'.")
    if not bool(xp.isfinite(x).all()):
        raise UserError("the matrix to split holds Inf or NaN; set those rows aside first (arrays.set_aside).")
    _, above = xp.frexp(peak(x, scale))  # |x| < 2^above; 0 of a zero row
    # Rounded digits of the first slice reach half as far, so that a maximum just below 2^e still fits.
    exponent = above.astype(xp.int32) - (BITS - 1 if rounding == "nearest" else BITS)
    slices, residual = [], x + 0.0
    for _ in range(count):
        scaled = xp.ldexp(residual, -exponent)
        part = Slice((xp.rint(scaled) if rounding == "nearest" else xp.trunc(scaled)) + 0.0, exponent)
        slices.append(part)
        residual = remainder(residual, part)
        exponent = exponent - BITS
    return Split(tuple(slices), residual, BITS - 1 if rounding == "nearest" else BITS)


def group_limit(k: int, largest: int) -> int:
    """How many products of slices with inner dimension `k` and |digits| <= `largest` one int32 accumulator takes."""
    return accumulate.INT32_LIMIT // (max(k, 1) * largest * largest)


def multiply(a: Split, b: Split, d: int | None = None, grouped: bool = True) -> Any:
    """C[m,n] in float64 from int8 slices of A[m,k] and B[k,n].

    Args:
        d: keep pairs with p + q < d. None: d = the number of slices, the triangle that those papers compute; what it
            drops is of the size of the residuals.
        grouped: sum whole diagonals in int32, as many pairs as fit, before converting (arXiv:2409.13313); otherwise
            convert every pair. Either way small diagonals are added first.

    Raises:
        UserError: shapes that do not fit.
    """
    if a.residual.shape[1] != b.residual.shape[0]:
        raise UserError(f"A has {a.residual.shape[1]} columns and B has {b.residual.shape[0]} rows; they must agree.")
    xp = namespace(a.residual)
    k = a.residual.shape[1]
    largest = max([1, *(int(xp.abs(part.digits).max()) for part in (*a.slices, *b.slices) if part.digits.size)])
    block = max(min(k, group_limit(1, largest)), 1)
    together = max(group_limit(block, largest), 1) if grouped else 1
    total = xp.zeros((a.residual.shape[0], b.residual.shape[1]))
    top = a.slices[0].exponent + b.slices[0].exponent
    kept = pairs.select(len(a), len(b), min(len(a), len(b)) if d is None else d)
    for diagonal in reversed(pairs.diagonals(kept)):
        shift = -BITS * sum(diagonal[0])
        for start in range(0, len(diagonal), together):
            for first in range(0, k, block):
                columns = slice(first, first + block)
                # int64 here; `accumulate.int32` refuses what int32 could not hold, and so does the sum.
                group = sum(
                    accumulate.int32(a.slices[p].digits[:, columns], b.slices[q].digits[columns])
                    for p, q in diagonal[start : start + together]
                )
                if group.size and int(xp.abs(group).max()) > accumulate.INT32_LIMIT:
                    raise AssertionError("a group of slices overflowed int32")
                total += xp.ldexp(group.astype(xp.float64), shift)
    return scaled_back(total, top)


def gemm(
    a: Any,
    b: Any,
    count: int,
    d: int | None = None,
    rounding: str = "nearest",
    grouped: bool = True,
    nonfinite: str = "nan",
) -> Any:
    """C[m,n] = A[m,k] B[k,n], float64, from `count` int8 slices of each: arguments of `split` and `multiply`.

    Raises:
        UserError: bad operands or arguments.
    """
    finite_a, finite_b, rows, columns = set_aside(a, b, nonfinite)
    parts = split(finite_a, count, "row", rounding), split(finite_b, count, "column", rounding)
    return spoil(multiply(*parts, d=d, grouped=grouped), rows, columns)
