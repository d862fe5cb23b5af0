"""Scheme II, forward: A and B as integers A' = round(2^s A) and B' = round(B 2^t), and residues of their product.

Two algorithms give the exponents s (one per row of A) and t (one per column of B). With either, sum_h |a'_ih b'_hj| is
at most (M - 1) / 2, whose root is R:

*norms* (fast mode): |C'_ij| <= ||a'_i|| ||b'_j|| by Cauchy and Schwarz; each norm is at most R. Derived
directly from this condition, the exponents follow any scaling by powers of two and the condition always holds; with the
scheme's published formula, neither is true (arXiv:2606.29129 shows it, and repairs it from the same condition).

*products* (accurate mode, arXiv:2508.03984): magnitudes rounded up to 7 bits are multiplied, one more INT8 product,
P >= |A||B| after scaling. As P_ij <= sqrt(max_j P_ij) sqrt(max_i P_ij), each side is again at most R. This is tighter
where the rows of A and the columns of B are large in different places.

All comparisons have margins on the safe side, so the inequality holds in spite of float64 rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import namespace
from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, moduli
from gemmrepro.ozaki.accumulate import peak

ROUNDINGS = ("truncate", "nearest")

_SAFE = 2.0**-48
"""Margin for a handful of float64 roundings of relative size 2^-53."""

COARSE_STEPS = 124.0
"""The maximum of a row is scaled to this before it is rounded up to int8: 3 below 127, for rounding and two margins."""


def _floor_log2(x: Any) -> Any:
    """floor(log2 x) of positive float64 x, exactly; int32."""
    xp = namespace(x)
    return (xp.frexp(x)[1] - 1).astype(xp.int32)


def radius(count: int) -> float:
    """R, just below sqrt((M - 1) / 2)."""
    return math.isqrt((moduli.product(count) - 1) // 2) * (1.0 - _SAFE)


def normalised(x: Any, scale: str) -> tuple[Any, Any]:
    """(x 2^-e with its maximum in [1/2, 1) in each row or column, e). Elements of 2^-1074 of it or less may vanish."""
    xp = namespace(x)
    exponent = xp.frexp(peak(x, scale))[1].astype(xp.int32)
    return xp.ldexp(x, -exponent), exponent


def exponents_by_norms(a: Any, b: Any, count: int, rounding: str = "truncate") -> tuple[Any, Any]:
    """(s [m,1], t [1,n]), int32: the largest with ||a'|| <= R and ||b'|| <= R. 0 for a zero row or column.

    Args:
        a, b: finite float64 A[m,k], B[k,n].
        count: of moduli.
        rounding: how A' is rounded; rounding to nearest may increase a norm by sqrt(k) / 2.

    Raises:
        UserError: so few moduli that rounding alone fills R.
    """
    xp = namespace(a)
    k = a.shape[1]
    room = radius(count) - (0.5 * math.sqrt(k) * (1 + _SAFE) if rounding == "nearest" else 0.0)
    if room < math.sqrt(k):
        raise UserError(f"{count} moduli leave no bits at k = {k}; take more moduli.")
    exponents = []
    for x, scale, axis in ((a, "row", 1), (b, "column", 0)):
        unit, exponent = normalised(x, scale)
        norm = xp.sqrt((unit * unit).sum(axis=axis, keepdims=True)) * (1.0 + (k + 8) * 2.0**-52)
        free = _floor_log2(room * (1.0 - _SAFE) / xp.where(norm > 0, norm, 1.0)) - exponent
        exponents.append(xp.where(norm > 0, free, 0).astype(xp.int32))
    return exponents[0], exponents[1]


def _rounded_up(x: Any, scale: str) -> tuple[Any, Any]:
    """(integers up to 125, e): |x| rounded up to multiples of 2^e / COARSE_STEPS, 2^e above the row's maximum."""
    xp = namespace(x)
    unit, exponent = normalised(x, scale)
    return xp.ceil(xp.abs(unit) * (COARSE_STEPS * (1 + _SAFE))), exponent


