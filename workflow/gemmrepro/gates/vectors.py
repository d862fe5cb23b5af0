"""The numerical gate of operations on vectors: copies bit for bit, histograms count for count, sums within a bound.

A kernel first sums a contiguous share of the n elements per thread, then the threads' sums in a tree. Its error is at
most the sum of magnitudes times the unit roundoff times the additions on its longest path (Higham, Accuracy and
Stability of Numerical Algorithms, section 4.2); `chain` bounds these for trees over 2^18 threads or more. Sums of small
integers must be exact, and launches on the same input must agree bit for bit.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import DISTRIBUTIONS, STORAGE, bits, draw_ids
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import UNIT_ROUNDOFF
from gemmrepro.gates.gate import POISON_BITS, SOURCE_GUARD_BITS, Case, Gate, Guarded, Judged, Verdict, bit_for_bit
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import HISTOGRAM_BINS, Problem, Shape
from gemmrepro.registry import Kernel

LENGTHS = (1, 3, 31, 1023, 4096, 100_003, (1 << 20) + 5)

BINS = (1, 2, 255, 257, 1000, 12_287, 12_288, 5_000_000)
"""Numbers of bins in addition to 256; kernels must refuse those that they do not take."""

REPEATS = 2
"""Launches of one case that must agree bit for bit; the second starts from the kernel's memory as the first left it."""


def chain(n: int) -> int:
    """The maximum number of additions on any path of a sum of n elements."""
    return 2 * math.ceil(math.log2(n)) + math.ceil(n / 2**18) if n > 1 else 0


@lru_cache(maxsize=256)  # every kernel of a family is judged on the same
def gate_ids(distribution: str, n: int, bins: int, seed: int) -> np.ndarray:
    """ids[n], int32, from one of USUAL_DISTRIBUTIONS, some of which only the gate uses."""
    rng = np.random.default_rng([seed, n, bins])
    if distribution in DISTRIBUTIONS:
        return draw_ids(distribution, n, bins, seed, np)
    if distribution == "sorted":
        return np.sort(draw_ids("skewed", n, bins, seed, np))
    ids = draw_ids("uniform", n, bins, seed, np)
    wrong = np.array([-1, bins, bins + 1, -(2**31), 2**31 - 1, -bins, bins + 31, 2**24], np.int64).astype(np.int32)
    some = rng.random(n) < (1.0 if distribution == "all outside" else 0.3)
    ids[some] = rng.choice(wrong, int(some.sum()))
    return ids


USUAL_DISTRIBUTIONS = (*DISTRIBUTIONS, "sorted", "some outside", "all outside")
FEW_DISTRIBUTIONS = ("uniform", "some outside")


def counts_of(ids: Any, bins: int, xp: Any) -> Any:
    """counts[bins + 1] int32 of `ids`; the last counts those outside [0, bins)."""
    places = xp.where((ids >= 0) & (ids < bins), ids, bins)
    return xp.bincount(places, minlength=bins + 1).astype(xp.int32)


@lru_cache(maxsize=256)
def gate_values(kind: str, n: int, seed: int) -> np.ndarray:
    """x[n], float32, from one of KINDS, the same on every machine."""
    rng = np.random.default_rng([seed, n])
    if kind == "integers":  # every partial sum is below 2^24
        return rng.integers(-8, 9, n).astype(np.float32)
    values = rng.standard_normal(n, dtype=np.float32)
    if kind == "wide exponents":
        values *= np.exp(4 * rng.standard_normal(n, dtype=np.float32))
    elif kind == "one NaN":
        values[rng.integers(n)] = np.nan
    elif kind == "one infinity":
        values[rng.integers(n)] = np.inf
    elif kind == "the last alone":
        values[...] = 0.0
        values[-1] = 3.0
    return values


KINDS = ("normal", "integers", "wide exponents", "one NaN", "one infinity", "the last alone")


