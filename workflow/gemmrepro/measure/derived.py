"""What a summary row says of its samples: the sweep writes it, and the reader of a recording computes it again.

The statistics are those of `gemmrepro.stats`; no seed is involved, so that the same samples always give the same cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmrepro import stats

Rounds = Sequence[Any]
"""Samples in µs, one sequence or array a round."""


def time_cells(times: Rounds) -> dict[str, Any]:
    """The cells of `Row` on the time itself: median and interval in µs, numbers of samples and of rounds."""
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
    """The cells of `Row` on the comparison with the baseline, whose samples are paired with `times`.

    The interval of the ratio is widened by the clock's resolution on both sides, each side's own.
    """
    ticks = stats.resolution(np.concatenate(baseline)), stats.resolution(np.concatenate(times))
    ratio = stats.ratio_interval(baseline, times, ticks=ticks)
    return {
        "baseline_median_us": stats.rounds_interval(baseline).value,
        "ratio": ratio.value,
        "ratio_ci_low": ratio.low,
        "ratio_ci_high": ratio.high,
    }


def rate_cells(median_us: float, flops: float | None, moved: float | None) -> dict[str, Any]:
    """The cells of `Row` on rates: TFLOP/s of `flops`, GB/s of `moved` bytes per launch; None where there are none."""
    return {
        "tflops": flops / median_us * 1e-6 if flops else None,
        "gbps": moved / median_us * 1e-3 if moved else None,
    }
