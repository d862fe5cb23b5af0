"""Exact products, the reference for errors: Python integers for small sizes, double-double for larger ones."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from gemmrepro.errors import UserError
from gemmrepro.ozaki import double_double
from gemmrepro.ozaki.arrays import check_operands, namespace


def as_integers(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(n, e) with x = n 2^e exactly, n Python integers in an object array and e common to all; finite float64.

    Raises UserError for Inf or NaN.
    """
    if not np.isfinite(x).all():
        raise UserError("an exact product of Inf or NaN does not exist; set those rows aside first (arrays.set_aside).")
    fraction, exponent = np.frexp(x)
    least = int(exponent[x != 0].min()) - 53 if (x != 0).any() else 0
    mantissa = np.ldexp(fraction, 53).astype(np.int64).astype(object)
    shift = np.where(x != 0, exponent - 53 - least, 0).astype(object)
    return mantissa << shift if x.size else mantissa, least


@dataclass(frozen=True)
class Exact:
    """A matrix of numbers n 2^exponent, exactly.

    Attributes:
        numerators: [m,n] Python integers.
    """

    numerators: np.ndarray
    exponent: int

    def fraction(self, row: int, column: int) -> Fraction:
        """One element."""
        return Fraction(int(self.numerators[row, column])) * Fraction(2) ** self.exponent

    def nearest(self) -> np.ndarray:
        """float64 [m,n], each element rounded once, to nearest; Inf beyond the largest float."""
        return self._rounded(self.numerators, self.exponent)

    def minus(self, c: np.ndarray) -> np.ndarray:
        """|exact - c| [m,n], each rounded once; Inf where `c` is not finite."""
        finite = np.isfinite(c)
        subtrahend, exponent = as_integers(np.where(finite, c, 0.0))
        least = min(exponent, self.exponent)
        difference = (self.numerators << (self.exponent - least)) - (subtrahend << (exponent - least))
        return np.where(finite, np.abs(self._rounded(difference, least)), np.inf)

    @staticmethod
    def _rounded(numerators: np.ndarray, exponent: int) -> np.ndarray:
        def rounded(n: int) -> float:
            # The quotient of two integers is correctly rounded, subnormal results included.
            try:
                return (n << exponent) / 1 if exponent >= 0 else n / (1 << -exponent)
            except OverflowError:
                return np.inf if n > 0 else -np.inf

        return np.array([rounded(int(n)) for n in numerators.flat], dtype=np.float64).reshape(numerators.shape)


def product(a: np.ndarray, b: np.ndarray) -> Exact:
    """A[m,k] B[k,n] exactly. NumPy only; for tests (64^3 takes about 0.1 s while exponents span few hundred bits).

    Raises:
        UserError: bad operands, Inf or NaN.
    """
    check_operands(a, b)
    (n, e), (o, f) = as_integers(a), as_integers(b)
    if a.shape[1] == 0:
        return Exact(np.zeros((a.shape[0], b.shape[1]), dtype=object), 0)
    return Exact(n @ o, e + f)


BLOCK_BYTES = 1 << 28
"""The most bytes that an array of one block's products may take."""


def product_double_double(a: Any, b: Any) -> tuple[Any, Any]:
    """(hi, lo) [m,n]: AB to about k 2^-104 |A||B|, while products stay within 2^-969 to 2^996. NumPy or CuPy.

    In blocks of k as long as BLOCK_BYTES allow: few large operations keep a GPU busy, many small ones do not.
    """
    check_operands(a, b)
    xp = namespace(a)
    hi, lo = xp.zeros((a.shape[0], b.shape[1])), xp.zeros((a.shape[0], b.shape[1]))
    step = max(1, BLOCK_BYTES // max(1, hi.nbytes))
    for start in range(0, a.shape[1], step):
        block = slice(start, start + step)
        hi, lo = double_double.add(hi, lo, *product_by_halves(a[:, block], b[block]))
    return hi, lo


def product_by_halves(a: Any, b: Any) -> tuple[Any, Any]:
    """The same for few rows and columns and a long k: all products at once, then added by halves of k.

    Takes some 100 m k n bytes, and log2 k steps instead of k. To about log2(k) 2^-104 |A||B|.
    """
    check_operands(a, b)
    xp = namespace(a)
    hi, lo = double_double.two_product(a[:, :, None], b[None, :, :])
    while hi.shape[1] > 1:
        half = hi.shape[1] // 2
        odd = (hi[:, 2 * half :], lo[:, 2 * half :])
        hi, lo = double_double.add(hi[:, :half], lo[:, :half], hi[:, half : 2 * half], lo[:, half : 2 * half])
        hi, lo = (xp.concatenate(pair, axis=1) for pair in ((hi, odd[0]), (lo, odd[1])))
    if not hi.shape[1]:
        return xp.zeros((a.shape[0], b.shape[1])), xp.zeros((a.shape[0], b.shape[1]))
    return hi[:, 0], lo[:, 0]


def minus_double_double(c: Any, hi: Any, lo: Any) -> Any:
    """|c - (hi + lo)|, c near hi, so that the first difference is exact or harmless; Inf where `c` is not finite."""
    xp = namespace(c)
    finite = xp.isfinite(c)
    return xp.where(finite, xp.abs((xp.where(finite, c, 0.0) - hi) - lo), xp.inf)
