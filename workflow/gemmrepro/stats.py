"""Intervals for medians of timings.

Timings vary in two ways:

- *Within a round*, samples scatter around the round's median. Order statistics of the samples bound that median without
  any assumption on the distribution.
- *Between rounds*, the whole level drifts: clocks, temperature, placement of buffers in memory. No single burst of
  samples shows this, so rounds are spread over the sweep. Their medians sample the drift, and a Student t interval over
  them bounds its centre (the "batch means" method: W. D. Kelton and A. M. Law, *Simulation Modeling and Analysis*,
  section 9.5.3, with medians for means).

The reported interval is the hull of both, widened by the clock's resolution and, for times, by the differences observed
between sweeps beyond that (REPEATABILITY). It is never narrower than either, so that two separate sweeps agree within
their intervals; `tests/unit/test_stats.py` measures its coverage by simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95

REPEATABILITY = 0.001
"""Relative uncertainty of a time in addition to its statistical interval: a type B component as in the *Guide to the
expression of uncertainty in measurement* (JCGM 100, section 4.3). Complete sweeps minutes apart on one H200 left gaps
of up to 0.06% between intervals of the quietest points, whose samples scatter by 0.01%. Ratios cancel what both sides
share; they left no gaps and are not widened."""


@dataclass(frozen=True)
class Interval:
    """A point estimate and the interval around it, in the unit of the data."""

    value: float
    low: float
    high: float

    @property
    def relative_width(self) -> float:
        """Full width over the value."""
        return (self.high - self.low) / self.value if self.value else math.inf


@lru_cache(maxsize=4096)
def median_ranks(count: int) -> tuple[int, int, float]:
    """Ranks (0-based) of the order statistics that bound the median of `count` samples, and their coverage.

    The samples below the median are binomial(count, 1/2), so the order statistics of ranks l and count-1-l bound it
    with probability 1 - 2 P(X <= l) (H. A. David and H. N. Nagaraja, *Order Statistics*, section 7.1). The result is
    the largest l that reaches CONFIDENCE; fewer than 6 samples, of which none does, give the whole range. Raises
    ValueError without samples.
    """
    if count < 1:
        raise ValueError("a median needs at least one sample")
    # In whole numbers, of 2^count outcomes: exact, and scipy.stats takes 0.6 s to import.
    low, outcomes, of_next = 0, 1, count
    while (outcomes + of_next) / 2**count <= (1.0 - CONFIDENCE) / 2:
        low, outcomes = low + 1, outcomes + of_next
        of_next = of_next * (count - low) // (low + 1)
    return low, count - 1 - low, max(0.0, 1.0 - 2.0 * (outcomes / 2**count))


def median_interval(samples: Sequence[float] | np.ndarray) -> Interval:
    """The median of `samples` and its distribution-free interval (see `median_ranks`)."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    low, high, _ = median_ranks(len(ordered))
    return Interval(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


@lru_cache(maxsize=256)
def t_quantile(freedom: int) -> float:
    """Half-width factor of a two-sided Student t interval with `freedom` degrees of freedom."""
    # What scipy.stats.t.ppf calls; scipy.stats takes 0.6 s to import.
    from scipy.special import stdtrit

    if freedom < 1:
        raise ValueError("a t interval needs at least two values")
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def mean_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean of `values` with its Student t interval; an interval of width zero for a single value."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if len(data) < 2:
        return Interval(mean, mean, mean)
    half = t_quantile(len(data) - 1) * float(data.std(ddof=1)) / math.sqrt(len(data))
    return Interval(mean, mean - half, mean + half)


def resolution(samples: Sequence[float] | np.ndarray) -> float:
    """The smallest difference between distinct samples, an estimate of the clock's resolution; 0 if all are equal."""
    steps = np.diff(np.unique(np.asarray(samples, dtype=np.float64)))
    return float(steps.min()) if len(steps) else 0.0


def rounds_interval(
    rounds: Sequence[Sequence[float] | np.ndarray], tick: float = 0.0, repeatability: float = 0.0
) -> Interval:
    """Level of a quantity sampled in several rounds, with an interval that includes the drift between them.

    The value is the median of the rounds' medians: each round counts the same, however many samples it has. The
    interval is the hull of that value, of the Student t interval over the rounds' medians, and of the order statistics
    of the samples after each round is shifted to the common level, so that they measure scatter and not drift again.
    Raises ValueError if no round has a sample.

    Args:
        rounds: one sequence of samples per round, in any unit; empty rounds are ignored.
        tick: resolution of the clock in the same unit, which widens the interval on both sides.
        repeatability: widens the interval further, relative to the value (see REPEATABILITY).
    """
    data = [np.asarray(samples, dtype=np.float64) for samples in rounds if len(samples)]
    if not data:
        raise ValueError("no samples")
    medians = np.array([float(np.median(samples)) for samples in data])
    value = float(np.median(medians))
    parts = [Interval(value, value, value)]
    if len(medians) > 1:
        parts.append(mean_interval(medians))
    pooled = np.concatenate([samples - level + value for samples, level in zip(data, medians, strict=True)])
    if len(pooled) > len(medians):
        parts.append(median_interval(pooled))
    margin = tick + repeatability * value
    low, high = min(part.low for part in parts) - margin, max(part.high for part in parts) + margin
    return Interval(value, max(0.0, low), high)


def ratio_interval(
    baseline: Sequence[Sequence[float]], kernel: Sequence[Sequence[float]], ticks: tuple[float, float] = (0.0, 0.0)
) -> Interval:
    """Baseline time over kernel time from interleaved samples: above 1, the kernel is faster.

    Each baseline sample is divided by the adjacent kernel sample, the one of the same index in its round, so that drift
    slower than one pair cancels before anything is averaged; the rounds are then treated as in `rounds_interval`.
    `ticks` are the clock's resolution for the baseline's times and for the kernel's, in their unit.
    """
    pairs = [
        np.asarray(baseline_times, dtype=np.float64) / np.asarray(kernel_times, dtype=np.float64)
        for baseline_times, kernel_times in zip(baseline, kernel, strict=True)
    ]
    level = rounds_interval(pairs)
    medians = (float(np.median(np.concatenate([np.asarray(part) for part in side]))) for side in (baseline, kernel))
    tick = level.value * sum(tick / median for tick, median in zip(ticks, medians, strict=True))
    return Interval(level.value, max(0.0, level.low - tick), level.high + tick)
