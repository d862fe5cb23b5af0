"""The interface of an operation's numerical gate, and what all gates share: guarded arrays and comparison by elements.

Where the exact scale |A||B| is zero, C must be zero exactly. NaN passes only where the reference is NaN, infinity only
where it is infinite.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits, namespace, widen
from gemmrepro.gates.bounds import LARGEST, UNIT_ROUNDOFF
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

GUARD = 2048
"""Guard elements on each side of an array; 4 KB or more keeps the array's own alignment."""

GUARD_BITS = {8: 0x7FFE5A5A5A5A5A5A, 4: 0x7FE5A5A5, 2: 0x7FE5, 1: 0x7F}
"""Quiet NaNs whose payload no arithmetic produces, by element size in bytes: NaN in fp16 and bf16, in e4m3 and e5m2; as
signed integers near the largest."""

SOURCE_GUARD_BITS = {8: 0x7FFE3C3C3C3C3C3C, 4: 0x7FE3C3C3, 2: 0x7FE3, 1: 0xFF}
"""Guard bits of inputs. They differ from those of outputs, so that a copy of one element too many is detected."""

POISON_BITS = {8: 0x7FFC0DEADC0DEAD0, 4: 0x7FC0DEAD, 2: 0x7FCD, 1: 0x7F}


class Guarded:
    """An array of stored elements on the GPU between two guard bands.
    The bands are written in one copy and checked on the host, so that CuPy compiles no kernel for it. `guards` are the
    bits of a guard element by element size."""

    def __init__(self, values: np.ndarray, guards: Mapping[int, int] = GUARD_BITS) -> None:
        import cupy

        self._guard = guards[values.dtype.itemsize]
        flat = np.empty(values.size + 2 * GUARD, dtype=values.dtype)
        bits(flat)[...] = self._guard
        flat[GUARD : GUARD + values.size] = values.ravel()
        self._flat = cupy.empty(flat.size, dtype=values.dtype)
        self._flat.set(flat)
        self.array = self._flat[GUARD : GUARD + values.size].reshape(values.shape)

    def broken(self) -> int:
        """The number of guard elements that were overwritten."""
        ends = self._flat[:GUARD].get(), self._flat[-GUARD:].get()
        return sum(int((bits(end) != self._guard).sum()) for end in ends)


@dataclass(frozen=True)
class Verdict:
    """Outcome of comparing one result.

    Attributes:
        err_scaled_max: largest |C - C*| / (|A||B| scale) in units of the output's roundoff, less the subnormal
            allowance; None if no element has a finite reference and a positive scale.
        err_fro: ||C - C*||_F / ||C*||_F over the finite elements; None if the divisor is 0.
        message: the fault, with the first wrong element; empty if it passed.
    """

    passed: bool
    err_scaled_max: float | None
    err_fro: float | None
    message: str


def compare(
    result: Any,
    reference: Any,
    scale: Any,
    bound: float,
    *,
    dtype: str = "fp32",
    underflow: float = 0.0,
    scheme: Any = 0.0,
    reach: Any = None,
    rows: int = 2048,
) -> Verdict:
    """Judge `result` element by element. Raises ValueError if shapes differ.

    Args:
        result: [m, n] stored elements of `dtype`; NumPy or CuPy.
        reference: [m, n] float64, the exact result to double precision.
        scale: [m, n] float64, |alpha| |A||B| + |beta| |C0|.
        bound: gamma. If `dtype` is narrower than fp32, the final rounding to it is allowed in addition.
        underflow: absolute allowance for subnormal rounding.
        scheme: a further allowance (`Promises.error`), a number or an array that broadcasts to [m, n].
        reach: [m, n] float64, the largest of the fp16 sums along the way, which may overflow; None if only the result
            can.
        rows: rows that are judged at a time, which limits the memory in use.
    """
    xp = namespace(result)
    if result.shape != reference.shape or result.shape != scale.shape:
        raise ValueError(f"shapes differ: {result.shape}, {reference.shape}, {scale.shape}")
    scheme = xp.broadcast_to(xp.asarray(scheme, dtype=xp.float64), result.shape)
    first, errors = None, _Errors()
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, result.shape[0], rows):
            block = slice(start, start + rows)
            got, want, size = widen(result[block], dtype), reference[block], scale[block]
            allowed = _allowed(want, size, scheme[block], bound, underflow, dtype)
            if reach is None:
                good = _acceptable(got, want, allowed, xp.abs(want), LARGEST[dtype])
            else:
                good = _acceptable(got, want, allowed, reach[block], LARGEST["fp16"])
            bad = int((~good).sum())
            if bad and first is None:
                row, column = (int(axis[0]) for axis in xp.nonzero(~good))
                first = (start + row, column, float(got[row, column]), float(want[row, column]))
            errors = errors + _errors_of(got, want, size, bad, underflow, UNIT_ROUNDOFF[dtype])
    message = ""
    if first is not None:
        row, column, got_value, want_value = first
        message = (
            f"{errors.bad} of {result.size} elements are wrong; the first is C[{row},{column}] = {got_value:.9g}, "
            f"expected {want_value:.9g}"
        )
    return Verdict(errors.bad == 0, errors.worst, errors.fro, message)


@dataclass(frozen=True)
class _Errors:
    """Errors accumulated over blocks of rows. `bad`: elements that are wrong; `worst`: as `Verdict.err_scaled_max`;
    `square_error`, `square_reference`: squared Frobenius norms over the finite elements."""

    bad: int = 0
    worst: float | None = None
    square_error: float = 0.0
    square_reference: float = 0.0

    def __add__(self, other: _Errors) -> _Errors:
        worst = [value for value in (self.worst, other.worst) if value is not None]
        return _Errors(
            self.bad + other.bad,
            max(worst, default=None),
            self.square_error + other.square_error,
            self.square_reference + other.square_reference,
        )

    @property
    def fro(self) -> float | None:
        return math.sqrt(self.square_error / self.square_reference) if self.square_reference > 0 else None


