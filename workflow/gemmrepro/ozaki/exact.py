"""Products in double-double, the reference for errors, and four measures of the error of C against C*.

Double-double is unevaluated sums hi + lo of two float64,
|lo| <= ulp(hi) / 2, about 106 bits, by the error-free sum and product of Knuth and Dekker (T. J. Dekker, "A
floating-point technique for extending the available precision", Numer. Math. 18, 1971). Splitting overflows above
2^996, and products below 2^-969 lose their low part.

Of the measures, `difference` is |C - C*| [m,n]. A NaN or Inf in C counts as an infinite error, so it never passes.
"""

import math
from typing import Any

from gemmrepro.core.dtypes import namespace
from gemmrepro.errors import UserError
from gemmrepro.ozaki.accumulate import check_operands

UNIT = 2.0**-53

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


BLOCK_BYTES = 1 << 28
"""The most bytes that an array of one block's products may take."""


def product_double_double(a: Any, b: Any) -> tuple[Any, Any]:
    """(hi, lo) [m,n]: AB to about k 2^-104 |A||B|, while products stay within 2^-969 to 2^996. NumPy or CuPy.
    In blocks of k as long as BLOCK_BYTES allow: few large operations keep a GPU busy, many small ones do not."""
    check_operands(a, b)
    xp = namespace(a)
    hi, lo = xp.zeros((a.shape[0], b.shape[1])), xp.zeros((a.shape[0], b.shape[1]))
    step = max(1, BLOCK_BYTES // max(1, hi.nbytes))
    for start in range(0, a.shape[1], step):
        block = slice(start, start + step)
        hi, lo = add(hi, lo, *product_by_halves(a[:, block], b[block]))
    return hi, lo


def product_by_halves(a: Any, b: Any) -> tuple[Any, Any]:
    """The same for few rows and columns and a long k: all products at once, then added by halves of k.
    Takes some 100 m k n bytes, and log2 k steps instead of k. To about log2(k) 2^-104 |A||B|."""
    check_operands(a, b)
    xp = namespace(a)
    hi, lo = two_product(a[:, :, None], b[None, :, :])
    while hi.shape[1] > 1:
        half = hi.shape[1] // 2
        odd = (hi[:, 2 * half :], lo[:, 2 * half :])
        hi, lo = add(hi[:, :half], lo[:, :half], hi[:, half : 2 * half], lo[:, half : 2 * half])
        hi, lo = (xp.concatenate(pair, axis=1) for pair in ((hi, odd[0]), (lo, odd[1])))
    if not hi.shape[1]:
        return xp.zeros((a.shape[0], b.shape[1])), xp.zeros((a.shape[0], b.shape[1]))
    return hi[:, 0], lo[:, 0]


def minus_double_double(c: Any, hi: Any, lo: Any) -> Any:
    """|c - (hi + lo)|, c near hi, so that the first difference is exact or harmless; Inf where `c` is not finite."""
    xp = namespace(c)
    finite = xp.isfinite(c)
    return xp.where(finite, xp.abs((xp.where(finite, c, 0.0) - hi) - lo), xp.inf)


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
    The Frobenius norm explains the article's figures, which name none; "max" takes max |C - C64| / max |C64|. Raises
    UserError for another norm."""
    xp = namespace(c)
    difference = xp.abs(c - fp64_product)
    if norm == "frobenius":
        return frobenius(difference, fp64_product)
    if norm == "max":
        return _largest_ratio(difference.max(keepdims=True), xp.abs(fp64_product).max(keepdims=True))
    raise UserError(f"norm is {norm!r}; choose 'frobenius' or 'max'.")
