"""Timing of one point: a kernel and its baseline alternate, A B A B, and the GPU's own clock times them.

**One launch** lies between two CUDA events. The host queues work far ahead of the GPU before it waits, so the events
bracket the kernel and not the host's launch calls; they still add one to two microseconds.

**Launches under 50 µs** are too short for that overhead. If either side of a point is that short, both are captured as
CUDA graphs of many launches, and a sample is the time of a replay divided by its launches, gaps of about a microsecond
included. A kernel whose host program reads from the GPU between its launches is timed launch by launch.

**Warm**: the previous launch, of either side, touched the same A, B and C, so whatever fits is already in L2.

**Cold**: none of the operands is in L2. Before a single launch, one buffer of twice the L2's size is written and
another one read: the write evicts the operands, and the read evicts the dirty lines, whose write-back would otherwise
slow the timed kernel down. In a graph such a flush would be inside the timed region; there, the launches cycle through
enough copies of the operands that twice the L2's size is touched before a copy is used again. (Instructions stay cached
either way.)

**Data** are random: zeros toggle no bits, draw less power and run faster than real data.

**When to stop.** A round ends when the 95% intervals of its samples' median and of the ratio's are as narrow as the
plan asks, or when its time is up; it takes at least `least` samples, unless one pair alone exceeds the round's time.
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
from gemmrepro.gpu import graphs as cuda_graphs

GRAPH_BELOW_US = 50.0
"""A point is timed as graphs if a launch of either side is shorter."""

GRAPH_SPAN_US = 1000.0
"""A graph holds enough launches to last this long, so that events add less than two parts in a thousand."""

GRAPH_MOST = 256
"""The most launches of a graph, before it is rounded up to whole cycles through the operands' copies."""

EVICTION = 2
"""Memory touched between two uses of the same operands, in multiples of the L2's size."""

SETTLE_SECONDS = 0.03

SETTLE_CAP_SECONDS = 0.5

CHUNK_SECONDS = 0.05

LAUNCH_SECONDS, FLUSH_SECONDS = 20e-6, 150e-6
"""Approximate overhead of a sample and of an L2 flush; only used to plan how many samples fit into a round."""

LONG_US = 50_000.0
"""A longer launch is not repeated just to warm up."""

STEADY_US = 2_000.0
"""A launch that takes longer is known well enough after two."""

Pair = tuple[float, float | None]
"""Times of the kernel and of the adjacent baseline sample in µs; None if there is no baseline."""


@dataclass(frozen=True)
class Plan:
    """When a round has enough samples; `interval` is the relative full width of the 95% interval to reach."""

    interval: float
    seconds: float
    least: int
    most: int

    def needed(self, pair_seconds: float) -> int:
        """The fewest pairs that a round takes if one pair costs `pair_seconds`."""
        return 1 if pair_seconds > self.seconds else self.least


@dataclass
class Burst:
    """One round of one point. Times in µs; the i-th entries of both lists are adjacent samples.
    `baseline` is empty if there is none; `sensors` are readings of `Session.sensors`; `mode` describes the samples."""

    times: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)
    sensors: list[dict[str, Any]] = field(default_factory=list)
    mode: str = ""

    def add(self, pairs: Sequence[Pair]) -> None:
        self.times += [time_us for time_us, _ in pairs]
        self.baseline += [time_us for _, time_us in pairs if time_us is not None]

    def settled(self, interval: float) -> bool:
        """Whether the median and the ratio have intervals of at most `interval` (relative width)."""
        if len(self.times) < 6:  # fewer samples have no order statistics that reach 95%
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
    """Sample pairs until `plan` is satisfied; `measure` takes as many as it is told, each in about `pair_seconds`."""
    burst = Burst()
    start = clock()
    needed = plan.needed(pair_seconds)
    count = needed
    while True:
        before = clock()
        burst.add(measure(count))
        now = clock()
        samples = len(burst.times)
        pair_seconds = (now - before) / count
        spent = now - start
        if samples >= plan.most or (samples >= needed and spent >= plan.seconds) or burst.settled(plan.interval):
            return burst
        affordable = int((plan.seconds - spent) / pair_seconds) if pair_seconds > 0 else plan.most
        chunk = max(1, int(CHUNK_SECONDS / pair_seconds)) if pair_seconds > 0 else plan.most
        count = max(1, min(chunk, affordable, plan.most - samples), needed - samples)
        if samples >= needed and affordable < 1:
            return burst


def rotation_sets(working_bytes: int, l2_bytes: int) -> int:
    """Copies of operands of `working_bytes` to cycle through, so that `EVICTION` L2 sizes lie between two uses."""
    return 1 + math.ceil(EVICTION * l2_bytes / working_bytes)