def _allowed(want: Any, size: Any, scheme: Any, bound: float, underflow: float, dtype: str) -> Any:
    """The allowed deviation of each element from `want`."""
    xp = namespace(want)
    # Where every product is zero, so is the sum.
    allowed = bound * size + xp.where(size > 0, underflow + scheme, 0.0)
    if dtype in ("fp16", "bf16"):  # the result is rounded once more
        last_rounding = UNIT_ROUNDOFF[dtype]
        allowed = allowed + last_rounding * (xp.where(xp.isfinite(want), xp.abs(want), 0.0) + allowed)
    return allowed


def _acceptable(got: Any, want: Any, allowed: Any, reach: Any, largest: float) -> Any:
    """Mask of the elements that are right, if sums that reach further than `largest` overflow."""
    xp = namespace(got)
    want_nan = xp.isnan(want)
    # If the reference exceeds the largest float by more than the bound, every correct sum overflows; if it is within
    # the bound of it, both outcomes are correct.
    must_overflow = xp.isinf(want) | (reach - allowed > largest)
    may_overflow = ~want_nan & ~must_overflow & (reach + allowed > largest)
    same_infinity = xp.isinf(got) & (xp.sign(got) == xp.sign(want))
    close = xp.isfinite(got) & (xp.abs(got - want) <= allowed)
    return xp.where(
        want_nan, xp.isnan(got), xp.where(must_overflow, same_infinity, close | (may_overflow & same_infinity))
    )


def _errors_of(got: Any, want: Any, size: Any, bad: int, underflow: float, unit: float) -> _Errors:
    """The errors of one block of rows, `bad` of its elements being wrong."""
    xp = namespace(got)
    finite = xp.isfinite(got) & xp.isfinite(want) & xp.isfinite(size)
    difference = xp.where(finite, xp.abs(got - want), 0.0)
    square_error = float((difference**2).sum())
    square_reference = float((xp.where(finite, want, 0.0) ** 2).sum())
    judged = finite & (size > 0)
    worst = None
    if bool(judged.any()):
        excess = xp.maximum(difference - underflow, 0.0)
        worst = float((excess / xp.where(judged, size, 1.0))[judged].max()) / unit
    return _Errors(bad, worst, square_error, square_reference)


def bit_for_bit(result: Any, expected: Any) -> Verdict:
    """Judge a result that must be exact; NumPy or CuPy."""
    wrong = int((bits(result) != bits(expected)).sum())
    exact = None if wrong else 0.0
    return Verdict(not wrong, exact, exact, f"{wrong} elements are wrong" if wrong else "")


def reference_gemm(
    a: Any,
    b: Any,
    alpha: float,
    beta: float,
    c0: Any,
    xp: Any = np,
    multiply: Callable[[Any, Any], Any] = operator.matmul,
) -> tuple[Any, Any]:
    """C* and the scale |alpha||A||B| + |beta||C0|, both [m,n] float64.
    As in BLAS, C0 is not read if beta is 0, and A and B are not read if alpha is 0. `multiply`: the float64 product; by
    default the arrays' own."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide_a, wide_b = a.astype(xp.float64), b.astype(xp.float64)
        alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
        if alpha == 0.0:
            product, size = (xp.zeros((a.shape[0], b.shape[1])) for _ in range(2))
        else:
            product = alpha * multiply(wide_a, wide_b)
            size = abs(alpha) * multiply(xp.abs(wide_a), xp.abs(wide_b))
        if beta != 0.0:
            product = product + beta * c0.astype(xp.float64)
            size = size + abs(beta) * xp.abs(c0.astype(xp.float64))
    return product, size


@dataclass(frozen=True)
class Case:
    """One launch to judge. `inputs` names how they are drawn; the seed makes it reproducible."""

    shape: Shape
    alpha: float
    beta: float
    inputs: str
    seed: int


@dataclass(frozen=True)
class Judged:
    """A case, its verdict, and the bound (gamma) on its relative error."""

    case: Case
    verdict: Verdict
    gamma: float

    def record(self) -> dict[str, Any]:
        """The case as in the gate's JSON."""
        case, worst = self.case, self.verdict.err_scaled_max
        return {
            "shape": [case.shape.m, case.shape.n, case.shape.k],
            "alpha": case.alpha,
            "beta": case.beta,
            "inputs": case.inputs,
            "seed": case.seed,
            "err_scaled_max": None if worst is None else float(f"{worst:.4g}"),
            "gamma": float(f"{self.gamma:.4g}"),
            "passed": self.verdict.passed,
            "message": self.verdict.message,
        }


class Gate(ABC):
    """The judge of one operation's results. An instance may cache what the kernels it judges share.
    The code that a subclass reaches is part of the gate key (`operations.protocol`)."""

    @abstractmethod
    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        """Launch every case of `kernel` for each of `seeds`, and judge it.
        Raises UserError if a launch corrupted the GPU's context."""

    def large_cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        """The cases that fill the GPU, where a race shows; all cases unless the gate knows better."""
        return self.cases(session, kernel, launch, seeds)

    def reference(self, operands: Operands) -> Any:
        """The reference for `judge`, which kernels on the same operands share; None by default."""
        return None

    @abstractmethod
    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """Judge the output of one launch on `operands` against `reference`; `kernel` is None for a library."""
