"""How far apart two levels are that were each sampled in rounds, with what the scatter of all rows says of one row's.

Three rounds tell little of how much a row scatters: by chance they lie close together, and then any difference looks
large. Rows scatter alike within limits, though, so each row's variance is combined with that of the others as
G. K. Smyth does for microarrays ("Linear models and empirical Bayes methods", *Statistical Applications in Genetics and
Molecular Biology* 3, 2004, sections 3 and 6): variances are drawn from a scaled inverse chi-square distribution, whose
two parameters follow from the mean and the variance of their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

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
