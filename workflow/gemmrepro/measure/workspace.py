"""Device operands of one problem, and the judgements of a result before and after it is timed.

The second judgement is on inputs that a kernel has not seen. Every timed launch finds the same inputs and, in C, the
right result, and a kernel could tell: return if C is no poison, give back what it stored, or compute honestly a fixed
number of times. So the inputs are replaced in place, C is left with other numbers, and the launch must be right and
take about as long as the samples say, in the first round, and again in a later one that is much quicker.

What was timed as graphs is also launched as one: twice, back to back, on two copies of the operands, of which the
second must be right, since in so short a sample skipped work stays within what time allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro import operands, operations, timing
from gemmrepro.core import dtypes
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.gates.gate import POISON_BITS, Verdict
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import device
from gemmrepro.measure.prepare import Check
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
        self.copy(wanted)
        return wanted

    def copy(self, wanted: int) -> None:
        """Make copies of the operands until there are as many as `wanted`."""
        while len(self._copies) < wanted:
            self._copies.append(([array.copy() for array in self._inputs], self._output.copy()))

    def check(self, call: Callable[[], None], timer: timing.Timer, kernel: Kernel | None = None) -> Check:
        """Run once into poisoned memory, judge the result, and time the launch; `kernel` is None for a library."""
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


SLOWER = 3.0
"""Multiple of a sample's time that a launch on other inputs may take: from DRAM, the samples perhaps from L2."""

ALLOWANCE_US = 20.0
"""Time in µs that it may take in addition: a sample from a graph has no overhead of its own launch."""

QUICKER = 0.8
"""A round whose median is below this share of the one judged is judged again. Honest rounds differ by a few percent."""

FLUSHES = 8
"""L2 flushes before such a launch: they keep the GPU busy until the host has submitted it."""

TRIES = 3
"""Launches, each on inputs of its own, that must all be too slow."""

Launch = Callable[[], None]


@dataclass(frozen=True)
class Second:
    """A kernel to judge again, within its bound.
    `bind`: gives a launch on copy 0 or 1 of the operands; from then on it holds the kernel's workspace, one at a time.
    `shortest_us`: the shortest median of its samples. `graphs`: whether a sample was a graph of launches."""

    bind: Callable[[int], Launch]
    kernel: Kernel | None
    shortest_us: float
    graphs: bool = False

    def suspicious(self, took_us: float) -> bool:
        """Whether a launch took longer than its samples allow."""
        return took_us > SLOWER * self.shortest_us + ALLOWANCE_US


class SecondLook:
    """Judges kernels again that share operands. All are judged on the same new inputs, hence on one reference."""

    def __init__(self, workspace: Workspace, timer: timing.Timer) -> None:
        self._workspace, self._timer = workspace, timer
        workspace.renew(fresh_seeds(1)[0])

    def judge(self, seconds: Sequence[Second]) -> list[str]:
        """The fault of each, or ""."""
        wrong, times = [], []
        for second in seconds:
            took, message = self._launched(second)
            times.append(took)
            wrong.append(message or (self._replayed(second) if second.graphs else ""))
        # Timed again at the end, since those launches replace the inputs that all share here.
        for place, (second, took) in enumerate(zip(seconds, times, strict=True)):
            if not wrong[place] and second.suspicious(took):
                wrong[place] = self._too_slow(second, took)
        return wrong

    def _launched(self, second: Second) -> tuple[float, str]:
        """The time in µs of a launch that finds neither its operands in L2 nor a right result or poison in C; and what
        is wrong with its result, or ""."""
        launch = second.bind(0)
        self._workspace.scramble()
        for _ in range(FLUSHES):
            self._timer.flush()
        took = self._timer.once(launch)
        verdict = self._workspace.judged(second.kernel)
        return took, "" if verdict.passed else f"on other inputs, after it was timed: {verdict.message}"

    def _replayed(self, second: Second) -> str:
        """The fault of the second of two launches in a graph, whose C lies elsewhere and holds other numbers."""
        self._workspace.copy(2)
        launches = [second.bind(index) for index in (0, 1)]
        self._workspace.scramble()
        self._timer.replay(launches)
        verdict = self._workspace.judged(second.kernel, 1)
        return "" if verdict.passed else f"on other inputs, after it was timed, in a graph: {verdict.message}"

    def _too_slow(self, second: Second, took_us: float) -> str:
        """Why a launch that took `took_us` is suspicious; "" if one on other inputs again is right and fast enough."""
        least = took_us
        for _ in range(TRIES - 1):
            self._workspace.renew(fresh_seeds(1)[0])
            took, wrong = self._launched(second)
            if wrong:
                return wrong
            least = min(least, took)
        if not second.suspicious(least):
            return ""
        return (
            f"on inputs that it has not seen it takes {least:.1f} µs or more, and {second.shortest_us:.1f} µs on the "
            "same ones again: it keeps results between launches"
        )
