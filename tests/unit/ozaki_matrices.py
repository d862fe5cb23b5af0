"""Matrices and exact bounds that the tests of `gemmrepro.ozaki` share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gemmrepro.ozaki import exact

UNIT = 2.0**-53
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
