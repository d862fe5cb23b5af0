"""The numerical gate of copies and vector addition: exact, bit for bit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits
from gemmrepro.gates.compare import Verdict, bit_for_bit
from gemmrepro.gates.gate import Case, Gate, Judged
from gemmrepro.gates.guarded import POISON_BITS, SOURCE_GUARD_BITS, Guarded
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import Kernel

LENGTHS = (1, 31, 1023, 4096, 100_003, (1 << 20) + 5)
MATRICES = ((1, 1), (3, 17), (129, 9), (200, 16), (1000, 130))
"""Rows and columns, in multiples of `Accepts.multiple_of`."""


def run_exact(
    session: device.Session,
    launch: Launcher,
    problem: Problem,
    shape: Shape,
    inputs: list[np.ndarray],
    expected: np.ndarray,
    before: np.ndarray | None = None,
) -> Verdict:
    """Launch an operation with an exact result once, and compare output and guard elements bit for bit.

    Args:
        before: the output before the launch, for an operation that reads it; by default poison.
    """
    arrays = [Guarded(values, SOURCE_GUARD_BITS) for values in inputs]
    poison = np.full(expected.shape, POISON_BITS[expected.itemsize], bits(expected).dtype).view(expected.dtype)
    out = Guarded(poison if before is None else before)
    launch(Operands(problem, shape, tuple(guarded.array for guarded in arrays), out.array))
    session.sync()
    got = out.array.get()
    wrong = bits(got) != bits(expected)
    problems = []
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        problems.append(
            f"{int(wrong.sum())} of {got.size} elements are wrong; the first is [{index}] = {got.flat[index]:.9g}, "
            f"expected {expected.flat[index]:.9g}"
        )
    broken = out.broken() + sum(guarded.broken() for guarded in arrays)
    if broken:
        problems.append(f"{broken} elements outside the arrays were overwritten")
    return Verdict(not problems, 0.0 if not wrong.any() else None, None, "; ".join(problems))


def _special_values(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x[n] and y[n] float32, normal, with some infinities, subnormals and values near the largest."""
    rng = np.random.default_rng([seed, n])
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    special = rng.integers(0, n, 3)
    x[special], y[special[:1]] = (np.inf, 1e-42, 3e38), 3e38
    return x, y


class _ExactVectors(Gate):
    """Operations on fp32 vectors whose result is exactly defined."""

    @abstractmethod
    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Inputs made of `x` and `y`, and the expected output."""

    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        for seed in seeds:
            for n in LENGTHS:
                shape = Shape(1, n, 1)
                with np.errstate(over="ignore", invalid="ignore"):
                    inputs, expected = self.data(*_special_values(n, seed))
                verdict = run_exact(session, launch, kernel.problem, shape, inputs, expected)
                yield Judged(Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0)

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class VectorAdd(_ExactVectors):
    """z = x + y, rounded once."""

    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        return [x, y], x + y

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0] + operands.inputs[1]


class VectorAddInPlace(Gate):
    """y = x + y in place, rounded once."""

    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        for seed in seeds:
            for n in LENGTHS:
                shape, (x, y) = Shape(1, n, 1), _special_values(n, seed)
                with np.errstate(over="ignore", invalid="ignore"):
                    expected = x + y
                verdict = run_exact(session, launch, kernel.problem, shape, [x], expected, before=y)
                yield Judged(Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0)

    def reference(self, operands: Operands) -> Any:
        """The sum; to be asked for before the launch."""
        return operands.inputs[0] + operands.output

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class DeviceCopy(_ExactVectors):
    """A copy of elements of 16 bytes."""

    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        data = np.concatenate([x, y, x[::-1], y[::-1]])
        return [data], data

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0]


class MatrixCopy(Gate):
    """A copy of a matrix of 16-bit elements."""

    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mn"}
        for seed in seeds:
            for m, n in MATRICES:
                shape = Shape(m * step["m"], n * step["n"], 1)
                # Any bits at all, NaNs of every payload among them.
                data = np.random.default_rng([seed, m, n]).integers(0, 2**16, shape.m * shape.n).astype(np.uint16)
                verdict = run_exact(session, launch, kernel.problem, shape, [data], data)
                yield Judged(Case(shape, 1.0, 0.0, "random bits", seed), verdict, 0.0)

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0]

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)
