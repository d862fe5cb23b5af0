"""Matrices, exact bounds and scheme II backward, which the tests of `gemmrepro.ozaki` and of its kernels share."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gemmrepro.ozaki import exact, moduli, residues

UNIT = 2.0**-53
LAST_ROUNDING = UNIT * (1 + 2.0**-40)
SLACK = 1 + 2.0**-30
"""For bounds that are themselves computed in float64."""


def floats_of(shape: tuple[int, int] | st.SearchStrategy[tuple[int, int]]) -> st.SearchStrategy[np.ndarray]:
    """Matrices of any finite float64: zeros of both signs, subnormals, the largest."""
    return hnp.arrays(np.float64, shape, elements=st.floats(allow_nan=False, allow_infinity=False))


def any_floats(rows: int = 4, columns: int = 5) -> st.SearchStrategy[np.ndarray]:
    """The same, of any shape up to that."""
    return floats_of(st.tuples(st.integers(1, rows), st.integers(1, columns)))


@st.composite
def pairs(draw: st.DrawFn, exponents: int = 60, largest_k: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """A[m,k], B[k,n] of odd sizes; full mantissas with exponents within +-`exponents`, some elements zero."""
    m, n, k = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, largest_k))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.integers(0, exponents))

    def one(shape: tuple[int, int]) -> np.ndarray:
        x = np.ldexp(rng.uniform(-1, 1, shape), rng.integers(-spread, spread + 1, shape).astype(np.int32))
        return np.where(rng.random(shape) < 0.1, 0.0, x)

    return one((m, k)), one((k, n))


def fractions(x: np.ndarray) -> np.ndarray:
    """Finite float64 as an object array of fractions."""
    return np.array([Fraction(float(value)) for value in x.flat], dtype=object).reshape(x.shape)


def error_and_scale(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|C - AB| and |A||B|, each element correctly rounded."""
    return exact.product(a, b).minus(c), exact.product(np.abs(a), np.abs(b)).nearest()


def operand_bound(a: np.ndarray, b: np.ndarray, s: np.ndarray, t: np.ndarray, rounding: str) -> np.ndarray:
    """|A - Â||B| + |Â||B - B̂| [m,n], from the actual rounding errors of scheme II (each exact)."""
    near_a = np.ldexp(residues.integers(a, s, rounding), -s)
    near_b = np.ldexp(residues.integers(b, t, rounding), -t)
    return np.abs(a - near_a) @ np.abs(b) + np.abs(near_a) @ np.abs(b - near_b)


def integers_of(found: list[np.ndarray]) -> np.ndarray:
    """C' exactly from its residues, as Python integers in an object array: sum r_i w_i modulo M."""
    modulus = moduli.product(len(found))
    total = np.zeros(found[0].shape, dtype=object)
    for r, p in zip(found, moduli.moduli(len(found)), strict=True):
        total = total + r.astype(object) * (modulus // p * pow(modulus // p, -1, p))
    total = total % modulus
    return np.where(total >= modulus // 2, total - modulus, total) if total.size else total
