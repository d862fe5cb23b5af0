"""The rounds of a sweep: every point once per round, alternating with its baseline, on fresh data that it is judged on.

The second judgement is on inputs that a kernel has not seen. Every timed launch finds the same inputs and, in C, the
right result, and a kernel could tell: return if C is no poison, give back what it stored, or compute honestly a fixed
number of times. So the inputs are replaced in place, C is left with other numbers, and the launch must be right and
take about as long as the samples say, in the first round, and again in a later one that is much quicker.

What was timed as graphs is also launched as one: twice, back to back, on two copies of the operands, of which the
second must be right, since in so short a sample skipped work stays within what time allows.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gemmrepro import operands, operations, stats, timing
from gemmrepro.core import dtypes
from gemmrepro.core.journal import Progress, fresh_seeds
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import GIB, NEEDS, shortage
from gemmrepro.gates.gate import POISON_BITS, Verdict
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import baselines, device
from gemmrepro.measure.plan import WATCHDOG_SECONDS, Point
from gemmrepro.measure.prepare import Check, Round, Sweep
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


Say = Callable[[str], None]

Made = TypeVar("Made")


def passed(deadline: float | None) -> bool:
    """Whether `deadline`, on the clock of time.monotonic, has passed; never without one."""
    return deadline is not None and time.monotonic() > deadline


def groups(points: Iterable[Point]) -> list[list[Point]]:
    """Points that share a problem and a shape, hence operands and a reference, in the order of their first ones."""
    members: dict[tuple[Problem, Shape], list[Point]] = {}
    for point in points:
        members.setdefault((point.problem, point.shape), []).append(point)
    return list(members.values())


def libraries_of(group: Sequence[Point]) -> list[Point]:
    """The libraries that the points of a group are compared with."""
    names = dict.fromkeys(point.baseline for point in group if point.baseline)
    return [library_point(name, group[0].problem, group[0].shape) for name in names]


class Rounds:
    """Measures what a sweep's journal lacks."""

    def __init__(self, sweep: Sweep, say: Say) -> None:
        self._sweep, self._say = sweep, say

    def run(self, only: int, deadline: float | None) -> bool:
        """Measure what the journal lacks of round `only`; False if `deadline` passed before it was complete."""
        todo = self._sweep.todo()
        finished = self._sweep.total - len(todo)
        points = [point for number, point in todo if number == only]
        if not points:
            return True
        if self._sweep.session.other_processes():
            self._say("another process has this GPU open; if it computes, that will show in these times")
        timer = timing.Timer(self._sweep.session)
        with Progress("sweep", self._sweep.total, finished) as progress:
            for group in groups(points):
                if passed(deadline) or not self._run_group(only, group, timer, deadline, progress):
                    return False
        return True

    def _run_group(
        self, number: int, points: list[Point], timer: timing.Timer, deadline: float | None, progress: Progress
    ) -> bool:
        """Measure the points of a group in random order; False if the deadline passed before the last one."""
        workspace = self.workspace(points)
        if workspace is None:
            for _ in points:
                progress.step()
            return True
        checks = {point.subject: self.ensure_checked(point, workspace, timer) for point in points}
        libraries = {point.kernel: self.ensure_checked(point, workspace, timer) for point in libraries_of(points)}
        workspace.forget_reference()
        random.shuffle(points)
        shortest: dict[Point, float] = {}
        for point in points:
            if passed(deadline):
                return False
            check, baseline = checks[point.subject], libraries.get(point.baseline or "")
            if not check.passed or (baseline is not None and not baseline.passed):
                progress.step()
                continue
            start, estimates = time.monotonic(), (check.estimate_us, baseline.estimate_us if baseline else None)
            measured = self.if_it_fits([point], partial(self._measure, point, workspace, timer, estimates))
            if measured is None:
                progress.step()
                continue
            self._sweep.keep_round(point, number, measured)
            shortest[point] = float(np.median(measured.times))
            told = f"{_summary(measured)}, {time.monotonic() - start:.2f} s, {measured.mode}"
            progress.step(f"round {number + 1} {point!s:44} {told}")
        self.confirm(shortest, workspace, timer)
        return True

    def workspace(self, points: Sequence[Point]) -> Workspace | None:
        """Operands for a group's points; None if there is no memory for them, which is then the points' result."""
        of, seed = (self._sweep.session, points[0].problem, points[0].shape), fresh_seeds(1)[0]
        return self.if_it_fits(points, lambda: Workspace(*of, seed))

    def if_it_fits(self, points: Iterable[Point], action: Callable[[], Made]) -> Made | None:
        """The result of `action`; None where it ends for lack of memory, which is then why `points` lack rows."""
        try:
            return action()
        except Exception as error:
            reason = shortage(error)
            if not reason:
                raise
        reason = f"{reason}, {self._sweep.session.free_bytes() / GIB:.1f} GiB are free"  # without what failed
        for point in points:
            self._sweep.keep_check(point, Check(False, reason))
            self._say(f"not timed: {point.kernel} {point.toolkit} at {point.shape}: {reason}")
        return None

    def confirm(self, medians: Mapping[Point, float], workspace: Workspace, timer: timing.Timer) -> None:
        """Judge again, on other inputs, the kernels that were just timed; `medians` are in µs.
        Those that were judged so before are left out, unless they have become quicker."""
        sweep = self._sweep
        shortest: dict[tuple[Any, ...], tuple[Point, float]] = {}
        for point, median in sorted(medians.items(), key=lambda timed: -timed[1]):
            check = sweep.check(point)
            known = check is None or (check.confirmed and median >= QUICKER * check.confirmed_us)
            if point.toolkit != LIBRARY and not known:
                shortest[point.subject] = point, median
        if not shortest or not workspace.has_inputs:
            return
        seconds = [self.second(point, workspace, median) for point, median in shortest.values()]
        messages = self.if_it_fits(
            [point for point, _ in shortest.values()], lambda: SecondLook(workspace, timer).judge(seconds)
        )
        for (point, median), message in zip(shortest.values(), messages or (), strict=messages is not None):
            check = sweep.check(point)
            if check is not None:
                judged = replace(check, passed=not message, message=message, confirmed=True, confirmed_us=median)
                sweep.keep_check(point, judged)
            if message:
                self._say(f"not reported: {point.kernel} {point.toolkit} at {point.shape}: {message}")

    def second(self, point: Point, workspace: Workspace, median: float) -> Second:
        """The subject of `point`, to be judged again; the median of its samples is in µs."""
        kernel = self._sweep.kernels[point.kernel]
        graphs = timing.wants_graphs(median, None) and kernel.capturable
        return Second(partial(self.bind, point, workspace), kernel, median, graphs)

    def ensure_checked(self, point: Point, workspace: Workspace, timer: timing.Timer) -> Check:
        """The check of `point`'s subject, executed now if the journal has none.
        A library keeps the algorithm that was chosen at its first check."""
        sweep = self._sweep
        check, trials = sweep.check(point), sweep.session.trials
        if check is None and (reason := self._too_long(point)):
            sweep.keep_check(point, Check(False, reason))
            self._say(f"not timed: {point.kernel} {point.toolkit} at {point.shape}: {reason}")
            return Check(False, reason)
        if check is None:
            check = self.if_it_fits(
                [point], lambda: workspace.check(self.bind(point, workspace), timer, self._judged_as(point))
            )
            if check is None:
                return sweep.check(point) or Check(False)
            if point.toolkit == LIBRARY:
                check = replace(check, algorithm=trials.algorithm(point.problem, point.shape, point.kernel))
            sweep.keep_check(point, check)
            if not check.passed:
                self._say(f"not timed: {point.kernel} {point.toolkit} at {point.shape} is wrong: {check.message}")
        elif check.algorithm is not None:
            trials.take(point.problem, point.shape, check.algorithm, point.kernel)
        return check

    def _too_long(self, point: Point) -> str:
        """Why the watchdog of a display would end a kernel's launch, by its time on the next smaller shape; or ""."""
        sweep, kernel = self._sweep, self._sweep.kernels.get(point.kernel)
        if kernel is None or not sweep.session.gpu.watched:
            return ""
        work = {other.shape: max(filter(None, operands.work(kernel, other.shape)), default=0) for other in sweep.points}
        smaller = [
            (work[other.shape], check.estimate_us)
            for other in sweep.points
            if other.subject[:3] == point.subject[:3] and 0 < work[other.shape] < work[point.shape]
            if (check := sweep.check(other)) and check.estimate_us
        ]
        if not smaller:
            return ""
        least, microseconds = max(smaller)
        seconds = 1e-6 * microseconds * work[point.shape] / least
        if seconds <= WATCHDOG_SECONDS:
            return ""
        return f"{NEEDS}{seconds:.1f} s a launch, by its time on a smaller shape; this GPU's display ends it before"

    def _judged_as(self, point: Point) -> Kernel | None:
        """The kernel whose bound holds: the point's own; of a library that sums in fp16, one that does so, too."""
        kernels = self._sweep.kernels
        if point.toolkit == LIBRARY and baselines.baseline(point.kernel).half_sums:
            return next((kernel for kernel in kernels.values() if kernel.timing.baseline == point.kernel), None)
        return kernels.get(point.kernel)

    def bind(self, point: Point, workspace: Workspace, index: int = 0) -> Callable[[], None]:
        """A function that launches `point`'s subject once on copy `index` of the operands."""
        sweep = self._sweep
        if point.toolkit == LIBRARY:
            return baselines.baseline(point.kernel).bind(sweep.session, workspace.operands(None, index))
        kernel = sweep.kernels[point.kernel]
        return sweep.loaded[kernel.id, point.toolkit].bind(workspace.operands(kernel, index))

    def _measure(
        self, point: Point, workspace: Workspace, timer: timing.Timer, estimates: tuple[float, float | None]
    ) -> Round:
        """One round of `point`; `estimates` are µs of a launch of it and of its baseline."""
        kernel = self._sweep.kernels.get(point.kernel)
        graphs = timing.wants_graphs(*estimates) and (kernel is None or kernel.capturable)
        copies = workspace.copies(self._sweep.session.gpu.l2_bytes) if graphs and point.cache == "cold" else 1
        calls = [self.bind(point, workspace, index) for index in range(copies)]
        baseline = None
        if point.baseline:
            partner = library_point(point.baseline, point.problem, point.shape)
            baseline = [self.bind(partner, workspace, index) for index in range(copies)]
        # What the calls hold, a kernel's workspace among it, is free again when this returns.
        return Round.of(timer.burst(calls, baseline, point.cache, self._sweep.settings.plan, estimates, graphs))


def library_point(name: str, problem: Problem, shape: Shape) -> Point:
    """A baseline's point, whatever the state of the cache."""
    return Point(name, LIBRARY, problem, shape, "", name)


def _summary(measured: Round) -> str:
    middle = stats.median_interval(measured.times)
    ratio = f" ratio {np.median(np.divide(measured.baseline, measured.times)):.4g}" if measured.baseline else ""
    return f"{middle.value:11.2f} µs ±{50 * middle.relative_width:.2f}%{ratio}  {len(measured.times)} samples"
