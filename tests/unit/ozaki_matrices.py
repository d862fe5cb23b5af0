"""Matrices, exact products, products of slices and scheme II backward, which tests of ozaki and crt share."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gemmrepro.ozaki import accumulate, exactness, moduli
from gemmrepro.ozaki.pairs import select
from gemmrepro.ozaki.splitting import Split, split
from gemmrepro.registry import Kernel

UNIT = 2.0**-53
LAST_ROUNDING = UNIT * (1 + 2.0**-40)
SLACK = 1 + 2.0**-30
"""For bounds that are themselves computed in float64."""


def any_floats(rows: int = 4, columns: int = 5) -> st.SearchStrategy[np.ndarray]:
    """Matrices up to that shape of any finite float64: zeros of both signs, subnormals, the largest."""
    shape = st.tuples(st.integers(1, rows), st.integers(1, columns))
    return hnp.arrays(np.float64, shape, elements=st.floats(allow_nan=False, allow_infinity=False))


@st.composite
def operand_pairs(draw: st.DrawFn, exponents: int = 60, largest_k: int = 24) -> tuple[np.ndarray, np.ndarray]:
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


def as_integers(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(n, e) with x = n 2^e exactly, n Python integers in an object array and e common to all; finite float64."""
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


def exact_product(a: np.ndarray, b: np.ndarray) -> Exact:
    """A[m,k] B[k,n] exactly: 64^3 takes about 0.1 s while exponents span few hundred bits."""
    (n, e), (o, f) = as_integers(a), as_integers(b)
    if a.shape[1] == 0:
        return Exact(np.zeros((a.shape[0], b.shape[1]), dtype=object), 0)
    return Exact(n @ o, e + f)


def error_and_scale(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|C - AB| and |A||B|, each element correctly rounded."""
    return exact_product(a, b).minus(c), exact_product(np.abs(a), np.abs(b)).nearest()


def integers_of(found: list[np.ndarray]) -> np.ndarray:
    """C' exactly from its residues, as Python integers in an object array: sum r_i w_i modulo M."""
    modulus = moduli.product(len(found))
    total = np.zeros(found[0].shape, dtype=object)
    for r, p in zip(found, moduli.moduli(len(found)), strict=True):
        total = total + r.astype(object) * (modulus // p * pow(modulus // p, -1, p))
    total = total % modulus
    return np.where(total >= modulus // 2, total - modulus, total) if total.size else total


def multiply(a: Split, b: Split, d: int | None = None) -> np.ndarray:
    """C[m,n] in float64 from the slices of A[m,k] and B[k,n]: 2^(e_p + f_q) (D_p E_q), summed pair by pair.

    Args:
        d: keep pairs with p + q < d (Fast Mode); None keeps all.

    The exponents of the first slices are factored out and applied to the sum, so that no pair overflows or underflows
    if C does not; otherwise this changes no bit.
    """
    total = np.zeros((a.residual.shape[0], b.residual.shape[1]))
    kept = select(len(a), len(b), d)
    top_a, top_b = a.slices[0].exponent, b.slices[0].exponent
    for p, q in kept:
        slice_a, slice_b = a.slices[p], b.slices[q]
        exponent = (slice_a.exponent - top_a) + (slice_b.exponent - top_b)
        total += np.ldexp(accumulate.exact(slice_a.digits, slice_b.digits), exponent)
    with np.errstate(over="ignore"):
        return np.ldexp(total, top_a + top_b) + 0.0


def reference(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product by slices with the parameters of a kernel of the family ozaki."""
    params = next(step.params for step in kernel.run.steps if step.entry == "split_a")
    rho = exactness.rho(a.shape[1], exactness.Format("", params["significant"], 0.0, 0))
    scales = ("row", "column") if params.get("vector") else ("matrix", "matrix")
    parts = [
        split(x, rho, scale, count=params["s"], step=params["step"]) for x, scale in zip((a, b), scales, strict=True)
    ]
    return multiply(*parts, d=kernel.compute.d)
