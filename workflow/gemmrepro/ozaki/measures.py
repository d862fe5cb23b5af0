"""Four measures of the error of C against C*.

`difference` is |C - C*| [m,n], of `exact.Exact.minus` or `exact.minus_double_double`.
A NaN or Inf in C counts as an infinite error, so it never passes.
"""

from __future__ import annotations

import math
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki.arrays import namespace

UNIT = 2.0**-53


def _largest_ratio(difference: Any, size: Any) -> float:
    """max difference / size; infinite if an element of size zero is not exact."""
    xp = namespace(difference)
    if difference.size == 0:
        return 0.0
    if bool((xp.isnan(difference) | ((size == 0) & (difference > 0))).any()):
        return math.inf
    return float((difference / xp.where(size > 0, size, 1.0)).max())


def scaled(difference: Any, abs_product: Any) -> float:
    """max |C - C*| / (|A||B|), elementwise, in units of u = 2^-53: what rounding errors are bounded by."""
    return _largest_ratio(difference, abs_product) / UNIT


def relative(difference: Any, reference: Any) -> float:
    """max |C - C*| / |C*|: large wherever C* nearly cancels, for any method whose sums round."""
    return _largest_ratio(difference, namespace(reference).abs(reference))


def frobenius(difference: Any, reference: Any) -> float:
    """||C - C*||_F / ||C*||_F."""
    xp = namespace(difference)
    size = float(xp.sqrt((reference * reference).sum()))
    error = float(xp.sqrt((difference * difference).sum()))
    if math.isnan(error):
        return math.inf
    if size == 0:
        return 0.0 if error == 0 else math.inf
    return error / size


def articles(c: Any, fp64_product: Any, norm: str = "frobenius") -> float:
    """The article's measure: the distance to an FP64 product (PyTorch's), which has errors itself, relative to it.

    The article does not say which norm. The Frobenius norm explains its figures (`article`); "max" takes max |C - C64|
    / max |C64|.

    Raises:
        UserError: another norm.
    """
    xp = namespace(c)
    difference = xp.abs(c - fp64_product)
    if norm == "frobenius":
        return frobenius(difference, fp64_product)
    if norm == "max":
        return _largest_ratio(difference.max(keepdims=True), xp.abs(fp64_product).max(keepdims=True))
    raise UserError(f"norm is {norm!r}; choose 'frobenius' or 'max'.")