def judge_sum(got: float, total: float, magnitude: float, n: int) -> Verdict:
    """Whether `got` is the sum of n elements; `total` and `magnitude` are the float64 sums of values and magnitudes."""
    if math.isnan(total) or math.isinf(total):
        same = math.isnan(got) if math.isnan(total) else got == total
        return Verdict(same, None, None, "" if same else f"the sum is {got:.9g}, expected {total:.9g}")
    unit = UNIT_ROUNDOFF["fp32"]
    error = abs(got - total)
    # One rounding more: the sum itself is stored as fp32.
    right = error <= chain(n) * unit * magnitude + unit * abs(total)
    scaled = error / magnitude / unit if magnitude else 0.0
    message = "" if right else f"the sum is {got:.9g}, expected {total:.9g}; off by {scaled:.3g} u of its magnitudes"
    return Verdict(right, scaled if math.isfinite(scaled) else None, error / abs(total) if total else None, message)


def _run(
    session: Session, launch: Launcher, problem: Problem, shape: Shape, values: np.ndarray, size: int
) -> tuple[np.ndarray, list[str]]:
    """Launch `REPEATS` times into poisoned memory; return the first result, and problems other than its values."""
    source = Guarded(values, SOURCE_GUARD_BITS)
    poison = POISON_BITS[np.dtype(STORAGE[problem.dtype_out]).itemsize]
    out = Guarded(np.zeros(size, STORAGE[problem.dtype_out]))
    results, problems = [], []
    for _ in range(REPEATS):
        bits(out.array)[...] = poison
        launch(Operands(problem, shape, (source.array,), out.array))
        session.sync()
        results.append(out.array.get())
    if any((bits(repeated) != bits(results[0])).any() for repeated in results[1:]):
        problems.append("launches on the same input differ: a race, or something left over from the first")
    if broken := out.broken() + source.broken():
        problems.append(f"{broken} elements outside the arrays were overwritten")
    if (bits(source.array.get()) != bits(values)).any():
        problems.append("the input was overwritten")
    return results[0], problems


def _exactly(got: np.ndarray, expected: np.ndarray) -> list[str]:
    wrong = np.flatnonzero(bits(got) != bits(expected))
    if not wrong.size:
        return []
    at = int(wrong[0])
    return [f"{wrong.size} of {got.size} elements are wrong; the first is [{at}] = {got[at]}, expected {expected[at]}"]


