"""How far a long measurement is, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Counts pieces of a measurement, some of which were finished before."""

    def __init__(self, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            total: pieces in all.
            done: those that were finished before.
            clock: seconds.
        """
        self.total, self.done = total, done
        self._start, self._before, self._clock = clock(), done, clock

    def step(self, pieces: int = 1) -> str:
        """Count `pieces` as finished; returns where that leaves the measurement: ``[ 12/340, 7 min left]``.

        The rest is taken to last as long per piece as what was finished since the start.
        """
        self.done += pieces
        place = f"{self.done:{len(str(self.total))}}/{self.total}"
        left = self.left_seconds
        return f"[{place}]" if left is None else f"[{place}, {duration(left)} left]"

    @property
    def left_seconds(self) -> float | None:
        """About how long the rest takes, in seconds; None while nothing is known."""
        finished = self.done - self._before
        if not finished:
            return None
        return (self.total - self.done) * (self._clock() - self._start) / finished


def duration(seconds: float) -> str:
    """A duration for a reader: ``40 s``, ``7 min``, ``2 h 05 min``."""
    if seconds < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
