"""Operands on which products by scaled integers are known to fail.

Grading tests for classical products (J. Demmel et al.), A D with D^-1 B, complementary halves, wide exponents, gradual
underflow, cancellation.
"""

from collections.abc import Callable

import numpy as np
from ozaki_matrices import exact_product

from gemmrepro.ozaki import inputs

Draw = Callable[[np.random.Generator, int, int, int], inputs.Pair]
U = 2.0**-53


def diagonal(bits: int) -> Draw:
    """A D and D^-1 B, D = 2^-bits to 2^bits at random."""

    def draw(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
        a, b = inputs.normal(rng, m, n, k)
        d = rng.integers(-bits, bits + 1, k).astype(np.int32)
        return np.ldexp(a, d), np.ldexp(b, -d[:, None])

    return draw


def halves(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """The first half of A is 1e12 and meets 1e-12 in B; the second half the other way round."""
    a, b = inputs.normal(rng, m, n, k)
    d = np.where(np.arange(k) < k // 2, 1e12, 1e-12)
    return a * d, b / d[:, None]


def integers(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    return rng.integers(-8, 9, (m, k)).astype(float), rng.integers(-8, 9, (k, n)).astype(float)


def zeroed(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """Large rows and columns that a Strassen step would add to small ones, and zeros that it would not leave zero."""
    a, b = inputs.normal(rng, m, n, k)
    a[: m // 2] *= 1e12
    b[:, : n // 2] *= 1e12
    a[m // 2 + 3], a[5], b[:, 7] = 0.0, 0.0, 0.0
    a[:, 11], b[13] = 0.0, 0.0
    return a, b


def underflowing(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """Products around the least subnormal number."""
    a, b = inputs.normal(rng, m, n, k)
    return a * 2.0**-540, b * 2.0**-530


def outlier(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """One element of A far above all others, one k that is zero in A: neither says anything of D."""
    a, b = inputs.normal(rng, m, n, k)
    a[3, 17], a[:, 40] = 2.0**60, 0.0
    return a, b


MODULI = (14, 15, 16, None, 0, 0, 0, 0, 0)
"""Of phi = 0, 1, ...; 0: all in double."""

CASES: dict[str, tuple[Draw, int | None]] = {
    "normal": (inputs.normal, 14),
    **{f"phi = {phi}": (inputs.spread(float(phi)), count) for phi, count in enumerate(MODULI)},
    "A D, D = 2^+-30": (diagonal(30), 14),
    "A D, D = 2^+-500": (diagonal(500), 14),
    "graded along k": (inputs.graded(1000), 14),
    "complementary halves": (halves, 14),
    "large meets zero": (inputs.complementary, 0),
    "rows and columns scaled": (inputs.row_scaled(300), 14),
    "zeroed rows and columns": (zeroed, 14),
    "cancelling": (inputs.cancelling, 14),
    "gradual underflow": (underflowing, 14),
    "outlier": (outlier, None),
    "small integers": (integers, 13),
}
"""Inputs, and the moduli that they should take; None: tiles differ."""


def relative(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """max |C - AB| / |A||B|, after 2^-1074 an element for underflow; where |A||B| is 0, C must be."""
    error = np.maximum(exact_product(a, b).minus(c) - a.shape[1] * 2.0**-1074, 0.0)
    magnitudes = exact_product(np.abs(a), np.abs(b)).nearest()
    assert not c[magnitudes == 0.0].any()
    return float((error / np.where(magnitudes > 0, magnitudes, 1.0)).max())
