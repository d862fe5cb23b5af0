"""Cells that follow from samples and readings: the stage writes them, a recording's reader computes them again.

The statistics are those of `gemmrepro.stats`; without a seed, so the same samples always give the same cells.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gemmrepro import stats, timing
from gemmrepro.measure.regimes import SUSTAINED, Reading

Rounds = Sequence[Any]
"""Samples in µs, one sequence or array a round."""


def time_cells(times: Rounds) -> dict[str, Any]:
    """The cells of `ROW` on the time itself: median and interval in µs, numbers of samples and of rounds."""
    tick = stats.resolution(np.concatenate(times))
    level = stats.rounds_interval(times, tick=tick, repeatability=stats.REPEATABILITY)
    return {
        "median_us": level.value,
        "ci_low_us": level.low,
        "ci_high_us": level.high,
        "samples": sum(map(len, times)),
        "rounds": len(times),
    }


def ratio_cells(times: Rounds, baseline: Rounds) -> dict[str, Any]:
    """The cells of `ROW` on the comparison with the baseline, whose samples are paired with `times`."""
    ticks = stats.resolution(np.concatenate(baseline)), stats.resolution(np.concatenate(times))
    return _compared(baseline, stats.ratio_interval(baseline, times, ticks=ticks))


def _compared(baseline: Rounds, ratio: stats.Interval) -> dict[str, Any]:
    return {
        "baseline_median_us": stats.rounds_interval(baseline).value,
        "ratio": ratio.value,
        "ratio_ci_low": ratio.low,
        "ratio_ci_high": ratio.high,
    }


NOT_COMPARED: dict[str, Any] = dict.fromkeys(("baseline_median_us", "ratio", "ratio_ci_low", "ratio_ci_high"))
"""The cells of `ratio_cells` of a row without a baseline."""


def rate_cells(median_us: float, flops: float | None, moved: float | None) -> dict[str, Any]:
    """The cells of `ROW` on rates: TFLOP/s of `flops`, GB/s of `moved` bytes per launch; None where there are none."""
    return {
        "tflops": flops / median_us * 1e-6 if flops else None,
        "gbps": moved / median_us * 1e-3 if moved else None,
    }


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
    them, does not depend on where in a step the block began."""
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
    powers = [(counted_power(block.readings), statistics.median(block.times)) for block in blocks]
    energies = [power * time * 1e-6 for power, time in powers if power is not None]
    return statistics.median(energies) if energies else None


def regime_cells(regime: str, blocks: Sequence[Taken], baseline: Sequence[Taken] | None) -> dict[str, Any]:
    """The cells of `REGIME_ROW` that follow from a subject's blocks, and those of its baseline in the same passes.
    Medians of a pass are compared: within a block nothing of the other side was measured. A burst is over before the
    energy counter advances, so it has no joules."""
    times = [block.times for block in blocks]
    compared = NOT_COMPARED
    if baseline is not None:
        others = [block.times for block in baseline]
        ratios = [[statistics.median(b) / statistics.median(a)] for a, b in zip(times, others, strict=True)]
        compared = _compared(others, stats.rounds_interval(ratios))
    return {
        **time_cells(times),
        **timing.summarize_sensors([asdict(reading) for block in blocks for reading in block.readings]),
        "ready": sum(block.ready for block in blocks),
        "joules": joules(blocks) if regime == SUSTAINED else None,
        **compared,
    }
