"""Timing of one point: a kernel and its baseline in turn, A B A B, on the GPU's own clock.

**One launch.** A pair of CUDA events around it. The host fills the stream far ahead of the GPU before it waits, so the
events bracket the kernel and not the host's launch calls; they still add one to two microseconds.

**Launches under 50 µs** would drown in that, so both sides of such a point are captured as CUDA graphs of many launches
and a sample is a replay's time over the number of launches: the figure then holds the gap between two launches of a
graph (about a microsecond), as back-to-back use would. If either side is that short, both are timed this way. A kernel
whose host program reads from the GPU between its launches cannot be captured and is timed launch by launch.

**Warm** means that the launch before it, its partner's or its own, touched the same A, B and C: what fits in the L2
cache is there.

**Cold** means that nothing of its operands is in L2. For a single launch, a buffer of twice the L2's size is written
and another such buffer read before the first event: the write evicts, and the read pushes the written lines out, which
would otherwise be written back at the expense of the kernel that is timed. In a graph such a flush would be inside the
timed region; there, the launches walk over so many copies of the operands that twice the L2's size lies between two
uses of one. (Both say "the data come from DRAM" and no more: instructions stay cached.)

**Data** are random: zeros toggle no bits, draw less power and run faster than anything real.

**When to stop.** A round ends when the 95% interval of the median of its samples (of the ratio's too) is narrower than
asked for, or its seconds are spent. At least `least` samples are taken, except where a single pair takes longer than
the round's seconds: then one, and the rounds supply the rest.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gemmrepro import stats
from gemmrepro.gpu import device

GRAPH_BELOW_US = 50.0

GRAPH_SPAN_US = 1000.0
"""A graph holds enough launches to last this long, so that what events add is below two parts in a thousand."""

GRAPH_MOST = 256

EVICTION = 2
"""Times the size of the L2 cache between two uses of the same operands."""

SETTLE_SECONDS = 0.03
SETTLE_CAP_SECONDS = 0.5
CHUNK_SECONDS = 0.05

LAUNCH_SECONDS, FLUSH_SECONDS = 20e-6, 150e-6
"""What a sample and a flush of L2 cost beside the launch, about; only to plan how many samples there is time for."""

LONG_US = 50_000.0
"""A launch beyond this is not repeated just to warm something up."""

Pair = tuple[float, float | None]
"""Time of the kernel and of the baseline beside it, µs; None where there is no baseline."""


@dataclass(frozen=True)
class Plan:
    """When a round has enough samples."""

    interval: float
    seconds: float
    least: int
    most: int

    def needed(self, pair_seconds: float) -> int:
        """The fewest pairs of a round, if one takes `pair_seconds`."""
        return 1 if pair_seconds > self.seconds else self.least


@dataclass
class Burst:
    """One round of one point. Times in µs; the i-th entries of both lists were taken side by side."""

    times: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)
    sensors: list[dict[str, Any]] = field(default_factory=list)
    mode: str = ""

    def add(self, pairs: Sequence[Pair]) -> None:
        self.times += [time_us for time_us, _ in pairs]
        self.baseline += [time_us for _, time_us in pairs if time_us is not None]

    def settled(self, interval: float) -> bool:
        """Whether the median, and the ratio to the baseline, are known to `interval` (full width, relative)."""
        if len(self.times) < 6:  # below that no order statistics reach 95%
            return False
        if stats.median_interval(self.times).relative_width > interval:
            return False
        if not self.baseline:
            return True
        ratios = [baseline / kernel for baseline, kernel in zip(self.baseline, self.times, strict=True)]
        return stats.median_interval(ratios).relative_width <= interval


def collect(
    measure: Callable[[int], Sequence[Pair]],
    plan: Plan,
    pair_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Burst:
    """Sample pairs until `plan` is satisfied.

    Args:
        measure: takes that many pairs and returns them; called with growing numbers, so that the host seldom waits.
        pair_seconds: what one pair is expected to cost, everything included.
    """
    burst = Burst()
    start = clock()
    needed = plan.needed(pair_seconds)
    count = needed
    while True:
        before = clock()
        burst.add(measure(count))
        now = clock()
        taken = len(burst.times)
        pair_seconds = (now - before) / count
        spent = now - start
        if taken >= plan.most or (taken >= needed and spent >= plan.seconds) or burst.settled(plan.interval):
            return burst
        affordable = int((plan.seconds - spent) / pair_seconds) if pair_seconds > 0 else plan.most
        chunk = max(1, int(CHUNK_SECONDS / pair_seconds)) if pair_seconds > 0 else plan.most
        count = max(1, min(chunk, affordable, plan.most - taken), needed - taken)
        if taken >= needed and affordable < 1:
            return burst


def rotation_sets(working_bytes: int, l2_bytes: int) -> int:
    """How many copies of operands of `working_bytes` keep twice the L2 between two uses of the same one."""
    return 1 + math.ceil(EVICTION * l2_bytes / working_bytes)


def graph_launches(launch_us: float, copies: int = 1) -> int:
    """Launches in a graph of a kernel that takes `launch_us`: a whole number of walks over `copies` of the operands."""
    wanted = max(1, min(GRAPH_MOST, math.ceil(GRAPH_SPAN_US / launch_us)))
    return copies * math.ceil(wanted / copies)


@dataclass(frozen=True)
class _Samples:
    """How samples are taken: what is called for one of each side, and how many launches that is.

    Attributes:
        before: called before each sample, outside what is timed.
        overhead: seconds that a sample costs beside its launches.
    """

    calls: Sequence[Callable[[], None]]
    launches: Sequence[int]
    mode: str
    before: Callable[[], None] | None = None
    overhead: float = LAUNCH_SECONDS


class Timer:
    """Times points on one open GPU; owns the buffers that flush L2 and a pool of events."""

    def __init__(self, session: device.Session) -> None:
        import cupy

        self._cupy = cupy
        self.session = session
        floats = EVICTION * session.gpu.l2_bytes // 4 + 1024
        self._written = cupy.empty(floats, dtype=cupy.float32)
        self._read = cupy.zeros(floats, dtype=cupy.float32)
        self._sum = cupy.zeros((), dtype=cupy.float32)
        self._events: list[tuple[Any, Any]] = []

    def flush(self) -> None:
        """Leave L2 full of clean lines of nobody's operands; asynchronous."""
        self._cupy.cuda.runtime.memsetAsync(self._written.data.ptr, 0, self._written.nbytes, self.session.stream.ptr)
        self._read.sum(out=self._sum)

    def _event_pairs(self, count: int) -> list[tuple[Any, Any]]:
        while len(self._events) < count:
            self._events.append((self._cupy.cuda.Event(), self._cupy.cuda.Event()))
        return self._events[:count]

    def _run(
        self, sides: Sequence[Callable[[], None]], count: int, before: Callable[[], None] | None, burst: Burst | None
    ) -> list[list[float]]:
        """`count` rounds of every side in turn; returns µs by round and side."""
        stream = self.session.stream
        events = self._event_pairs(count * len(sides))
        for index in range(count * len(sides)):
            if before is not None:
                before()
            first, last = events[index]
            first.record(stream)
            sides[index % len(sides)]()
            last.record(stream)
        if burst is not None:
            # While the GPU works through the queue: clocks and power of an idle GPU say nothing.
            burst.sensors.append(self.session.sensors())
        self.session.sync()
        elapsed = [1000.0 * self._cupy.cuda.get_elapsed_time(first, last) for first, last in events]
        return [elapsed[start : start + len(sides)] for start in range(0, len(elapsed), len(sides))]

    def once(self, call: Callable[[], None]) -> float:
        """Time of one launch in µs, loading the kernel's code included if it is the first."""
        return self._run([call], 1, None, None)[0][0]

    def estimate(self, call: Callable[[], None], first_us: float) -> float:
        """Time of one launch in µs: the least of several, or of two where repeating it would take long.

        `first_us` is the time of the first launch ever, which may hold the loading of a library.
        """
        least = min(first_us, self.once(call))
        return least if least > LONG_US else min(least, *(row[0] for row in self._run([call], 5, None, None)))

    def _settle(self, call: Callable[[], None], launch_us: float) -> None:
        """Keep the GPU busy with `call` until two stretches of 10 ms agree within 1%, so that its clock has risen."""
        launches = max(1, math.ceil(10_000.0 / launch_us))

        def many() -> None:
            for _ in range(launches):
                call()

        start, last = time.monotonic(), None
        while True:
            stretch = self.once(many)
            spent = time.monotonic() - start
            steady = last is not None and abs(stretch - last) <= 0.01 * stretch
            if (steady and spent >= SETTLE_SECONDS) or spent >= SETTLE_CAP_SECONDS:
                return
            last = stretch

    def capture(self, calls: Sequence[Callable[[], None]]) -> Any:
        """A CUDA graph of `calls` in order."""
        stream = self.session.stream
        stream.begin_capture()
        try:
            for call in calls:
                call()
        finally:
            graph = stream.end_capture()
        graph.upload(stream)
        return graph

    def burst(
        self,
        kernel: Sequence[Callable[[], None]],
        baseline: Sequence[Callable[[], None]] | None,
        cache: str,
        plan: Plan,
        estimates: tuple[float, float | None],
        graphs: bool,
    ) -> Burst:
        """One round of one point.

        Args:
            kernel, baseline: the launch, bound to each copy of the operands; only the first copy is used unless cold
                samples come from graphs.
            cache: "cold" or "warm".
            estimates: µs of one launch of each.
            graphs: whether samples are replays of graphs of launches (see `wants_graphs`).
        """
        sides = [kernel] if baseline is None else [kernel, baseline]
        times = [value for value in estimates if value is not None]
        # The quicker side warms the GPU up: a launch of the slower one may take seconds.
        heater = min(range(len(sides)), key=lambda index: times[index])
        self._settle(sides[heater][0], times[heater])
        samples = self._by_graphs(sides, times, cache) if graphs else self._by_launches(sides, cache)
        # Code is loaded, and the first sample finds what every later one does: its partner's traces in the cache.
        for call, value, count in zip(samples.calls, times, samples.launches, strict=True):
            if value * count < LONG_US or len(sides) == 1:
                call()
        probe = Burst()

        def measure(count: int) -> list[Pair]:
            rows = self._run(samples.calls, count, samples.before, probe)
            scaled = [[value / launches for value, launches in zip(row, samples.launches, strict=True)] for row in rows]
            return [(row[0], row[1] if len(row) > 1 else None) for row in scaled]

        expected = sum(
            value * count * 1e-6 + samples.overhead for value, count in zip(times, samples.launches, strict=True)
        )
        result = collect(measure, plan, expected)
        result.sensors, result.mode = probe.sensors, samples.mode
        return result

    def _by_launches(self, sides: Sequence[Sequence[Callable[[], None]]], cache: str) -> _Samples:
        """Samples of one launch each, behind a flush of L2 where they are to be cold."""
        calls, launches = [side[0] for side in sides], [1] * len(sides)
        if cache == "cold":
            return _Samples(calls, launches, "single launches", self.flush, LAUNCH_SECONDS + FLUSH_SECONDS)
        return _Samples(calls, launches, "single launches")

    def _by_graphs(self, sides: Sequence[Sequence[Callable[[], None]]], times: Sequence[float], cache: str) -> _Samples:
        """Samples of one replay each of a graph of many launches, over all copies of the operands if cold."""
        copies = len(sides[0]) if cache == "cold" else 1
        counts = [graph_launches(value, copies) for value in times]
        graphs = [
            self.capture([side[index % copies] for index in range(count)])
            for side, count in zip(sides, counts, strict=True)
        ]
        words = " and ".join(str(count) for count in dict.fromkeys(counts))
        over = f" over {copies} copies" if copies > 1 else ""
        calls = [partial(graph.launch, self.session.stream) for graph in graphs]
        return _Samples(calls, counts, f"graphs of {words} launches{over}")


def wants_graphs(kernel_us: float, baseline_us: float | None) -> bool:
    """Whether a point is timed as graphs: where a launch of either side is under 50 µs."""
    return min(kernel_us, baseline_us if baseline_us is not None else kernel_us) < GRAPH_BELOW_US


def summarize_sensors(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median clock and power, highest temperature, and every throttle reason that was seen, of many readings."""

    def known(key: str) -> list[float]:
        return [reading[key] for reading in readings if reading.get(key) is not None]

    mask = 0
    for value in known("throttle"):
        mask |= int(value)
    clocks, powers, temperatures = known("clock_mhz"), known("power_w"), known("temp_c")
    return {
        "clock_mhz": statistics.median(clocks) if clocks else None,
        "power_w": statistics.median(powers) if powers else None,
        "temp_c": max(temperatures) if temperatures else None,
        "throttle": ("+".join(device.throttle_names(mask)) or "none") if known("throttle") else None,
    }
