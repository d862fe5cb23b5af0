"""The article's two programs, as parameters of the reference.

*Naive*: rho for the whole inner dimension, one scale per matrix, the maximum recomputed before each slice,
until the remainder is zero; all pairs.

*Fast Mode with fused split*: the first maximum only, all sigma up front, a fixed number of slices. The article does not
print its steps; they follow from its slice counts and errors. ceil(53 / m2) slices (bf16 7, e4m3 14), m2 - 1 bits
from one to the next, with rho for the whole inner dimension predict every one of the 13 errors it prints for these
programs to within 12 %: `bounds.predicted_fro` against its `numbers.csv` is a test. So the steps are inferred, and the
inference is checked. Its d is not explained: bf16 9 and e4m3 16 are both two more than the slices, while
2 sqrt(k) u |A||B| on normal operands with k = 1024 to 16384 asks for 8 and 17 to 18 if dropped pairs add up in the
worst case, and for 7 and 14 to 16 if at random (`bounds.smallest_d`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gemmrepro.ozaki import exactness
from gemmrepro.ozaki.formats import named
from gemmrepro.ozaki.splitting import Split, split


@dataclass(frozen=True)
class Fused:
    """The fused split's parameters, of `splitting.split`."""

    rho: int
    count: int
    step: int

    @property
    def beta(self) -> int:
        return exactness.MANTISSA - self.rho


def naive_split(x: Any, k: int, fmt: str) -> Split:
    """The article's first split of a finite float64 matrix, for inner products of `k` terms, in that format."""
    return split(x, exactness.rho(k, named(fmt)))


def fused(k: int, fmt: str) -> Fused:
    """The fused split's parameters for inner products of `k` terms, as inferred."""
    slices = named(fmt)
    return Fused(exactness.rho(k, slices), math.ceil(exactness.MANTISSA / slices.significant), slices.significant - 1)


def fused_split(x: Any, k: int, fmt: str) -> Split:
    """The article's second split, whose last residual is not zero."""
    parameters = fused(k, fmt)
    return split(x, parameters.rho, count=parameters.count, step=parameters.step)
