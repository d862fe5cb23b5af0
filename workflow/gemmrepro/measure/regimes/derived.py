"""What a row of a regime says of its blocks: the stage writes it, and the reader of a recording computes it again."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gemmrepro import stats, timing
from gemmrepro.measure import derived
from gemmrepro.measure.regimes.rules import SUSTAINED, Reading

LEAST_STEPS = 3
"""The fewest steps of the energy counter in a block from which its power is computed."""


@dataclass(frozen=True)
class Taken:
    """A block of a subject, as samples and readings have it; times in µs."""

    ready: bool
    times: list[float]
    readings: list[Reading]


def counted_power(readings: Sequence[Reading]) -> float | None:
    """The power of a block in W, from the energy counter; None with too few steps of it.

    The counter advances in steps. What was used between the first and the last one that was seen, over the time between
    them, does not depend on where in a step the block began.
    """
    steps = [
        after
        for before, after in itertools.pairwise(readings)
        if before.energy_j is not None and after.energy_j is not None and after.energy_j != before.energy_j
    ]
    if len(steps) < LEAST_STEPS:
        return None
    first, last = steps[0], steps[-1]
    return ((last.energy_j or 0.0) - (first.energy_j or 0.0)) / (last.at_s - first.at_s)


def joules(blocks: Sequence[Taken]) -> float | None:
    """Energy of one launch in J: power times time, the median of the blocks that have both."""
    found = []
    for block in blocks:
        power = counted_power(block.readings)
        if power is not None:
            found.append(power * statistics.median(block.times) * 1e-6)
    return statistics.median(found) if found else None


def cells(regime: str, blocks: Sequence[Taken], baseline: Sequence[Taken] | None) -> dict[str, Any]:
    """The cells of `RegimeRow` that follow from a subject's blocks.

    Args:
        baseline: the blocks of what it is compared with, in the same passes; None without one. A burst is over before
            the energy counter advances, so it has no joules.
    """
    times = [block.times for block in blocks]
    sensors = [asdict(reading) for block in blocks for reading in block.readings]
    found = derived.time_cells(times) | timing.summarize_sensors(sensors)
    found |= {"ready": sum(block.ready for block in blocks)}
    found |= {"joules": joules(blocks) if regime == SUSTAINED else None}
    empty = dict.fromkeys(("baseline_median_us", "ratio", "ratio_ci_low", "ratio_ci_high"))
    return found | (empty if baseline is None else _ratio_cells(times, [block.times for block in baseline]))


def _ratio_cells(times: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Medians of a pass against each other: within a block nothing of the other side was measured."""
    ratios = [[statistics.median(other) / statistics.median(own)] for own, other in zip(times, baseline, strict=True)]
    level = stats.rounds_interval(ratios)
    return {
        "baseline_median_us": stats.rounds_interval(baseline).value,
        "ratio": level.value,
        "ratio_ci_low": level.low,
        "ratio_ci_high": level.high,
    }
