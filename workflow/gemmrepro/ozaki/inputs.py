"""Operands A[m,k], B[k,n] in float64, each difficult for some scheme. NumPy; reproducible from a seed."""

from collections.abc import Callable

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]

Draw = Callable[[np.random.Generator, int, int, int], Pair]
"""Takes a generator, m, n and k."""


def normal(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """N(0, 1): the article's inputs, judging by its slice counts."""
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def spread(phi: float) -> Draw:
    """(u - 1/2) exp(phi g), u uniform and g normal: the exponent range of the Ozaki-scheme literature."""

    def draw(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
        def matrix(shape: tuple[int, int]) -> np.ndarray:
            return (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))

        return matrix((m, k)), matrix((k, n))

    return draw


def graded(bits: int) -> Draw:
    """A D and D^-1 B, D falling from 1 to 2^-bits along k: AB and |A||B| are those of A and B, the rows are not."""

    def draw(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
        a, b = normal(rng, m, n, k)
        exponents = -np.rint(np.linspace(0, bits, k)).astype(np.int32) if k else np.zeros(0, np.int32)
        return np.ldexp(a, exponents), np.ldexp(b, -exponents[:, None])

    return draw


def row_scaled(bits: int) -> Draw:
    """Rows of A and columns of B times powers of two from 2^-bits to 1."""

    def draw(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
        a, b = normal(rng, m, n, k)
        return (
            np.ldexp(a, -rng.integers(0, bits + 1, (m, 1)).astype(np.int32)),
            np.ldexp(b, -rng.integers(0, bits + 1, (1, n)).astype(np.int32)),
        )

    return draw


def cancelling(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """The second half of k cancels the first up to a part in 2^40."""
    a, b = normal(rng, m, n, k)
    half = k // 2
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 - 2.0**-40)
    return a, b


def complementary(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """Rows of A and columns of B are large (2^40) in disjoint places and hold a few small elements elsewhere.
    The large ones meet zeros, so |A||B| is that of the small ones: 2^40 below the product of the norms."""
    a, b = normal(rng, m, n, k)
    place = np.arange(k) % 4
    a[:, place == 0] *= 2.0**40
    b[place == 0] = 0.0
    a[:, place == 1] = 0.0
    b[place == 1] *= 2.0**40
    return a, b


INPUTS: dict[str, Draw] = {
    "normal": normal,
    **{f"phi = {phi}": spread(float(phi)) for phi in range(5)},
    "graded, 40 bits": graded(40),
    "rows and columns scaled, 30 bits": row_scaled(30),
    "cancelling": cancelling,
    "complementary": complementary,
}
