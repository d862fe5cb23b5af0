"""Scheme II as a product: C from INT8 products modulo N moduli, in three modes.

C = 2^(-s_i - t_j) C'_ij with C' = A' B' exact, so the only errors are the rounding of A and B to A' and B' and one
rounding of C. With Â = 2^-s A' and B̂ = B' 2^-t,

    |C - AB| <= |A - Â| |B| + |Â| |B - B̂| + u' |C|,      u' = 2^-53 (1 + 2^-40),

and with truncation every element of |A - Â| is below 2^-s_i and |Â| <= |A| (with rounding to nearest: half that, and
|Â| up to |A| + 2^(-s_i - 1)). Underflow of C adds at most 2^-1074.

**Fast** (`exponents="norms"`, N fixed). As 2^-s_i < 2 ||a_i|| (1 + eps) / R, R^2 = (M - 1) / 2, for *any* finite input

    |C - AB|_ij <= 4 sqrt(k) (1 + 2^-40) ||a_i|| ||b_j|| / R + u' |C_ij|,

normwise: relative to the norms of a row and a column, which may be far above (|A||B|)_ij. If the elements of a row are
of like size, 15 moduli give operands of 58.4 - log2(k) / 2 bits (`moduli.operand_bits`). Whether that is good
depends on the input.

**Accurate** (`exponents="products"`, N fixed). The first inequality with a larger s and t where an INT8 product shows
room; again normwise, no componentwise promise.

**Certified** (N grows with the input). One product of magnitudes rounded *down* gives L <= |A||B|. It is an e5m2
product, at the rate of INT8, because integers of 7 bits see nothing below 1/124 of a maximum. Where (half of it,
rounding to nearest)

    2^-s_i sum_h |b_hj| + 2^-t_j sum_h |a_ih|  <=  gamma L_ij

the element is within gamma |A||B| + u' |C|, componentwise. N is raised until all elements pass or `most` moduli are
used; what fails then is recomputed in float64, which satisfies k u / (1 - k u) |A||B|. So for any finite input

    |C - AB| <= max(gamma, k u / (1 - k u)) |A||B| + u' |C|    (+ 2^-1074 k where products underflow).

The result states how many moduli were used and which elements fell back: those of rows a_i whose large elements meet
only small ones of b_j (A D, D^-1 B with wide D; complementary sparsity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki import crt, moduli, residues
from gemmrepro.ozaki.arrays import namespace, scaled_back, set_aside, spoil
from gemmrepro.ozaki.formats import named, toward_zero

UNIT = 2.0**-53
LAST_ROUNDING = UNIT * (1 + 2.0**-40)
_EXPONENTS = {"norms": residues.exponents_by_norms, "products": residues.exponents_by_products}


@dataclass(frozen=True)
class Certified:
    """The result of the certified mode.

    Attributes:
        c: [m,n] float64.
        count: number of moduli used.
        fallback: [m,n] bool, elements that were recomputed in float64.
        gamma: the componentwise bound that holds for the others.
    """

    c: Any
    count: int
    fallback: Any
    gamma: float


def _exponents(a: Any, b: Any, count: int, exponents: str, rounding: str) -> tuple[Any, Any]:
    if exponents not in _EXPONENTS:
        raise UserError(f"exponents is {exponents!r}; choose 'norms' (fast) or 'products' (accurate).")
    if rounding not in residues.ROUNDINGS:
        raise UserError(f"rounding is {rounding!r}; choose one of {', '.join(residues.ROUNDINGS)}.")
    if a.shape[1] == 0:
        xp = namespace(a)
        return xp.zeros((a.shape[0], 1), dtype=xp.int32), xp.zeros((1, b.shape[1]), dtype=xp.int32)
    return _EXPONENTS[exponents](a, b, count, rounding)


def _multiply(a: Any, b: Any, count: int, s: Any, t: Any, rounding: str) -> Any:
    whole_a, whole_b = residues.integers(a, s, rounding), residues.integers(b, t, rounding)
    hi, _ = crt.to_double_double(residues.products(residues.of(whole_a, count), residues.of(whole_b, count)))
    return scaled_back(hi, -(s + t))


def gemm(
    a: Any,
    b: Any,
    count: int,
    exponents: str = "norms",
    rounding: str = "truncate",
    nonfinite: str = "nan",
) -> Any:
    """C[m,n] = A[m,k] B[k,n], float64, with `count` moduli: the fast ("norms") or the accurate ("products") mode.

    Args:
        rounding: of A and B to integers: "truncate" as published, or "nearest", which halves their error.

    Raises:
        UserError: bad operands or arguments, or fewer moduli than k needs.
    """
    finite_a, finite_b, rows, columns = set_aside(a, b, nonfinite)
    s, t = _exponents(finite_a, finite_b, count, exponents, rounding)
    return spoil(_multiply(finite_a, finite_b, count, s, t, rounding), rows, columns)


def operand_bound(a: Any, b: Any, s: Any, t: Any, rounding: str = "truncate") -> Any:
    """|A - Â||B| + |Â||B - B̂| [m,n], from the actual rounding errors (each exact; their product rounds in float64)."""
    xp = namespace(a)
    near_a = xp.ldexp(residues.integers(a, s, rounding), -s)
    near_b = xp.ldexp(residues.integers(b, t, rounding), -t)
    return xp.abs(a - near_a) @ xp.abs(b) + xp.abs(near_a) @ xp.abs(b - near_b)


def fast_bound(a: Any, b: Any, count: int) -> Any:
    """The fast mode's promise [m,n] for any finite input, without the last rounding: 4 sqrt(k) ||a_i|| ||b_j|| / R."""
    xp = namespace(a)
    norms = xp.sqrt((a * a).sum(axis=1, keepdims=True)), xp.sqrt((b * b).sum(axis=0, keepdims=True))
    return 4.0 * math.sqrt(a.shape[1]) * (1 + 2.0**-40) / residues.radius(count) * norms[0] * norms[1]


