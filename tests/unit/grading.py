"""The grading test that tells classical products from Strassen-like ones, and a control that fails it.

J. Demmel et al.: where a row of A or a column of B is zero, sums of products are zero, while Strassen's sums of blocks
leave roundings of what they add and take away. Blocks of different sizes show the same as errors beyond k u |A||B|.
"""

import numpy as np
from certified_cases import U, zeroed

from gemmrepro.ozaki import exact, inputs


def uniform(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """Elements from 0 to 1; an eighth or so of the rows of A and columns of B is zero, in both halves of each."""
    a, b = rng.random((m, k)), rng.random((k, n))
    a[rng.permutation(m // 2)[: m // 16 + 1]] = 0.0
    a[m // 2 + rng.permutation(m - m // 2)[: m // 16 + 1]] = 0.0
    b[:, rng.permutation(n // 2)[: n // 16 + 1]] = 0.0
    b[:, n // 2 + rng.permutation(n - n // 2)[: n // 16 + 1]] = 0.0
    return a, b


INPUTS: dict[str, inputs.Draw] = {"uniform": uniform, "blocks of two sizes": zeroed}

ZEROS, BOUND = "elements that a sum leaves zero", "the bound of a sum, k u |A||B|"


def faults(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[str]:
    """Which of ZEROS and BOUND C[m,n] breaks as a product of A[m,k] and B[k,n]; float64, against double-double sums."""
    error = exact.minus_double_double(c, *exact.product_double_double(a, b))
    magnitudes = np.abs(a) @ np.abs(b)
    zero = magnitudes == 0.0
    broken = {ZEROS: c[zero].any(), BOUND: (error > a.shape[1] * U * magnitudes)[~zero].any()}
    return [what for what, found in broken.items() if found]


def _blocks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    (upper, lower) = np.split(x, 2)
    return (*np.split(upper, 2, axis=1), *np.split(lower, 2, axis=1))


def strassen(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One step of Strassen's algorithm in float64; m, n and k even."""
    (a11, a12, a21, a22), (b11, b12, b21, b22) = _blocks(a), _blocks(b)
    p1, p2, p3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    p4, p5 = a22 @ (b21 - b11), (a11 + a12) @ b22
    p6, p7 = (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    return np.block([[p1 + p4 - p5 + p7, p3 + p5], [p2 + p4, p1 - p2 + p3 + p6]])
