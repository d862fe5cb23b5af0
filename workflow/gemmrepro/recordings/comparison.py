"""Compares two runs row by row: is a kernel faster, slower, the same, or can these measurements not say?

A kernel's time drifts with the clock, and so does the time of its baseline, which was sampled in turn with it. Where
both runs compare a row with the same algorithm of the same library on the same GPU, what decides is therefore the time
less what follows the baseline's; elsewhere it is the time. What is compared are the rounds' medians, as logarithms: by
a t test whose variance is a row's own combined with that of all rows. A difference counts only if

- its interval of `CONFIDENCE` excludes none, and
- the cycles, time x clock, do not contradict: a run at a lower clock is no slower kernel. Of times, the interval scaled
  to cycles must exclude none, too. An adjusted time, in which the clock cancels, is only contradicted by cycles that
  differ from it by more than `CYCLES`: then it is the baseline that changed.

A row is the same if a change beyond `BAND` is excluded, in either direction with `EXCLUDED`. What is neither is
unclear: `Change.least` is the slowdown that these measurements would find. Where a side has no samples, the intervals
of ratios or times decide: a difference counts if they do not overlap.

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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gemmrepro.core.names import LIBRARY, baseline_at
from gemmrepro.stats import REPEATABILITY, Interval

SAME, FASTER, SLOWER, UNCLEAR = VERDICTS = ("SAME", "FASTER", "SLOWER", "UNCLEAR")

BAND = 0.02
"""The largest relative change of time that still counts as none."""

CYCLES = 0.1
"""How far a kernel's cycles may be from its adjusted time, as a logarithm: from one recorded session to another, cycles
of the same binary differ by up to that at 19 of 20 points, since NVML's clock is that of a moment between launches."""

BASELINE, TIME = "baseline", "time"
"""Which time of the rounds decides: adjusted for the baseline's, or unadjusted."""

CONFIDENCE = {BASELINE: 0.994, TIME: 0.997}
"""Of the interval that decides. Rounds are few and their scatter is not normal, so these levels were
set by resampling recorded rounds, for at most 1 % of false alarms."""

CARDS = 0.003
"""The standard deviation of the difference between two cards of one model, as a logarithm, besides the rounds'. With it
1.8 % of rows of the same binaries on two cards are false alarms instead of 6.2 %, and of slowdowns of 2 % 62 % are
found instead of 72 %; with 0.005 it would be 1.3 % and 28 % (docs/recordings-and-comparing.md)."""

EXCLUDED = 0.95
"""How sure it must be that a row that is the same changed by no more than BAND."""

POWER = 0.95
"""The probability with which a slowdown of `Change.least` is found."""

Point = tuple[str, ...]
_POINT = ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache")
_TOOLKIT = _POINT.index("toolkit")
_SHAPE = slice(_POINT.index("dtype") - len(_POINT), None)
"""The cells of a point, with or without a toolkit, that rows of other kernels share."""

_RATIO, _MEDIAN = ("ratio_ci_low", "ratio", "ratio_ci_high"), ("ci_low_us", "median_us", "ci_high_us")
"""The cells of a row's intervals."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of a row: logarithms of the median time in µs, and of the median ratio where there is a baseline."""

    times: Sequence[float]
    ratios: Sequence[float] | None = None

    @property
    def baseline(self) -> list[float]:
        """Logarithms of the baseline's time in µs, as the ratios have it."""
        return [time + ratio for time, ratio in zip(self.times, self.ratios or (), strict=True)]


@dataclass(frozen=True)
class Change:
    """What became of one row.

    Attributes:
        point: the cells that name the row; without the toolkit where two toolkits are compared.
        verdict: SAME, FASTER, SLOWER or UNCLEAR.
        by: what decided, BASELINE or TIME; without samples, "ratio" or TIME.
        time: the relative time, after over before, with its interval.
        cycles: the relative number of cycles, after over before; None if a clock is unknown.
        least: the smallest relative slowdown that would be found with the probability POWER; None without samples.
    """

    point: Point
    verdict: str
    by: str
    time: Interval
    cycles: float | None
    least: float | None = None


