"""How much of what a kernel's time does from round to round its baseline does too: analysis of covariance.

Kernel and baseline are sampled in turn, so what drifts between rounds drifts for both, but rarely alike. At the power
cap a kernel bound by the clock may lose 8 % where its baseline loses 5 %; the ratio then drifts by 3 %. And where a
library's time jumps by 12 % from round to round while the kernel's stands still, the ratio jumps too. So the baseline
is taken as a covariate instead: the logarithm of a kernel's time less `Slope.value` times that of its baseline. A slope
of 1 is the ratio, one of 0 the time alone.

Slopes are estimated from how rounds differ within a run, never from how the two runs differ. A few rounds say little of
one row's slope, so rows that share a baseline say what to expect of it: a normal distribution around the slope of the
others, of the standard deviation `SPREAD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPREAD = 0.5
"""The standard deviation of slopes of kernels with the same baseline. In 46 of 47 recorded groups it is smaller, mostly
below 0.2; the groups' means are from 0 to 1.3 (docs/recordings-and-comparing.md)."""

LEAST_SCATTER = 1e-6
"""The least scatter of a row, as a logarithm: equal times are no proof of none."""


@dataclass(frozen=True)
class Paired:
    """The rounds of a row in two runs: logarithms of its time and of its baseline's, before and after."""

    times: tuple[Sequence[float], Sequence[float]]
    baseline: tuple[Sequence[float], Sequence[float]]

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the rounds around their own run's mean."""
        return sum(len(side) - 1 for side in self.times)

    @property
    def drift(self) -> float:
        """How far the baseline's mean of the later run lies above that of the earlier one."""
        return float(np.mean(self.baseline[1]) - np.mean(self.baseline[0]))

    def adjusted(self, slope: float) -> tuple[list[float], list[float]]:
        """The rounds' times without what follows the baseline's."""
        before, after = (
            [time - slope * other for time, other in zip(*side, strict=True)]
            for side in zip(self.times, self.baseline, strict=True)
        )
        return before, after


@dataclass(frozen=True)
class Slope:
    """By how much a kernel's time changes where its baseline's changes by one, both as logarithms.

    Attributes:
        variance: of `value`.
        spent: degrees of freedom of the row's rounds that its estimation took, from 0 to 1.
    """

    value: float
    variance: float
    spent: float


def slopes(rows: Sequence[Paired]) -> list[Slope]:
    """The slopes of rows that share a baseline, a shape and a state of the cache."""
    from scipy.stats import chi2

    across, along = np.array([_products(row) for row in rows]).T
    freedoms = np.array([row.freedom for row in rows])
    scatter = LEAST_SCATTER**2
    known = freedoms > 0
    if known.any():
        common = along.sum() / max(across.sum(), scatter)
        left = np.array([_residual(row, common) for row in rows])[known] / freedoms[known]
        # Not the mean, so that a wild row leaves the others' as it is; variances of few rounds have a lower median.
        scatter = max(scatter, float(np.median(left * freedoms[known] / chi2.median(freedoms[known]))))
    expected, wide = 1 / SPREAD**2, across / scatter
    found = []
    for own, seen in zip(wide, along / scatter, strict=True):
        # What the others say, where they say little a slope of 1: the ratio.
        others = (along.sum() / scatter - seen + expected) / (wide.sum() - own + expected)
        variance = 1 / (expected + own)
        found.append(Slope(variance * (seen + expected * others), variance, own * variance))
    return found


def _centred(sides: tuple[Sequence[float], Sequence[float]]) -> np.ndarray:
    return np.concatenate([np.asarray(side) - np.mean(side) for side in sides])


def _products(row: Paired) -> tuple[float, float]:
    """The baseline's sum of squares around its means, and its sum of products with the kernel's."""
    kernel, baseline = _centred(row.times), _centred(row.baseline)
    return float(baseline @ baseline), float(baseline @ kernel)


def _residual(row: Paired, slope: float) -> float:
    """The sum of squares that the baseline leaves unexplained."""
    return float(((_centred(row.times) - slope * _centred(row.baseline)) ** 2).sum())


def uncertainty(row: Paired, slope: Slope) -> float:
    """The standard deviation of a row's shift that comes from not knowing its slope."""
    return abs(row.drift) * math.sqrt(slope.variance)
