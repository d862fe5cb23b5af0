"""The article's two programs: parameters of the reference, and the host side of the first.

*Naive*: rho for the whole inner dimension, one scale per matrix, the maximum recomputed before each slice,
until the remainder is zero; all pairs.

*Fast Mode with fused split*: the first maximum only, all sigma up front, a fixed number of slices. The article does not
print its steps; they follow from its slice counts and errors. ceil(53 / m2) slices (bf16 7, e4m3 14), m2 - 1 bits
from one to the next, with rho for the whole inner dimension predict every one of the 13 errors it prints for these
programs to within 12 %: a test predicts them. So the steps are inferred, and the
inference is checked. Its d is not explained: bf16 9 and e4m3 16 are both two more than the slices, while
2 sqrt(k) u |A||B| on normal operands with k = 1024 to 16384 asks for 8 and 17 to 18 if dropped pairs add up in the
worst case, and for 7 and 14 to 16 if at random (`bounds.smallest_d`).

The host side stands between the launches of `kernels/ozaki/0_naive.py`.
`launches` is a `gemmrepro.gpu.loaded.Launches`. Its kernel has the launches ``maxima_a``, ``extract_a``, the same for
B, and ``product``; its workspace is ``partial`` maxima, ``sigma``, ``inverse`` (2^-c), and for either operand
``left_a`` and ``spare_a`` (its remainder), ``slices_a`` and ``scale_a``.
"""

import math
from dataclasses import dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki import exactness, splitting
from gemmrepro.ozaki.exactness import named


@dataclass(frozen=True)
class Fused:
    """The fused split's parameters, of `splitting.split`."""

    rho: int
    count: int
    step: int

    @property
    def beta(self) -> int:
        return exactness.MANTISSA - self.rho


def naive_split(x: Any, k: int, fmt: str) -> splitting.Split:
    """The article's first split of a finite float64 matrix, for inner products of `k` terms, in that format."""
    return splitting.split(x, exactness.rho(k, named(fmt)))


def fused(k: int, fmt: str) -> Fused:
    """The fused split's parameters for inner products of `k` terms, as inferred."""
    slices = named(fmt)
    return Fused(exactness.rho(k, slices), math.ceil(exactness.MANTISSA / slices.significant), slices.significant - 1)


FORMATS = {"fp16": "fp16", "bf16": "bf16", "fp8_e4m3": "e4m3"}
"""The format of slices by the name of their type in the registry."""


def split(launches: Any, fmt: str) -> tuple[int, int]:
    """Split A and B until the remainders are zero, reading back each maximum; returns the number of slices of each.
    Slices lie in ``slices_a`` [slices, m, k] and ``slices_b`` [slices, n, k], their scales 2^c in ``scale_a`` and
    ``scale_b``. A matrix of zeros has one slice. Raises UserError if sigma or 2^-c of a maximum is not a float64, or
    more slices are needed than fit the workspace."""
    return _split(launches, "a", fmt), _split(launches, "b", fmt)


def _split(launches: Any, operand: str, fmt: str) -> int:
    rho = exactness.rho(launches.shape.k, named(fmt))
    source, workspace = launches.operands[operand], launches.workspace
    slices, scales = workspace[f"slices_{operand}"], workspace[f"scale_{operand}"]
    remainders = workspace[f"left_{operand}"], workspace[f"spare_{operand}"]
    count = 0
    while True:
        launches(f"maxima_{operand}", **{operand: source})
        largest = float(launches.read(workspace["partial"]).max())
        if largest == 0.0 and count:
            return count
        if count == len(slices):
            raise UserError(
                f"after {count} slices of {operand.upper()} something is left: its exponents range too widely for one "
                "scale per matrix; scale its rows and columns first."
            )
        fraction, exponent = math.frexp(largest)
        c = exponent - (fraction == 0.5)
        if not -1022 <= c <= 1023 - rho:
            raise UserError(
                f"what is left of {operand.upper()} reaches 2^{c}, and this split takes 2^-1022 to 2^{1023 - rho}; "
                "scale the operand by a power of two first."
            )
        workspace["sigma"].fill(math.ldexp(0.75, rho + c))
        workspace["inverse"].fill(math.ldexp(1.0, -c))
        scales[count : count + 1].fill(math.ldexp(1.0, c))
        target = remainders[count % 2]
        part = {operand: source, f"left_{operand}": target, f"slices_{operand}": slices[count : count + 1]}
        launches(f"extract_{operand}", **part)
        source, count = target, count + 1


def multiply(launches: Any, slices_a: int, slices_b: int) -> None:
    """C from the slices that `split` left, all pairs."""
    workspace = launches.workspace
    launches("product", slices_a=workspace["slices_a"][:slices_a], slices_b=workspace["slices_b"][:slices_b])


def naive(dtype: str) -> Any:
    """The whole program, for slices of `dtype`, a key of FORMATS."""

    def program(launches: Any) -> None:
        multiply(launches, *split(launches, FORMATS[dtype]))

    return program
