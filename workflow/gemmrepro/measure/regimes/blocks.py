"""One block of a regime: a kernel alone, hot and steady, or a few samples of it from rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gemmrepro.measure.regimes.rules import (
    BURST_SAMPLES,
    CHUNK_SECONDS,
    HOT_MOST,
    POLL_SECONDS,
    REST_MOST,
    STEADY_MOST,
    Chunk,
    Reading,
    is_hot,
    is_rested,
    is_steady,
)

REST_STEP = 0.1
"""Seconds between two looks at a resting GPU."""

LEAST_CHUNKS = 3
"""The fewest chunks of a sustained block, however long a launch is."""


@dataclass(frozen=True)
class Load:
    """A kernel or a library, bound to operands.

    Attributes:
        call: queues its launches; one call may be a graph of several.
        launches: launches in a call.
        launch_us: about the time of one launch.
    """

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

    def read(self) -> Reading:
        """The sensors now."""
        ...

    def queue(self, load: Load, calls: int) -> Any:
        """Queue `calls` of `load`, timed together; returns at once, with a handle."""
        ...

    def finished(self, handle: Any) -> bool: ...

    def chunk(self, handle: Any) -> Chunk:
        """What was timed; waits for its end."""
        ...


@dataclass(frozen=True)
class Block:
    """What was measured of one subject without interruption.

    Attributes:
        ready: whether the GPU was steady, or rested, when it began.
        waited_s: seconds until then.
        chunks, readings: times and sensors during the block.
    """

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
    """Let the GPU rest, and time BURST_SAMPLES calls of `load` from there.

    The first call was made before, so that its code is loaded.
    """
    device.chunk(device.queue(load, 1))
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