def predicted_fro(
    count: int, k: int, rounding: str = "truncate", mean_to_rms: float = math.sqrt(2 / math.pi)
) -> tuple[float, float]:
    """Expected ||C - C*||_F / ||C*||_F of the fast mode: the least and the most, depending on R.

    Independent elements of mean zero. 2^-s is sqrt(k) rms / R to twice that. Rounding to nearest errs by 2^-s /
    sqrt(12) in the root mean square on either side. Truncation errs by 2^-s / sqrt(3), and its errors have the sign of
    what they are cut from, so the errors of A times B and of B times A correlate: sum sign(a) b and sum a sign(b)
    correlate by the square of E|x| / rms. For normal elements truncation loses 2.4 times as much as rounding to
    nearest, not twice. The last rounding of C, u / sqrt(3) or less, is not included.

    Args:
        mean_to_rms: E|x| / rms of the elements; that of the normal distribution unless given.
    """
    if rounding not in residues.ROUNDINGS:
        raise UserError(f"rounding is {rounding!r}; choose one of {', '.join(residues.ROUNDINGS)}.")
    square = 2 / 12 if rounding == "nearest" else 2 / 3 + mean_to_rms**2 / 2
    least = math.sqrt(square * k) / residues.radius(count)
    return least, 2.0 * least


def certificate(
    a: Any, b: Any, s: Any, t: Any, gamma: float, rounding: str = "truncate", accumulator_loss: float | None = None
) -> Any:
    """[m,n] bool: where gamma |A||B| is promised, by one e5m2 product of magnitudes rounded toward zero.

    Rows of |A| and columns of |B| are scaled so that their maxima lie in [2^14, 2^15): e5m2 then sees elements down to
    2^-31 of the maximum and loses at most a quarter of each that is 2^-28 of it or more. Elements whose |A||B| is zero
    pass: there A' B' is zero too. One more product, of where A and B are not zero, says so. L does not depend on the
    number of moduli: a kernel computes it once.

    Args:
        accumulator_loss: the fraction by which the tensor core's sum may exceed the exact one; None: k 2^-22, for an
            fp32 accumulator with any rounding. One that truncates exceeds nothing.
    """
    xp = namespace(a)
    fmt = named("e5m2")
    (unit_a, e), (unit_b, f) = residues.normalised(xp.abs(a), "row"), residues.normalised(xp.abs(b), "column")
    low_a, low_b = (toward_zero(xp.ldexp(unit, 15), fmt) for unit in (unit_a, unit_b))
    loss = a.shape[1] * 2.0**-22 if accumulator_loss is None else accumulator_loss
    least = (low_a @ low_b) * 2.0**-30 * max(1.0 - loss, 0.0)
    # All relative to the rows' and columns' own powers of two, so that nothing overflows.
    step_a, step_b = xp.ldexp(xp.ones(e.shape), -(s + e)), xp.ldexp(xp.ones(f.shape), -(t + f))
    sum_a, sum_b = unit_a.sum(axis=1, keepdims=True), unit_b.sum(axis=0, keepdims=True)
    loss_bound = step_a * sum_b + sum_a * step_b
    if rounding == "nearest":
        loss_bound = 0.5 * loss_bound + 0.25 * a.shape[1] * step_a * step_b
    apart = (a != 0).astype(xp.float64) @ (b != 0).astype(xp.float64) == 0
    return (loss_bound * (1 + 2.0**-20) <= gamma * least) | apart


def certified(
    a: Any,
    b: Any,
    gamma: float | None = None,
    exponents: str = "products",
    rounding: str = "nearest",
    most: int = 20,
    nonfinite: str = "nan",
) -> Certified:
    """C[m,n] with |C - AB| <= max(gamma, k u / (1 - k u)) |A||B| + u' |C| for any finite A[m,k], B[k,n].

    Args:
        gamma: None: 2 sqrt(k) u, the article's criterion for the accuracy of a DGEMM.
        most: the largest number of moduli; what is not certified with it is computed in float64.

    Raises:
        UserError: bad operands or arguments; with "products", k above 134 000, where that INT8 product might overflow.
    """
    finite_a, finite_b, rows, columns = set_aside(a, b, nonfinite)
    xp = namespace(a)
    k = a.shape[1]
    wanted = 2.0 * math.sqrt(max(k, 1)) * UNIT if gamma is None else gamma
    if not wanted > 0:
        raise UserError(f"gamma is {gamma}; a bound must be above zero.")
    moduli.moduli(most)
    # Fewer would leave `exponents` no bits at this k.
    count = least = min(most, max(2, moduli.needed(10.0, max(k, 1))))
    for count in range(least, most + 1):
        s, t = _exponents(finite_a, finite_b, count, exponents, rounding)
        good = certificate(finite_a, finite_b, s, t, wanted, rounding)
        if bool(good.all()):
            break
    c = _multiply(finite_a, finite_b, count, s, t, rounding)
    if not bool(good.all()):
        c = xp.where(good, c, finite_a @ finite_b)
    return Certified(spoil(c, rows, columns), count, ~good & ~(rows | columns), wanted)
