"""Device operands of one problem, and the judgement of a result before and after it is timed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gemmrepro import operands, operations, timing
from gemmrepro.core import dtypes
from gemmrepro.gates.compare import Verdict
from gemmrepro.gates.guarded import POISON_BITS
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import device
from gemmrepro.measure.records import Check
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import Kernel


class Workspace:
    """The operands of one problem in one round, and its reference while a check needs it."""

    def __init__(self, session: device.Session, problem: Problem, shape: Shape, seed: int) -> None:
        import cupy

        self.problem, self.shape = problem, shape
        cupy.get_default_memory_pool().free_all_blocks()
        # Addresses vary between rounds, as they do between runs.
        spacer = cupy.empty(random.Random(seed).randrange(1, 64) << 20, dtype=cupy.uint8)
        self._inputs, self._output = operands.random(problem, shape, seed)
        self._copies: list[tuple[list[Any], Any]] = [(self._inputs, self._output)]
        self._gate = Gates().of(problem.op)
        self._reference: Any = None
        del spacer

    def operands(self, kernel: Kernel | None, index: int = 0) -> Operands:
        """Operands for `kernel` (None: for a baseline) on copy `index`."""
        inputs, output = self._copies[index]
        if kernel is None:
            return Operands(self.problem, self.shape, tuple(inputs), output)
        return Operands.of(kernel, self.shape, inputs, output)

    @property
    def has_inputs(self) -> bool:
        """Whether the problem has any; a ceiling of arithmetic has none."""
        return bool(self._inputs)

    def copies(self, l2_bytes: int) -> int:
        """Make as many copies of the operands as rotation through an L2 of `l2_bytes` needs; returns their number."""
        wanted = timing.rotation_sets(operations.nbytes(self.problem, self.shape), l2_bytes)
        while len(self._copies) < wanted:
            self._add_copy()
        return wanted

    def copy(self) -> None:
        """Make a second copy of the operands, unless there is one."""
        if len(self._copies) == 1:
            self._add_copy()

    def _add_copy(self) -> None:
        self._copies.append(([array.copy() for array in self._inputs], self._output.copy()))

    def check(self, call: Callable[[], None], timer: timing.Timer, kernel: Kernel | None = None) -> Check:
        """Run once into poisoned memory, judge the result, and time the launch.

        Args:
            kernel: the kernel that `call` launches; None for a library.
        """
        dtypes.bits(self._output)[...] = POISON_BITS[self._output.dtype.itemsize]
        first = timer.once(call)
        verdict = self.judged(kernel)
        estimate = timer.estimate(call, first) if verdict.passed else first
        return Check(verdict.passed, verdict.message, verdict.err_scaled_max, verdict.err_fro, estimate)

    def judged(self, kernel: Kernel | None, index: int = 0) -> Verdict:
        """Judge what the output of copy `index` holds, within the bound of `kernel`; None for a library."""
        checked = self.operands(None, index)
        if self._reference is None:
            self._reference = self._gate.reference(self.operands(None))
        return self._gate.judge(checked, self._reference, kernel)

    def renew(self, seed: int) -> None:
        """Draw other inputs into the same memory. What the output holds is then wrong; further copies are gone."""
        self._reference = None
        del self._copies[1:]
        drawn, _ = operands.random(self.problem, self.shape, seed)
        for array, values in zip(self._inputs, drawn, strict=True):
            array[...] = values

    def scramble(self) -> None:
        """Invert every bit of all outputs: wrong numbers, and no poison that would tell a kernel that it is judged."""
        for _, output in self._copies:
            stored = dtypes.bits(output)
            stored[...] = ~stored

    def forget_reference(self) -> None:
        """Free the reference; the timing that follows needs the memory for copies of the operands."""
        self._reference = None