@dataclass(frozen=True)
class Run:
    """One family of one run: rows, and rounds where it has samples, by point.

    `algorithms` are those of the baselines, by `baseline_at`, where they were recorded.
    """

    rows: Mapping[Point, Mapping[str, str]]
    rounds: Mapping[Point, Rounds]
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, str]],
        rounds: Mapping[Point, Rounds] | None = None,
        toolkit: str | None = None,
        algorithms: Mapping[str, str] | None = None,
    ) -> Run:
        """From the rows of a summary, and from rounds under points with the toolkit.

        Args:
            toolkit: the only one whose rows are taken, under points without a toolkit; None: all, with it.
        """
        algorithms = algorithms or {}
        rounds = rounds or {}
        if toolkit is None:
            return cls({tuple(row[name] for name in _POINT): row for row in rows}, rounds, algorithms)
        names = [name for name in _POINT if name != "toolkit"]
        return cls(
            {tuple(row[name] for name in names): row for row in rows if row["toolkit"] == toolkit},
            {
                (*point[:_TOOLKIT], *point[_TOOLKIT + 1 :]): each
                for point, each in rounds.items()
                if point[_TOOLKIT] == toolkit
            },
            algorithms,
        )


def compared(before: Run, after: Run, same_gpu: bool, two_cards: bool = False) -> list[Change]:
    """What became of the rows that both runs have.

    Args:
        same_gpu: whether both ran on the same kind of GPU, so that ratios and cycles are of the same thing.
        two_cards: whether they are known to have run on two cards, which differ by `CARDS`.
    """
    apart = CARDS if two_cards else 0.0
    shared = [point for point in before.rows if point in after.rows]
    paired = {point: same_gpu and _alike(before, after, point) for point in shared}
    adjusted = _adjusted(before, after, [point for point in shared if paired[point]], apart)
    levels = {**adjusted, **_timed(before, after, paired, apart)}
    # Adjusted times scatter less than unadjusted ones, so each kind has a prior of its own.
    priors = {
        kind: Prior.of(*zip(*found, strict=True)) if found else Prior()
        for kind in (True, False)
        for found in [[pooled(*each.sides, each.spent) for point, each in levels.items() if paired[point] is kind]]
    }
    changes = []
    for point in shared:
        rows = before.rows[point], after.rows[point]
        cycles = _cycles(*rows) if same_gpu else None
        if point in levels and (moved := _moved(levels[point], priors[paired[point]])):
            changes.append(by_rounds(point, moved, paired[point], cycles))
        else:
            changes.append(by_intervals(point, *rows, paired[point], cycles))
    return changes


def _alike(before: Run, after: Run, point: Point) -> bool:
    """Whether both runs compare a row with the same version of the same library, and it is none itself.

    Where both say which algorithm the library ran, it must be the same one.
    """
    old, new = (
        {row["kernel"]: row["build_key"] for row in run.rows.values() if row["toolkit"] == LIBRARY}
        for run in (before, after)
    )
    row, later = before.rows[point], after.rows[point]
    library = row["baseline"]
    same = old.get(library) == new.get(library) and later["baseline"] == library
    if before.algorithms and after.algorithms and library:
        place = baseline_at(library, row["dtype"], row["n"])
        same &= before.algorithms.get(place) == after.algorithms.get(place)
    return bool(library) and same and row["toolkit"] != LIBRARY


@dataclass(frozen=True)
class _Levels:
    """The rounds of both sides of a row as they are compared.

    Attributes:
        sides: logarithms of a time.
        own: the standard deviation that their difference has besides the rounds'.
        spent: degrees of freedom of the rounds that an adjustment took.
    """

    sides: tuple[Sequence[float], Sequence[float]]
    own: float
    spent: float = 0.0


def _adjusted(before: Run, after: Run, points: Sequence[Point], apart: float) -> dict[Point, _Levels]:
    """The rounds' times less what follows the baseline's, of those points that have rounds on both sides.

    Args:
        apart: the standard deviation between the two sides' GPUs.
    """
    alike = defaultdict[tuple[str, ...], dict[Point, Paired]](dict)
    for point in points:
        if point not in before.rounds or point not in after.rounds:
            continue
        first, second = before.rounds[point], after.rounds[point]
        if first.ratios and second.ratios:
            row = Paired((first.times, second.times), (first.baseline, second.baseline))
            alike[before.rows[point]["baseline"], *point[_SHAPE]][point] = row
    return {
        point: _Levels(row.adjusted(slope.value), math.hypot(uncertainty(row, slope), apart), slope.spent)
        for rows in alike.values()
        for (point, row), slope in zip(rows.items(), slopes(list(rows.values())), strict=True)
    }


