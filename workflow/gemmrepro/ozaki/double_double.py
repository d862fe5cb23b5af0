"""Numbers as unevaluated sums hi + lo of two float64, |lo| <= ulp(hi) / 2: about 106 bits.

Error-free sum and product after Knuth and Dekker (T. J. Dekker, "A floating-point technique for extending the available
precision", Numer. Math. 18, 1971). Splitting overflows above 2^996, and products below 2^-969 lose their low part.
"""

from __future__ import annotations

from typing import Any

_SPLITTER = 2.0**27 + 1.0


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """(p, e) with p = fl(a b) and p + e = a b exactly, within the range above."""
    p = a * b
    t = _SPLITTER * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLITTER * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def add(hi: Any, lo: Any, other_hi: Any, other_lo: Any = 0.0) -> tuple[Any, Any]:
    """The sum, to a relative 2^-104 of the sum of magnitudes."""
    s, e = two_sum(hi, other_hi)
    return two_sum(s, e + (lo + other_lo))


def times(hi: Any, lo: Any, factor: Any) -> tuple[Any, Any]:
    """The product with a float64 factor, to a relative 2^-104."""
    p, e = two_product(hi, factor)
    return two_sum(p, e + lo * factor)
