"""Device operands of one problem, and the check of a result before it is timed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gemmrepro import operands, operations, timing
from gemmrepro.core import dtypes
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

    def copies(self, l2_bytes: int) -> int:
        """Make as many copies of the operands as rotation through an L2 of `l2_bytes` needs; returns their number."""
        wanted = timing.rotation_sets(operations.nbytes(self.problem, self.shape), l2_bytes)
        while len(self._copies) < wanted:
            self._copies.append(([array.copy() for array in self._inputs], self._output.copy()))
        return wanted

    def check(self, call: Callable[[], None], timer: timing.Timer, kernel: Kernel | None = None) -> Check:
        """Run once into poisoned memory, judge the result, and time the launch.

        Args:
            kernel: the kernel that `call` launches; None for a library.
        """
        dtypes.bits(self._output)[...] = POISON_BITS[self._output.dtype.itemsize]
        first = timer.once(call)
        checked = self.operands(None)
        if self._reference is None:
            self._reference = self._gate.reference(checked)
        verdict = self._gate.judge(checked, self._reference, kernel)
        estimate = timer.estimate(call, first) if verdict.passed else first
        return Check(verdict.passed, verdict.message, verdict.err_scaled_max, verdict.err_fro, estimate)

    def forget_reference(self) -> None:
        """Free the reference; the timing that follows needs the memory for copies of the operands."""
        self._reference = None
