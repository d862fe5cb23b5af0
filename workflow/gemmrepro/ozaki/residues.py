"""Scheme II, forward: A and B as integers A' = round(2^s A) and B' = round(B 2^t).

Two algorithms give the exponents s (one per row of A) and t (one per column of B). With either, sum_h |a'_ih b'_hj| is
at most (M - 1) / 2, whose root is R:

*norms* (fast mode, on the device): |C'_ij| <= ||a'_i|| ||b'_j|| by Cauchy and Schwarz; each norm is at most R. Derived
directly from this condition, the exponents follow any scaling by powers of two and the condition always holds; with the
scheme's published formula, neither is true (arXiv:2606.29129 shows it, and repairs it from the same condition).

*products* (accurate mode, arXiv:2508.03984): magnitudes rounded up to 7 bits are multiplied, one more INT8 product,
P >= |A||B| after scaling. As P_ij <= sqrt(max_j P_ij) sqrt(max_i P_ij), each side is again at most R. This is tighter
where the rows of A and the columns of B are large in different places.

All comparisons have margins on the safe side, so the inequality holds in spite of float64 rounding.
"""

import math
from typing import Any

from gemmrepro.core.dtypes import namespace
from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, moduli
from gemmrepro.ozaki.accumulate import peak

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


def _rounded_up(x: Any, scale: str) -> tuple[Any, Any]:
    """(integers up to 125, e): |x| rounded up to multiples of 2^e / COARSE_STEPS, 2^e above the row's maximum."""
    xp = namespace(x)
    unit, exponent = normalised(x, scale)
    return xp.ceil(xp.abs(unit) * (COARSE_STEPS * (1 + _SAFE))), exponent


def exponents_by_products(a: Any, b: Any, count: int, rounding: str = "truncate") -> tuple[Any, Any]:
    """(s [m,1], t [1,n]), int32, from one INT8 product of magnitudes rounded up. `rounding` is that of A' and B'.
    Raises UserError for k above 2^17, where the INT8 product might overflow, or too few moduli."""
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
