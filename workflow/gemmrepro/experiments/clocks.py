"""Two clocks that a kernel reads itself, held against each other: an SM's cycles and the GPU's timer.

A probe of latency times itself, so no event of the sweep vouches for it. What its row says of cycles and of nanoseconds
is one clock rate, which no SM exceeds and none under load falls far below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TICK = 1000.0
"""The coarsest step of the GPU's timer, in nanoseconds: %globaltimer advances every 32 ns to 1 µs (PTX ISA leaves it to
the GPU)."""

APART = 1.01
"""How far the two medians, each of its own launch, may be apart (1.0004 on an H200)."""

LOWEST = 0.1
"""The lowest clock of an idle GPU as a share of its highest (210 of 1980 MHz on an H200)."""


@dataclass(frozen=True)
class Clocks:
    """Which columns hold a probe's own clocks.

    Attributes:
        cycles, nanoseconds: columns of SM cycles and of nanoseconds of the GPU's timer, per step.
        steps: the column of steps between two readings.
    """

    cycles: str
    nanoseconds: str
    steps: str

    def complaint(self, row: Mapping[str, str], highest: float) -> str:
        """What is wrong with the clocks of `row`, as a clause; "" if nothing is, or if a cell is empty.

        Args:
            highest: the GPU's highest SM clock in MHz; 0 if unknown.
        """
        cells = [row[name] for name in (self.cycles, self.nanoseconds, self.steps)]
        if not highest or "" in cells:
            return ""
        cycles, nanoseconds, steps = map(float, cells)
        if cycles <= 0 or nanoseconds <= 0 or steps <= 0:
            return f"{self.cycles}, {self.nanoseconds} and {self.steps} must be positive"
        clock = cycles / nanoseconds * 1e3
        slack = APART * (1 + TICK / (nanoseconds * steps))
        if LOWEST * highest <= clock <= slack * highest:
            return ""
        return (
            f"{cycles:g} cycles in {nanoseconds:g} ns are a clock of {clock:.4g} MHz, and this GPU's is at most "
            f"{highest:g} MHz and hardly below {LOWEST * highest:g} MHz"
        )
