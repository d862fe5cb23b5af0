"""The open GPU as a `Device` of the regimes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from gemmrepro.gpu.device import Session
from gemmrepro.measure.regimes.blocks import Load
from gemmrepro.measure.regimes.rules import Chunk, Reading


@dataclass(frozen=True)
class _Queued:
    first: Any
    last: Any
    launches: int


class GpuDevice:
    """Launches on the session's stream, timed by CUDA events."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def read(self) -> Reading:
        energy = self._session.energy()
        at = self.now()  # dates the energy, from whose steps a power is computed
        return Reading(at_s=at, energy_j=energy, **self._session.sensors())

    def queue(self, load: Load, calls: int) -> _Queued:
        import cupy

        queued = _Queued(cupy.cuda.Event(), cupy.cuda.Event(), calls * load.launches)
        queued.first.record(self._session.stream)
        for _ in range(calls):
            load.call()
        queued.last.record(self._session.stream)
        return queued

    def finished(self, handle: _Queued) -> bool:
        return bool(handle.last.done)

    def chunk(self, handle: _Queued) -> Chunk:
        import cupy

        if not self.finished(handle):
            handle.last.synchronize()
        elapsed = 1000.0 * cupy.cuda.get_elapsed_time(handle.first, handle.last)
        # As many digits as samples of a sweep have.
        return Chunk(self.now(), handle.launches, round(elapsed / handle.launches, 4))
