"""The statistics of a comparison: how far two levels are apart, adjusted for what the baseline did meanwhile.

**Scatter.** Three rounds tell little of how much a row scatters: by chance they lie close together, and then any
difference looks large. Rows scatter alike within limits, though, so each row's variance is combined with that of the
others as G. K. Smyth does for microarrays ("Linear models and empirical Bayes methods", *Statistical Applications in
Genetics and Molecular Biology* 3, 2004, sections 3 and 6): variances are drawn from a scaled inverse chi-square
distribution, whose two parameters follow from the mean and the variance of their logarithms.

**Covariate.** Kernel and baseline are sampled in turn, so what drifts between rounds drifts for both, but rarely
alike. At the power cap a kernel bound by the clock may lose 8 % where its baseline loses 5 %; the ratio then drifts by
3 %. And where a library's time jumps by 12 % from round to round while the kernel's stands still, the ratio jumps too.
So the baseline is taken as a covariate (analysis of covariance): the logarithm of a kernel's time less `Slope.value`
times that of its baseline. A slope of 1 is the ratio, one of 0 the time alone. Slopes are estimated from how rounds
differ within a run, never from how the two runs differ. A few rounds say little of one row's slope, so rows that share
a baseline say what to expect of it: a normal distribution around the slope of the others, of the standard deviation
`SPREAD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SPREAD = 0.5
"""The standard deviation of slopes of kernels with the same baseline. In 46 of 47 recorded groups it is smaller, mostly
below 0.2; the groups' means are from 0 to 1.3 (docs/recordings-and-comparing.md)."""

LEAST_SCATTER = 1e-6
"""The least scatter of a row, as a logarithm: equal times are no proof of none."""

LEAST_ROWS = 8
"""The fewest rows that say how rows scatter."""

MOST_FREEDOM = 1e6
"""Degrees of freedom that stand for infinitely many: rows that all scatter alike."""


@dataclass(frozen=True)
class Prior:
    """What the rows' variances have in common: `variance` with so many degrees of freedom; none for 0."""

    freedom: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, variances: Sequence[float], freedoms: Sequence[float]) -> Prior:
        """From the variances of many rows, each with its degrees of freedom (at least 1); `Prior()` from too few."""
        from scipy.special import digamma, polygamma

        known = [each for each in zip(variances, freedoms, strict=True) if each[0] > 0 and each[1] >= 1]
        if len(known) < LEAST_ROWS:
            return cls()
        squares, half = np.array([each[0] for each in known]), np.array([each[1] for each in known]) / 2
        logs = np.log(squares) - digamma(half) + np.log(half)
        spread = float(logs.var(ddof=1) - polygamma(1, half).mean())
        if spread <= 0:
            return cls(MOST_FREEDOM, math.exp(logs.mean()))
        freedom = 2 * _trigamma_inverse(spread)
        return cls(freedom, math.exp(logs.mean() + float(digamma(freedom / 2)) - math.log(freedom / 2)))


def _trigamma_inverse(value: float) -> float:
    """x with trigamma(x) = `value`, by Newton's method from the point that Smyth recommends."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-9:
            break
    return x


@lru_cache(maxsize=4096)
def _quantile(probability: float, freedom: float) -> float:
    """Of Student's t distribution."""
    from scipy.stats import t

    return float(t.ppf(probability, freedom))


@dataclass(frozen=True)
class Shift:
    """The difference of two levels, the later less the earlier; `error` is its standard error."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Half the width of its two-sided interval."""
        return _quantile(0.5 + confidence / 2, self.freedom) * self.error

    def least(self, confidence: float, power: float) -> float:
        """The smallest difference whose interval excludes 0 with the probability `power`."""
        return self.half_width(confidence) + _quantile(power, self.freedom) * self.error


def pooled(before: Sequence[float], after: Sequence[float], spent: float = 0.0) -> tuple[float, float]:
    """The variance of single rounds around their own side's mean, and its degrees of freedom.

    Args:
        spent: degrees of freedom that were used up on the rounds before.
    """
    freedom = max(0.0, len(before) + len(after) - 2 - spent)
    squares = sum(float(np.var(side)) * len(side) for side in (before, after))
    return (squares / freedom if freedom else 0.0), freedom


def shift(before: Sequence[float], after: Sequence[float], prior: Prior, own: float = 0.0, spent: float = 0.0) -> Shift:
    """How far `after` lies above `before`.

    Args:
        own: the standard deviation that their difference has besides the rounds'.
        spent: degrees of freedom that were used up on the rounds before.

    Raises:
        ValueError: neither the rounds nor the prior say how much the levels scatter.
    """
    variance, freedom = pooled(before, after, spent)
    total = freedom + prior.freedom
    if total < 1:
        raise ValueError("so few rounds do not say how much they scatter")
    variance = (freedom * variance + prior.freedom * prior.variance) / total
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)) + own**2)
    return Shift(float(np.mean(after) - np.mean(before)), error, total)


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