def graph_launches(launch_us: float, copies: int = 1) -> int:
    """Launches in a graph of a kernel that takes `launch_us`: whole cycles through `copies` of the operands."""
    wanted = max(1, min(GRAPH_MOST, math.ceil(GRAPH_SPAN_US / launch_us)))
    return copies * math.ceil(wanted / copies)


@dataclass(frozen=True)
class _Samples:
    """The way to take samples: per side, the call that makes one and its launches.
    `before` is called before each sample, outside the timed region; `overhead` is in seconds a sample."""

    calls: Sequence[Callable[[], None]]
    launches: Sequence[int]
    mode: str
    before: Callable[[], None] | None = None
    overhead: float = LAUNCH_SECONDS


class Timer:
    """Times points on one open GPU. It owns the buffers that flush L2, and a pool of events."""

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
        """Fill L2 with clean lines that belong to no operand; asynchronous."""
        self._cupy.cuda.runtime.memsetAsync(self._written.data.ptr, 0, self._written.nbytes, self.session.stream.ptr)
        self._read.sum(out=self._sum)

    def _event_pairs(self, count: int) -> list[tuple[Any, Any]]:
        while len(self._events) < count:
            self._events.append((self._cupy.cuda.Event(), self._cupy.cuda.Event()))
        return self._events[:count]

    def _run(
        self, sides: Sequence[Callable[[], None]], count: int, before: Callable[[], None] | None, burst: Burst | None
    ) -> list[list[float]]:
        """Run all sides alternately, `count` times each; µs as [count][side]."""
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
        """Time of one launch in µs, the least of several, or of two long ones; the first may have loaded a library."""
        least = min(first_us, self.once(call))
        return least if least > STEADY_US else min(least, *(row[0] for row in self._run([call], 5, None, None)))

    def _settle(self, call: Callable[[], None], launch_us: float) -> None:
        """Keep the GPU busy with `call` until two spans of 10 ms agree within 1%, so that its clock has ramped up."""
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
        return cuda_graphs.captured(self.session.stream, calls)

    def replay(self, calls: Sequence[Callable[[], None]]) -> None:
        graph = self.capture(calls)
        graph.launch(self.session.stream)
        self.session.sync()

    def burst(
        self,
        kernel: Sequence[Callable[[], None]],
        baseline: Sequence[Callable[[], None]] | None,
        cache: str,
        plan: Plan,
        estimates: tuple[float, float | None],
        graphs: bool,
    ) -> Burst:
        """Take one round of samples of one point.

        Args:
            kernel, baseline: the launch, bound to each copy of the operands; all but the first are only used for cold
                samples from graphs.
            cache: "cold" or "warm".
            estimates: µs of one launch of the kernel and of the baseline.
            graphs: whether samples are replays of graphs (see `wants_graphs`).
        """
        sides = [kernel] if baseline is None else [kernel, baseline]
        times = [value for value in estimates if value is not None]
        # Warm the GPU up with the faster side: a launch of the slower one may take seconds.
        heater = min(range(len(sides)), key=lambda index: times[index])
        self._settle(sides[heater][0], times[heater])
        samples = self._by_graphs(sides, times, cache) if graphs else self._by_launches(sides, cache)
        # Loads the code, and leaves the caches for the first sample as each side leaves them for later ones.
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
        """Samples of one launch each; cold ones follow a flush of L2."""
        calls, launches = [side[0] for side in sides], [1] * len(sides)
        if cache == "cold":
            return _Samples(calls, launches, "single launches", self.flush, LAUNCH_SECONDS + FLUSH_SECONDS)
        return _Samples(calls, launches, "single launches")

    def _by_graphs(self, sides: Sequence[Sequence[Callable[[], None]]], times: Sequence[float], cache: str) -> _Samples:
        """Samples of one graph replay each; cold graphs cycle through all copies of the operands."""
        copies = len(sides[0]) if cache == "cold" else 1
        counts = [graph_launches(value, copies) for value in times]
        graphs = [
            self.capture([side[index % copies] for index in range(count)])
            for side, count in zip(sides, counts, strict=True)
        ]
        sizes = " and ".join(str(count) for count in dict.fromkeys(counts))
        cycling = f" over {copies} copies" if copies > 1 else ""
        calls = [partial(graph.launch, self.session.stream) for graph in graphs]
        return _Samples(calls, counts, f"graphs of {sizes} launches{cycling}")


def wants_graphs(kernel_us: float, baseline_us: float | None) -> bool:
    """Whether a point is timed as graphs: if a launch of either side is shorter than 50 µs."""
    return min(kernel_us, baseline_us if baseline_us is not None else kernel_us) < GRAPH_BELOW_US


def summarize_sensors(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarize `Session.sensors` readings: median clock (MHz) and power (W), highest temperature (°C), and every
    throttle reason; None where no reading has the value."""

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
