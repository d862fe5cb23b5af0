"""A GPU that obeys a few formulas, with a clock of its own: for the regimes, without a GPU and without waiting.

It lowers its clock to stay within its power cap, heats up and cools down, and counts energy in steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gemmrepro.measure.regimes import IDLE, Chunk, Load, Reading

POWER_CAP = 0x4
HIGHEST, CAP, IDLE_W, ROOM = 1980.0, 700.0, 100.0, 30.0
STEP = 0.002


@dataclass
class Queued:
    """Launches in the queue; `end` is known once they ran."""

    load: Load
    calls: int
    begin: float | None = None
    end: float | None = None


class SyntheticGpu:
    """Simulated in steps of 2 ms; a load's `launch_us` is its time at the highest clock.

    Args:
        watts: the power that a load would draw at the highest clock.
        counter: seconds between two steps of the energy counter; None: it has none.
        drift: relative growth of every time, per second, whatever runs.
    """

    def __init__(
        self,
        watts: Callable[[Load], float] = lambda load: 900.0,
        counter: float | None = 0.1,
        cooling: float = 1.0,
        drift: float = 0.0,
    ) -> None:
        self.time, self.temperature, self.clock, self.power, self.energy = 0.0, ROOM, HIGHEST, IDLE_W, 0.0
        self._watts, self._counter, self._cooling, self._drift = watts, counter, cooling, drift
        self._queue: list[Queued] = []
        self._left = 0.0
        self._shown = 0.0

    def _advance(self, seconds: float) -> None:
        until = self.time + seconds
        while self.time < until - 1e-12:
            self._step(min(STEP, until - self.time))

    def _step(self, seconds: float) -> None:
        running = next((queued for queued in self._queue if queued.end is None), None)
        wanted = self._watts(running.load) if running else IDLE_W
        # Power falls with the cube of the clock; the controller follows within some 50 ms.
        aim = HIGHEST * min(1.0, (CAP / wanted) ** (1 / 3)) if running else HIGHEST
        self.clock += (aim - self.clock) * (1 - math.exp(-seconds / 0.05))
        self.power = wanted * (self.clock / HIGHEST) ** 3 if running else IDLE_W
        goal = ROOM + 0.05 * self.power
        self.temperature += (goal - self.temperature) * (1 - math.exp(-seconds / self._cooling))
        self.time += seconds
        self.energy += self.power * seconds
        if self._counter and math.floor(self.time / self._counter) > math.floor((self.time - seconds) / self._counter):
            self._shown = round(self.energy, 3)
        while running and seconds > 0:
            if running.begin is None:
                running.begin, self._left = self.time - seconds, self._work(running)
            spent = min(seconds, self._left)
            self._left -= spent
            seconds -= spent
            if self._left <= 1e-12:
                running.end = self.time - seconds
                running = next((queued for queued in self._queue if queued.end is None), None)

    def _work(self, queued: Queued) -> float:
        launches = queued.calls * queued.load.launches
        return launches * queued.load.launch_us * 1e-6 * HIGHEST / self.clock * (1 + self._drift * self.time)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self._advance(seconds)

    def read(self) -> Reading:
        self._advance(0.001)
        busy = any(queued.end is None for queued in self._queue)
        mask = (POWER_CAP if self.clock < 0.99 * HIGHEST else 0) if busy else IDLE
        energy = self._shown if self._counter else None
        return Reading(self.time, float(round(self.clock)), self.power, float(round(self.temperature)), mask, energy)

    def queue(self, load: Load, calls: int) -> Queued:
        self._queue.append(Queued(load, calls))
        return self._queue[-1]

    def finished(self, handle: Queued) -> bool:
        return handle.end is not None

    def chunk(self, handle: Queued) -> Chunk:
        while handle.end is None:
            self._advance(STEP)
        assert handle.begin is not None
        launches = handle.calls * handle.load.launches
        return Chunk(self.time, launches, round((handle.end - handle.begin) * 1e6 / launches, 4))
