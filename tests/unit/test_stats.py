"""Intervals: exact values where they are known, coverage by simulation where they are not."""

import math

import numpy as np
import pytest

from gemmrepro import stats


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.7062), (9, 2.26216), (30, 2.04227)])
def test_t_quantile_matches_the_published_table(freedom, expected):
    assert stats.t_quantile(freedom) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("count", [1, 5, 6, 7, 101])
def test_median_ranks_reach_the_confidence_they_state(count):
    low, high, coverage = stats.median_ranks(count)
    assert low + high == count - 1
    exact = 1 - 2 * sum(math.comb(count, i) for i in range(low + 1)) / 2**count
    assert coverage == pytest.approx(max(exact, 0.0), abs=1e-9)
    assert (coverage >= 0.95) == (count >= 6)


def simulate(generator, rounds, samples, drift, noise):
    """`rounds` bursts of a time whose level moves by `drift` between bursts, with one-sided noise inside each."""
    levels = 100.0 * (1 + drift * generator.standard_normal(rounds))
    # A time's scatter has a long tail upwards; its median is the level.
    scatter = generator.gamma(4.0, 1.0, size=(rounds, samples))
    median = 3.672060748850897  # of gamma(4, 1)
    return [level * (1 + noise * (burst - median)) for level, burst in zip(levels, scatter, strict=True)]


@pytest.mark.parametrize("drift", [0.0, 0.02])
@pytest.mark.parametrize("samples", [1, 40])
def test_rounds_interval_covers_the_level_whatever_the_drift(drift, samples):
    generator = np.random.default_rng(20 + samples)
    hits = 0
    for _ in range(600):
        interval = stats.rounds_interval(simulate(generator, 5, samples, drift, 0.002))
        hits += interval.low <= 100.0 <= interval.high
    # 600 draws of a 95% interval lie above 92.5% except once in a few hundred times. A round of one sample estimates
    # the mean level of a skewed noise instead of its median, which costs a little.
    assert hits / 600 >= (0.90 if samples == 1 else 0.925)


def test_paired_ratio_cancels_a_drift_that_both_sides_share():
    generator = np.random.default_rng(5)
    kernel, baseline = [], []
    for _ in range(5):
        common = 1 + 0.05 * generator.standard_normal(60)
        kernel.append(200 * common * (1 + 0.001 * generator.standard_normal(60)))
        baseline.append(100 * common * (1 + 0.001 * generator.standard_normal(60)))
    paired = stats.ratio_interval(baseline, kernel)
    assert paired.low <= 0.5 <= paired.high
    assert paired.relative_width < 0.005
    assert stats.rounds_interval(kernel).relative_width > 5 * paired.relative_width


def test_samples_that_all_read_the_same_are_known_to_a_tick():
    samples = [[50.976] * 20, [50.976] * 19 + [51.008]]
    tick = stats.resolution(np.concatenate(samples))
    assert tick == pytest.approx(0.032)
    interval = stats.rounds_interval(samples, tick=tick)
    assert interval.low == pytest.approx(50.944) and interval.high == pytest.approx(51.008)
    wider = stats.rounds_interval(samples, tick=tick, repeatability=0.001)
    assert (
        wider.high - interval.high == pytest.approx(0.001 * interval.value) == pytest.approx(interval.low - wider.low)
    )
    assert stats.resolution([7.0, 7.0]) == 0.0
    ratio = stats.ratio_interval([[10.0] * 8] * 2, [[20.0] * 8] * 2, ticks=(0.1, 0.4))
    assert ratio.low == pytest.approx(0.5 * (1 - 0.03)) and ratio.high == pytest.approx(0.5 * (1 + 0.03))


def test_what_has_too_few_values_is_refused_or_of_no_width():
    with pytest.raises(ValueError, match="at least one sample"):
        stats.median_ranks(0)
    with pytest.raises(ValueError, match="at least two values"):
        stats.t_quantile(0)
    with pytest.raises(ValueError, match="no samples"):
        stats.rounds_interval([[], []])
    with pytest.raises(ValueError, match=r"shape|broadcast|argument"):
        stats.ratio_interval([[1.0, 2.0]], [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="argument"):
        stats.ratio_interval([[1.0]], [[1.0], [2.0]])
    assert stats.rounds_interval([[], [3.0]]) == stats.Interval(3.0, 3.0, 3.0)
    assert stats.rounds_interval([[1.0], [1.0], [1000.0]]).low == 0.0
    margins = stats.rounds_interval([[100.0]], tick=0.5, repeatability=0.01)
    assert (margins.low, margins.high) == (98.5, 101.5)
    widened = stats.ratio_interval([[30.0]], [[10.0]], ticks=(3.0, 2.0))
    assert (widened.low, widened.value, widened.high) == (pytest.approx(3 * 0.7), 3.0, pytest.approx(3 * 1.3))
    assert stats.Interval(4.0, 3.0, 6.0).relative_width == 0.75
    assert stats.Interval(0.0, -1.0, 1.0).relative_width == math.inf
    assert stats.median_interval([1.0, 2.0, 9.0]) == stats.Interval(2.0, 1.0, 9.0)
    assert stats.mean_interval([4.0]) == stats.Interval(4.0, 4.0, 4.0)
    two = stats.mean_interval([4.0, 6.0])
    assert two.value == 5.0 and two.high - 5.0 == pytest.approx(12.7062, rel=1e-5) == 5.0 - two.low
