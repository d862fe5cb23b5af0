"""A second judgement of a kernel after it was timed, on inputs that it has not seen.

Every timed launch finds the same inputs and, in C, the right result. A kernel could tell such launches from the one
that was judged: it might return if C is no poison, give back what it stored earlier, or compute honestly a fixed
number of times. So the inputs are replaced in place, C is left with other numbers, and the launch must be right and
take about as long as the samples say. That is done once, in the first round, and again in a later one that is much
quicker.

What was timed as graphs is also launched as one: twice, back to back, on two copies of the operands, of which the
second must be right. Samples of such launches may be so short that skipping work stays within what time allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmrepro.core.journal import fresh_seeds
from gemmrepro.gates.compare import Verdict
from gemmrepro.registry import Kernel

SLOWER = 3.0
"""How many times a sample's time a launch on other inputs may take: out of DRAM, where the samples may be out of L2."""

ALLOWANCE_US = 20.0
"""What it may take in addition: a sample from a graph has no overhead of its own launch."""

QUICKER = 0.8
"""A round whose median is below this share of the one judged is judged again. Honest rounds differ by a few percent."""

FLUSHES = 8
"""Times that L2 is flushed before such a launch. The GPU is to be busy until the host has submitted it: otherwise its
time would be that of the submission."""

TRIES = 3
"""Launches, each on inputs of its own, that must all be too slow."""

Launch = Callable[[], None]


@dataclass(frozen=True)
class Second:
    """A kernel to judge again.

    Attributes:
        bind: gives a launch on a copy of the operands, 0 or 1; a kernel's workspace is held from then on, one kernel's
            at a time.
        kernel: whose bound holds.
        shortest_us: the shortest median of its samples.
        graphs: whether a sample was a graph of launches.
    """

    bind: Callable[[int], Launch]
    kernel: Kernel | None
    shortest_us: float
    graphs: bool = False

    def suspicious(self, took_us: float) -> bool:
        """Whether a launch took longer than its samples allow."""
        return took_us > SLOWER * self.shortest_us + ALLOWANCE_US


class Operands(Protocol):
    """What `gemmrepro.measure.workspace.Workspace` offers here."""

    def renew(self, seed: int) -> None: ...

    def scramble(self) -> None: ...

    def copy(self) -> None: ...

    def judged(self, kernel: Kernel | None, index: int = 0) -> Verdict: ...


class Clock(Protocol):
    """What `gemmrepro.timing.Timer` offers here."""

    def flush(self) -> None: ...

    def once(self, call: Launch) -> float: ...

    def replay(self, calls: Sequence[Launch]) -> None: ...


class SecondLook:
    """Judges kernels again that share operands. All are judged on the same new inputs, hence on one reference."""

    def __init__(self, operands: Operands, clock: Clock) -> None:
        self._operands, self._clock = operands, clock
        operands.renew(fresh_seeds(1)[0])

    def judge(self, seconds: Sequence[Second]) -> list[str]:
        """What is wrong with each, or ""."""
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
        is wrong with its result, or "".
        """
        launch = second.bind(0)
        self._operands.scramble()
        for _ in range(FLUSHES):
            self._clock.flush()
        took = self._clock.once(launch)
        verdict = self._operands.judged(second.kernel)
        return took, "" if verdict.passed else f"on other inputs, after it was timed: {verdict.message}"

    def _replayed(self, second: Second) -> str:
        """What is wrong with the second of two launches in a graph, whose C lies elsewhere and holds other numbers."""
        self._operands.copy()
        launches = [second.bind(index) for index in (0, 1)]
        self._operands.scramble()
        self._clock.replay(launches)
        verdict = self._operands.judged(second.kernel, 1)
        return "" if verdict.passed else f"on other inputs, after it was timed, in a graph: {verdict.message}"

    def _too_slow(self, second: Second, took_us: float) -> str:
        """Why a launch that took `took_us` is suspicious; "" if one on other inputs again is right and fast enough."""
        least = took_us
        for _ in range(TRIES - 1):
            self._operands.renew(fresh_seeds(1)[0])
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
