"""A matrix as a sum of slices.

x = v_0 + v_1 + ... , v_p = D_p 2^e_p with integer digits |D_p| <= 2^beta.

One step takes c = ceil(log2 max|x|) and v = fl((x + sigma) - sigma) with sigma = 0.75 2^(rho + c). As |x| <= 2^c, the
sum stays in the binade of sigma, whose last place is 2^(c - beta), beta = 53 - rho: v is x rounded to nearest, ties to
even, to a multiple of that unit, and v and x - v are exact. `extract` computes the same digits by a scaled rounding to
integer, which cannot overflow and which no compiler simplifies. So the digit
D = v / 2^(c - beta) is at most 2^beta, and the slice that is stored, 2^-c v = D 2^-beta, lies in [-1, 1].

The remainder is at most half a unit: the next max is at most 2^(c - beta - 1). A slice therefore takes beta + 1 bits
(the sign is one), if the maximum is recomputed. The article's fused split takes c_p = c_0 - p step instead.

With one scale per matrix, a row smaller than the largest element by 2^-s loses s bits of any fixed number of slices.
"""

from dataclasses import dataclass
from typing import Any

from gemmrepro.core.dtypes import namespace
from gemmrepro.errors import UserError
from gemmrepro.ozaki.accumulate import ceil_log2, check_matrix, peak
from gemmrepro.ozaki.exactness import MANTISSA


@dataclass(frozen=True)
class Slice:
    """v = digits 2^exponent. `digits`: [rows, columns] float64, integers; `exponent`: int32, [1,1], [rows,1] or
    [1,columns]: one scale per matrix, row or column."""

    digits: Any
    exponent: Any

    def value(self) -> Any:
        """The slice as float64 [rows, columns]."""
        return namespace(self.digits).ldexp(self.digits, self.exponent)


@dataclass(frozen=True)
class Split:
    """x = sum of slices + residual, exactly.

    Attributes:
        slices: from the largest to the smallest.
        residual: [rows, columns] float64; zero if the split ran until the remainder was zero.
        beta: |digits| <= 2^beta; by fixed steps longer than beta + 1, up to 2^(step - 1) from the second slice on.
    """

    slices: tuple[Slice, ...]
    residual: Any
    beta: int

    def __len__(self) -> int:
        return len(self.slices)


def extract(x: Any, c: Any, rho: int) -> Slice:
    """x rounded to nearest, as digits of the unit 2^(c + rho - 53). Zeros are +0."""
    xp = namespace(x)
    exponent = (c + (rho - MANTISSA)).astype(xp.int32)
    return Slice(xp.rint(xp.ldexp(x, -exponent)) + 0.0, exponent)


def remainder(x: Any, part: Slice) -> Any:
    """x - v, exactly, also where v is 2^1024: a maximum just below may round up to it."""
    xp = namespace(x)
    shift = xp.where(part.exponent > 900, 2, 0).astype(xp.int32)
    difference = xp.ldexp(xp.ldexp(x, -shift) - xp.ldexp(part.digits, part.exponent - shift), shift)
    # Where the digit is 0, x may be so small that the shift would round it; where it is not, x is large.
    return xp.where(part.digits != 0, difference, x)


def split(x: Any, rho: int, scale: str = "matrix", count: int | None = None, step: int | None = None) -> Split:
    """Split float64 `x` [rows, columns].

    Raises UserError if `x` is no finite float64 matrix, or an argument is out of range.

    Args:
        rho: a slice takes beta = 53 - rho bits (`exactness.rho`).
        scale: "matrix" (the article), "row" (for A) or "column" (for B).
        count: stop after this many slices; None: when the remainder is zero.
        step: take c_p = c_0 - p step instead of recomputing the maximum of the remainder.
    """
    check_matrix(x, "the matrix to split")
    xp = namespace(x)
    if not bool(xp.isfinite(x).all()):
        raise UserError("the matrix to split holds Inf or NaN; set those rows aside first (arrays.set_aside).")
    beta = MANTISSA - rho
    if not 1 <= beta <= 26:
        raise UserError(f"rho is {rho}; it must leave 1 to 26 bits per slice, so lie between 27 and 52.")
    if step is not None and (step < 1 or count is None):
        raise UserError("a split by fixed steps needs step >= 1 and a count of slices.")
    if step is not None and step > 26:
        raise UserError(
            f"steps of {step} bits give digits of {step - 1} bits, too long for a low-precision type; use step <= 26."
        )
    if count is not None and count < 1:
        raise UserError(f"count is {count}; ask for at least one slice.")

    slices: list[Slice] = []
    residual, first = x + 0.0, None
    while count is None or len(slices) < count:
        largest = peak(residual, scale)
        if count is None and not bool((largest > 0).any()):
            break
        if step is None or first is None:
            c = ceil_log2(largest)
            first = c
        else:
            c = first - step * len(slices)
        part = extract(residual, c, rho)
        slices.append(part)
        residual = remainder(residual, part)
    return Split(tuple(slices), residual, beta)
