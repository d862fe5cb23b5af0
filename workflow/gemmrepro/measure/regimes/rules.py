"""When a GPU counts as hot, as steady and as rested. A row says how many of its blocks began so.

*Hot*, before the first block of a series: the die has warmed up to where its temperature hardly rises any more.
*Steady*, before a sustained block is timed: the same kernel runs back to back, and neither its time nor the clock nor
the power drifts. A GPU at its power cap lowers the clock until the two fit, which takes longer than most benchmarks.
*Rested*, before a burst: idle, no limit in force, and the die has cooled down to where its temperature hardly falls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SUSTAINED, BURST = REGIMES = ("sustained", "burst")
"""The regimes that are measured here."""

IN_TURN = "in_turn"
"""The regime of a sweep: a kernel alternates with its baseline launch by launch."""

PROFILED, NOT_STATED = "profiled", "not stated"
"""How else an article may have measured: launch by launch under a profiler, or it does not say."""

KELVIN = 1.0
"""The change of temperature that counts as none, in °C: NVML's readings are whole degrees."""

HOT_SPAN, HOT_MOST = 3.0, 12.0
"""Seconds over which the temperature of a hot GPU rises by no more than KELVIN, and after which heating ends anyway. A
die follows its power within a second or two; the heat sink behind it takes minutes, and the balanced order of blocks
cancels its slow drift."""

STEADY_LEAST, STEADY_MOST = 0.4, 3.0
"""Seconds that a kernel runs before it may count as steady, and after which it is timed anyway, its block marked. 0.4 s
hold several updates of NVML's clock and power."""

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
"""The bit of NVML's mask of throttle reasons that says that the GPU is idle, which is no limit."""

CHUNK_SECONDS = 0.05
"""Launches of a sustained block are queued, and timed, in chunks of about this long; two are always queued, so that the
GPU never waits for the host."""

POLL_SECONDS = 0.004
"""Seconds between two readings of the sensors: the energy counter's steps are dated this well."""

BURST_SAMPLES = 8
"""Timed samples of a burst, as of the public benchmarks that time bursts (fast.cu: eight launches after a pause)."""


@dataclass(frozen=True)
class Reading:
    """What NVML says at one moment; None where the GPU has no such sensor.

    Attributes:
        at_s: the moment, in seconds on the clock of the device.
        clock_mhz, power_w, temp_c: SM clock, momentary power, temperature.
        throttle: NVML's mask of throttle reasons.
        energy_j: the total energy counter.
    """

    at_s: float
    clock_mhz: float | None = None
    power_w: float | None = None
    temp_c: float | None = None
    throttle: int | None = None
    energy_j: float | None = None


@dataclass(frozen=True)
class Chunk:
    """Launches that were timed together.

    Attributes:
        at_s: when the host saw their end, in seconds on the clock of the device.
        launches: their number.
        time_us: the time of one.
    """

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