class _VectorGate(Gate):
    """Operations on a vector, each launched twice into poisoned memory between guard bands."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for seed in seeds:
            yield from self.of_seed(session, kernel, launch, seed)

    @abstractmethod
    def of_seed(self, session: Session, kernel: Kernel, launch: Launcher, seed: int) -> Iterator[Judged]:
        """Launch and judge every case of one seed."""


class Reduce(_VectorGate):
    """A sum, within the bound of its longest chain of additions."""

    def of_seed(self, session: Session, kernel: Kernel, launch: Launcher, seed: int) -> Iterator[Judged]:
        for n in (*LENGTHS, *(shape.n for shape in kernel.promises.gate_shapes)):
            for kind in KINDS:
                shape = Shape(1, n, 1)
                values = gate_values(kind, n, seed)
                got, problems = _run(session, launch, kernel.problem, shape, values, 1)
                total, magnitude = float(values.sum(dtype=np.float64)), float(np.abs(values).sum(dtype=np.float64))
                verdict = judge_sum(float(got[0]), total, magnitude, n)
                if verdict.message:
                    problems.insert(0, verdict.message)
                if kind in ("integers", "the last alone") and float(got[0]) != total:
                    problems.insert(0, f"the sum of small integers is {got[0]:.9g}, expected {total:.9g}")
                verdict = Verdict(not problems, verdict.err_scaled_max, verdict.err_fro, "; ".join(problems))
                yield Judged(Case(shape, 1.0, 0.0, kind, seed), verdict, chain(n) * UNIT_ROUNDOFF["fp32"])

    def reference(self, operands: Operands) -> tuple[float, float]:
        """The sum and the sum of magnitudes in float64."""
        import cupy

        values = operands.inputs[0]
        return float(values.sum(dtype=cupy.float64)), float(cupy.abs(values).sum(dtype=cupy.float64))

    def judge(self, operands: Operands, reference: tuple[float, float], kernel: Kernel | None = None) -> Verdict:
        return judge_sum(float(operands.output[0]), *reference, operands.shape.n)


class Histogram(_VectorGate):
    """Counts of ids, those outside all bins included; exact."""

    def of_seed(self, session: Session, kernel: Kernel, launch: Launcher, seed: int) -> Iterator[Judged]:
        usual = tuple(Shape(1, n, HISTOGRAM_BINS) for n in LENGTHS)
        for shape in (*usual, *(Shape(1, LENGTHS[-2], bins) for bins in BINS), *kernel.promises.gate_shapes):
            if not kernel.takes(shape):
                message = _refusal(kernel, launch, shape)
                verdict = Verdict(not message, None, None, message)
                yield Judged(Case(shape, 1.0, 0.0, "refused size", seed), verdict, 0.0)
                continue
            for distribution in USUAL_DISTRIBUTIONS if shape in usual else FEW_DISTRIBUTIONS:
                ids = gate_ids(distribution, shape.n, shape.k, seed)
                got, problems = _run(session, launch, kernel.problem, shape, ids, shape.k + 1)
                problems = _exactly(got, counts_of(ids, shape.k, np)) + problems
                yield Judged(Case(shape, 1.0, 0.0, distribution, seed), _exact_verdict(problems), 0.0)

    def reference(self, operands: Operands) -> Any:
        import cupy

        return counts_of(operands.inputs[0], operands.shape.k, cupy)

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class VectorCopy(_VectorGate):
    """A copy, bit for bit, with every possible tail of 16-byte accesses."""

    def of_seed(self, session: Session, kernel: Kernel, launch: Launcher, seed: int) -> Iterator[Judged]:
        for n in (*LENGTHS, *range(4096, 4096 + 16), *(shape.n for shape in kernel.promises.gate_shapes)):
            shape = Shape(1, n, 1)
            storage = np.dtype(STORAGE[kernel.compute.dtype_in])
            # Any bits at all, NaNs of every payload among them.
            data = np.frombuffer(np.random.default_rng([seed, n]).bytes(n * storage.itemsize), storage)
            got, problems = _run(session, launch, kernel.problem, shape, data, n)
            problems = _exactly(got, data) + problems
            yield Judged(Case(shape, 1.0, 0.0, "random bits", seed), _exact_verdict(problems), 0.0)

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0]

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class WholeCopy(VectorCopy):
    """A copy of lengths that are multiples of what the kernel takes; it must refuse any other."""

    def of_seed(self, session: Session, kernel: Kernel, launch: Launcher, seed: int) -> Iterator[Judged]:
        step = kernel.accepts.multiple_of.get("n", 1)
        lengths = {-(-n // step) * step + more for n in (*LENGTHS, 4097) for more in (0, 1)}
        for shape in (*(Shape(1, n, 1) for n in sorted(lengths)), *kernel.promises.gate_shapes):
            if kernel.takes(shape):
                storage = np.dtype(STORAGE[kernel.compute.dtype_in])
                data = np.frombuffer(np.random.default_rng([seed, shape.n]).bytes(shape.n * storage.itemsize), storage)
                got, problems = _run(session, launch, kernel.problem, shape, data, shape.n)
                inputs, verdict = "random bits", _exact_verdict(_exactly(got, data) + problems)
            else:
                message = _refusal(kernel, launch, shape)
                inputs, verdict = "refused size", Verdict(not message, None, None, message)
            yield Judged(Case(shape, 1.0, 0.0, inputs, seed), verdict, 0.0)


def _exact_verdict(problems: Sequence[str]) -> Verdict:
    return Verdict(not problems, None if problems else 0.0, None, "; ".join(problems))


def _refusal(kernel: Kernel, launch: Launcher, shape: Shape) -> str:
    """The problem with how `kernel` refuses `shape`, or "": it must raise with its own name, before a launch."""
    try:
        launch(Operands(kernel.problem, shape, (), None))
    except UserError as error:
        return "" if kernel.id in str(error) and str(shape.k) in str(error) else str(error)
    return f"{shape} should be refused"