def exponents_by_products(a: Any, b: Any, count: int, rounding: str = "truncate") -> tuple[Any, Any]:
    """(s [m,1], t [1,n]), int32, from one INT8 product of magnitudes rounded up. Arguments as in `exponents_by_norms`.

    Raises:
        UserError: k above 2^17, for which the INT8 product might overflow, or too few moduli.
    """
    xp = namespace(a)
    k = a.shape[1]
    if radius(count) < 2.0 * (COARSE_STEPS + 4) * math.sqrt(k):
        raise UserError(f"{count} moduli leave no bits at k = {k}; take more moduli.")
    (coarse_a, exponent_a), (coarse_b, exponent_b) = _rounded_up(a, "row"), _rounded_up(b, "column")
    if rounding == "nearest":
        # |a'| <= 2^s |a| + 1/2. One more coarse step, 2^(s + e) / 124, covers the half, as R above is large enough for
        # 2^(s + e) > R 124 / (2 sqrt(k) 126) > 62.
        coarse_a, coarse_b = (xp.where(x > 0, x + 1.0, 0.0) for x in (coarse_a, coarse_b))
    bound = accumulate.int32(coarse_a, coarse_b).astype(xp.float64)
    exponents = []
    for axis, exponent in ((1, exponent_a), (0, exponent_b)):
        most = bound.max(axis=axis, keepdims=True) if bound.size else xp.zeros(exponent.shape)
        # coarse 2^(e + s) / COARSE_STEPS bounds |a'|.
        free = (
            _floor_log2(radius(count) * COARSE_STEPS * (1 - _SAFE) / xp.sqrt(xp.where(most > 0, most, 1.0))) - exponent
        )
        exponents.append(xp.where(most > 0, free, 0).astype(xp.int32))
    return exponents[0], exponents[1]


def integers(x: Any, exponent: Any, rounding: str = "truncate") -> Any:
    """2^exponent x rounded to integers, as float64 (exact: at most 53 bits are significant).

    Raises:
        UserError: a rounding that is neither "truncate" (toward zero) nor "nearest".
    """
    if rounding not in ROUNDINGS:
        raise UserError(f"rounding is {rounding!r}; choose one of {', '.join(ROUNDINGS)}.")
    xp = namespace(x)
    scaled = xp.ldexp(x, exponent)
    return (xp.trunc(scaled) if rounding == "truncate" else xp.rint(scaled)) + 0.0


def symmetric(x: Any, p: int) -> Any:
    """The residues of integer-valued float64 (or integer) `x` modulo `p` of least magnitude; 256 gives -128 to 127."""
    xp = namespace(x)
    if x.dtype.kind == "f":
        residue = xp.fmod(x, float(p))  # exact, of any float
        residue = residue + xp.where(residue < 0, float(p), 0.0)
    else:
        residue = x % p
    return xp.where(residue > (p - 1) // 2, residue - p, residue)


def of(x: Any, count: int) -> list[Any]:
    """int8 residues of integer-valued float64 `x`, one matrix per modulus."""
    return [symmetric(x, p).astype(np.int8) for p in moduli.moduli(count)]


def products(a: list[Any], b: list[Any]) -> list[Any]:
    """int8 residues of A'B' from those of A' [m,k] and B' [k,n]: int32 sums over blocks of 2^17 of k, then reduced."""
    reduced = []
    for left, right, p in zip(a, b, moduli.moduli(len(a)), strict=True):
        xp = namespace(left)
        total = xp.zeros((left.shape[0], right.shape[1]), dtype=xp.int64)
        for start in range(0, left.shape[1], moduli.LONGEST_K):
            block = slice(start, start + moduli.LONGEST_K)
            total += accumulate.exact(left[:, block].astype(xp.float64), right[block].astype(xp.float64)).astype(
                xp.int64
            )
            total = symmetric(total, p)
        reduced.append(symmetric(total, p).astype(np.int8))
    return reduced
