"""The two regimes beside a sweep: a kernel alone on a hot GPU (sustained), and from rest (burst).

A row says how many of its blocks began hot, steady or rested as follows.

*Hot*, before the first block of a series: the die has warmed up to where its temperature hardly rises any more.
*Steady*, before a sustained block is timed: the same kernel runs back to back, and neither its time nor the clock nor
the power drifts. A GPU at its power cap lowers the clock until the two fit, which takes longer than most benchmarks.
*Rested*, before a burst: idle, no limit in force, and the die has cooled down to where its temperature hardly falls.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SUSTAINED, BURST = REGIMES = ("sustained", "burst")

IN_TURN = "in_turn"
"""The regime of a sweep: a kernel alternates with its baseline launch by launch."""

PROFILED, NOT_STATED = "profiled", "not stated"
"""Other ways in which an article may have measured: launch by launch under a profiler, or it does not say."""

SUMMARY, SAMPLES, READINGS, RUN = FILES = ("summary.csv", "samples.parquet", "readings.parquet", "run.json")
"""The files that are written for a family, and that a take holds."""

FOLDER = "regimes"
"""The folder of takes within a family's recording: regimes/1, regimes/2, … `bring` says whose rows are judged."""

KELVIN = 1.0
"""The change of temperature in °C that counts as none: NVML's readings are whole degrees."""

HOT_SPAN, HOT_MOST = 3.0, 12.0
"""Seconds over which the temperature of a hot GPU rises by no more than KELVIN, and after which heating ends anyway. A
die follows its power within a second or two; a heat sink takes minutes, and the balanced order cancels its drift."""

STEADY_LEAST, STEADY_MOST = 0.4, 3.0
"""Seconds that a kernel runs before it may count as steady (several updates of NVML's clock and power), and after which
it is timed anyway, its block marked."""

STEADY_SPAN = 0.3
"""Seconds whose first and second half are compared."""

STEADY_TIME, STEADY_CLOCK, STEADY_POWER = 0.005, 0.01, 0.03
"""The largest relative difference of the halves' times, clocks and powers: half of the 1 % within which two recordings
are to agree; one step of an H200's clock (15 of 1980 MHz); what momentary readings of a constant load scatter by."""

REST_LEAST, REST_MOST = 1.0, 10.0
"""Seconds that a GPU is idle before it may count as rested, and after which a burst begins anyway, marked."""

REST_SPAN = 1.0
"""Seconds over which the temperature of a rested GPU falls by no more than KELVIN."""

IDLE = 0x1
"""The bit of NVML's mask of throttle reasons for an idle GPU, which is no limit."""

REST_STEP = 0.1
"""Seconds between two looks at a resting GPU."""

CHUNK_SECONDS = 0.05
"""Launches of a sustained block are queued, two chunks at a time so that the GPU never waits, in chunks of about this
length, each of which is timed."""

LEAST_CHUNKS = 3
"""The fewest chunks of a sustained block, however long a launch is."""

POLL_SECONDS = 0.004
"""Seconds between two readings of the sensors: the energy counter's steps are dated this well."""

BURST_SAMPLES = 8
"""Timed samples of a burst, as of the public benchmarks that time bursts (fast.cu: eight launches after a pause)."""


def takes(recordings: Path, family: str) -> list[Path]:
    """The folders of a family's takes among a GPU's recordings, the first one first."""
    numbered = (path for path in (recordings / family / FOLDER).glob("*") if path.name.isdigit())
    return sorted(numbered, key=lambda path: int(path.name))


@dataclass(frozen=True)
class Reading:
    """NVML's readings at one moment on the clock of the device; None where the GPU has no such sensor.
    `power_w` is momentary, `throttle` NVML's mask of reasons, `energy_j` the total counter."""

    at_s: float
    clock_mhz: float | None = None
    power_w: float | None = None
    temp_c: float | None = None
    throttle: int | None = None
    energy_j: float | None = None


@dataclass(frozen=True)
class Chunk:
    """Launches that were timed together: when the host saw their end, their number, and the time of one."""

    at_s: float
    launches: int
    time_us: float


def is_hot(readings: Sequence[Reading]) -> bool:
    """Whether the temperature rose by no more than KELVIN in the last HOT_SPAN; at once without a sensor."""
    return _level(readings, HOT_SPAN, rising=True)


def is_rested(readings: Sequence[Reading]) -> bool:
    """Whether a GPU that is idle since the first of `readings` is rested."""
    if readings[-1].at_s - readings[0].at_s < REST_LEAST:
        return False
    return not (readings[-1].throttle or 0) & ~IDLE and _level(readings, REST_SPAN, rising=False)


def _level(readings: Sequence[Reading], span: float, rising: bool) -> bool:
    last = readings[-1]
    if last.temp_c is None:
        return True
    before = [reading for reading in readings if reading.at_s <= last.at_s - span and reading.temp_c is not None]
    if not before:
        return False
    change = last.temp_c - (before[-1].temp_c or 0.0)
    return (change if rising else -change) <= KELVIN


