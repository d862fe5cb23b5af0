"""The numerical gate of pointwise operations: each element against the same formula in float64.

**gelu**: y = x/2 (1 + erf(t)) with t = x / 1.41421 and the constant rounded to fp32. With u = 2^-24 the errors of one
evaluation in fp32 are: t is off by 3u relative (the rounded reciprocal, the product), which moves erf by at most
2/sqrt(pi) t exp(-t^2) 3u <= 1.5u; erff is off by 2 units in the last place, 2u below 1 (CUDA C++ Programming Guide, the
table of mathematical functions); the sum, below 2, is rounded by u; the two products by u of y each. Together
(1.5 + 2 + 1) u |x|/2 + 2u |y|, and one subnormal step.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits
from gemmrepro.gates.gate import POISON_BITS, SOURCE_GUARD_BITS, Case, Gate, Guarded, Judged, Verdict
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

UNIT = 2.0**-24
SUBNORMAL = 2.0**-149

GAMMA = 4.5 / 2 * UNIT
"""The part of the bound that is proportional to |x|; see the module's docstring."""

REPEATS = 3

LENGTHS = (1, 3, 4, 5, 1023, 4096, 4099, 100_003, (1 << 22) + 5)
DISTRIBUTIONS = ("normal", "wide exponents", "special")


def draw(distribution: str, n: int, seed: int) -> np.ndarray:
    """x[n], float32, the same on every machine: normal, of every exponent, or with infinities, NaNs and zeros."""
    rng = np.random.default_rng([seed, n, DISTRIBUTIONS.index(distribution)])
    x = rng.standard_normal(n, dtype=np.float32)
    if distribution == "wide exponents":
        x = np.ldexp(x, rng.integers(-146, 125, n)).astype(np.float32)
    elif distribution == "special":
        specials = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38], np.float32)
        x[rng.integers(0, n, max(1, n // 4))] = rng.choice(specials)
        x[: len(specials)] = specials[:n]
    return x


def gelu(x: np.ndarray) -> np.ndarray:
    """The formula in float64 of float32 `x`; -inf gives NaN, as the formula does: -inf times zero."""
    from scipy.special import erf

    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return wide * 0.5 * (1.0 + erf(wide / np.float64(np.float32(1.41421))))


def judge(x: np.ndarray, got: np.ndarray) -> Verdict:
    """Whether `got` is GELU of `x` within the bound; the error is in units of 2^-24 |x|."""
    right = gelu(x)
    finite = np.isfinite(right)
    same = np.where(np.isnan(right), np.isnan(got), got == right)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - right)
        limit = GAMMA * np.abs(x.astype(np.float64)) + 2 * UNIT * np.abs(right) + SUBNORMAL
        good = np.where(finite, error <= limit, same)
        scaled = np.where(finite & (x != 0), (error - SUBNORMAL).clip(0) / np.abs(x.astype(np.float64)), 0.0) / UNIT
    worst = float(scaled[np.isfinite(scaled)].max(initial=0.0))
    if good.all():
        return Verdict(True, worst, None, "")
    index = int(np.flatnonzero(~good)[0])
    message = (
        f"{int((~good).sum())} of {got.size} elements are wrong; the first is [{index}] = {got[index]:.9g} of x = "
        f"{x[index]:.9g}, expected {right[index]:.9g}"
    )
    return Verdict(False, worst, None, message)


class Gelu(Gate):
    """GELU: lengths around its vectors and blocks, one that fills the GPU, three distributions."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for seed in seeds:
            for n in LENGTHS:
                for distribution in DISTRIBUTIONS:
                    verdict = _run(session, kernel, launch, draw(distribution, n, seed))
                    yield Judged(Case(Shape(1, n, 1), 1.0, 0.0, distribution, seed), verdict, GAMMA + 2 * UNIT)

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return judge(operands.inputs[0].get(), operands.output.get())


def _run(session: Session, kernel: Kernel, launch: Launcher, x: np.ndarray) -> Verdict:
    """Launch REPEATS times on `x`, into poisoned memory between guard bands, and judge."""
    arrays = Guarded(x, SOURCE_GUARD_BITS)
    out = Guarded(np.full(x.size, POISON_BITS[4], np.uint32).view(np.float32))
    operands = Operands(kernel.problem, Shape(1, x.size, 1), (arrays.array,), out.array)
    results = []
    for _ in range(REPEATS):
        bits(out.array)[...] = POISON_BITS[4]
        launch(operands)
        session.sync()
        results.append(out.array.get())
    verdict = judge(x, results[0])
    problems = [verdict.message] if verdict.message else []
    if (bits(results[0]) == POISON_BITS[4]).any():
        problems.append("some elements were never written")
    if any((bits(repeated) != bits(results[0])).any() for repeated in results[1:]):
        problems.append("launches on the same input differ: a race")
    if arrays.broken() or out.broken():
        problems.append("elements outside the arrays were overwritten")
    if (bits(arrays.array.get()) != bits(x)).any():
        problems.append("the input was overwritten")
    return Verdict(not problems, verdict.err_scaled_max, None, "; ".join(problems))