def _timed(before: Run, after: Run, paired: Mapping[Point, bool], apart: float) -> dict[Point, _Levels]:
    """The rounds' times, of those points that are not adjusted for a baseline and have rounds on both sides."""
    own = math.hypot(REPEATABILITY, REPEATABILITY, apart)
    return {
        point: _Levels((before.rounds[point].times, after.rounds[point].times), own)
        for point, beside in paired.items()
        if not beside and point in before.rounds and point in after.rounds
    }


def _moved(levels: _Levels, prior: Prior) -> Shift | None:
    try:
        return shift(*levels.sides, prior, levels.own, levels.spent)
    except ValueError:
        return None


def by_rounds(point: Point, moved: Shift, paired: bool, cycles: float | None) -> Change:
    """The verdict on a row of whose rounds' logarithms the shift is known."""
    by = BASELINE if paired else TIME
    half = moved.half_width(CONFIDENCE[by])
    time = Interval(*(math.exp(moved.value + part) for part in (0.0, -half, half)))
    sure = abs(moved.value) + moved.half_width(2 * EXCLUDED - 1) <= math.log1p(BAND)
    counted = None if cycles is None else _cycles_of(time, cycles, paired)
    least = math.expm1(moved.least(CONFIDENCE[by], POWER))
    return Change(point, verdict(time, counted, sure), by, time, cycles, least)


def by_intervals(
    point: Point, before: Mapping[str, str], after: Mapping[str, str], paired: bool, cycles: float | None
) -> Change:
    """The verdict on a row by its intervals alone; `paired` if its ratio to the baseline decides, if both have one."""
    paired &= all(row[name] for row in (before, after) for name in _RATIO)
    if paired:
        first, second = (_interval(row, *_RATIO) for row in (before, after))
        relative = _quotient(first, second)
    else:
        first, second = (_interval(row, *_MEDIAN) for row in (before, after))
        relative = _quotient(second, first)
    counted = None if cycles is None else _cycles_of(relative, cycles, paired)
    return Change(point, verdict(relative, counted), "ratio" if paired else TIME, relative, cycles)


def verdict(relative: Interval, cycles: Interval | None = None, same: bool | None = None) -> str:
    """The verdict on a relative time and on relative cycles.

    Args:
        same: whether a change beyond BAND is excluded; None: whether the interval of the time excludes it.
    """
    parts = [part for part in (relative, cycles) if part is not None]
    if all(part.low > 1 for part in parts):
        return SLOWER
    if all(part.high < 1 for part in parts):
        return FASTER
    if same is None:
        same = 1 / (1 + BAND) <= relative.low <= 1 <= relative.high <= 1 + BAND
    return SAME if same else UNCLEAR


def _cycles_of(relative: Interval, cycles: float, paired: bool) -> Interval | None:
    """Relative cycles with their interval: the time's, scaled; None beside a ratio that they do not contradict."""
    if paired:
        against = abs(math.log(cycles / relative.value)) > CYCLES
        return Interval(1.0, 1.0, 1.0) if against else None
    scale = cycles / relative.value
    return Interval(cycles, scale * relative.low, scale * relative.high)


def _interval(row: Mapping[str, str], low: str, value: str, high: str) -> Interval:
    return Interval(float(row[value]), float(row[low]), float(row[high]))


def _quotient(above: Interval, below: Interval) -> Interval:
    """above / below; its ends are on the same side of 1 exactly if the two intervals do not overlap."""
    low = above.low / below.high
    return Interval(above.value / below.value, low, above.high / below.low if below.low else float("inf"))


def _cycles(before: Mapping[str, str], after: Mapping[str, str]) -> float | None:
    if not (before["clock_mhz"] and after["clock_mhz"]):
        return None
    first, second = (float(row["median_us"]) * float(row["clock_mhz"]) for row in (before, after))
    return second / first


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