def is_steady(chunks: Sequence[Chunk], readings: Sequence[Reading]) -> bool:
    """Whether the last STEADY_SPAN of a run that began with the first of `readings` shows no drift."""
    if len(chunks) < 2 or chunks[-1].at_s - readings[0].at_s < STEADY_LEAST:
        return False
    since = chunks[-1].at_s - STEADY_SPAN
    recent = [chunk for chunk in chunks if chunk.at_s > since]
    times = [chunk.time_us for chunk in (recent if len(recent) > 1 else chunks[-2:])]
    last = [reading for reading in readings if reading.at_s > since]
    clocks = [reading.clock_mhz for reading in last if reading.clock_mhz is not None]
    powers = [reading.power_w for reading in last if reading.power_w is not None]
    return (
        _drift(times) <= STEADY_TIME and _drift(clocks) <= STEADY_CLOCK and _drift(powers, middle=False) <= STEADY_POWER
    )


def _drift(values: Sequence[float], middle: bool = True) -> float:
    """The relative difference of the halves' medians (or means); 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    cut = len(values) // 2
    of = statistics.median if middle else statistics.fmean
    first, second = of(values[:cut]), of(values[cut:])
    return abs(second / first - 1) if first else math.inf


@dataclass(frozen=True)
class Load:
    """A kernel or a library, bound to operands: a call queues `launches`, each of about `launch_us`."""

    call: Callable[[], None]
    launches: int
    launch_us: float

    @property
    def calls(self) -> int:
        """Calls in a chunk of CHUNK_SECONDS."""
        return max(1, math.ceil(CHUNK_SECONDS * 1e6 / (self.launch_us * self.launches)))


class Device(Protocol):
    """A GPU with its sensors and a clock; times are in seconds on that clock."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def read(self) -> Reading: ...

    def queue(self, load: Load, calls: int) -> Any:
        """Queue `calls` of `load`, timed together; returns at once, with a handle."""
        ...

    def finished(self, handle: Any) -> bool: ...

    def chunk(self, handle: Any) -> Chunk:
        """The times of what was queued; waits for its end."""
        ...


@dataclass(frozen=True)
class Block:
    """Times and sensors of one subject without interruption; `ready`: the GPU was steady, or rested, before."""

    ready: bool
    waited_s: float
    chunks: list[Chunk]
    readings: list[Reading]


def heat(device: Device, load: Load) -> bool:
    """Run `load` until the GPU is hot; False if HOT_MOST ended first."""
    start, seen = device.now(), [device.read()]
    handles = [device.queue(load, load.calls) for _ in range(2)]
    while not (hot := is_hot(seen)) and device.now() - start < HOT_MOST:
        device.chunk(handles.pop(0))
        seen.append(device.read())
        handles.append(device.queue(load, load.calls))
    for handle in handles:
        device.chunk(handle)
    return hot


def sustained(device: Device, load: Load, seconds: float) -> Block:
    """Run `load` back to back until it is steady, and go on to time it for `seconds`."""
    start = device.now()
    readings, chunks = [device.read()], list[Chunk]()
    handles = [device.queue(load, load.calls) for _ in range(2)]
    began: tuple[float, bool, int, int] | None = None
    while True:
        while not device.finished(handles[0]):
            device.sleep(POLL_SECONDS)
            readings.append(device.read())
        chunks.append(device.chunk(handles.pop(0)))
        now = device.now()
        if began is None:
            ready = is_steady(chunks, readings)
            if ready or now - start >= STEADY_MOST:
                began = now, ready, len(chunks), len(readings)
                readings.append(device.read())  # calls that end before they are looked at leave no other
        elif now - began[0] >= seconds and len(chunks) - began[2] >= LEAST_CHUNKS:
            break
        handles.append(device.queue(load, load.calls))
    for handle in handles:
        device.chunk(handle)
    since, ready, first_chunk, first_reading = began
    return Block(ready, since - start, chunks[first_chunk:], readings[first_reading:])


def burst(device: Device, load: Load) -> Block:
    """Let the GPU rest, and time BURST_SAMPLES calls of `load` from there."""
    device.chunk(device.queue(load, 1))  # loads the code
    start, seen = device.now(), [device.read()]
    while not (rested := is_rested(seen)) and device.now() - start < REST_MOST:
        device.sleep(REST_STEP)
        seen.append(device.read())
    waited = device.now() - start
    handles = [device.queue(load, 1) for _ in range(BURST_SAMPLES)]
    readings = [device.read()]
    while not device.finished(handles[-1]):
        device.sleep(POLL_SECONDS)
        if not device.finished(handles[-1]):
            readings.append(device.read())
    return Block(rested, waited, [device.chunk(handle) for handle in handles], readings)
