"""Compare two runs row by row: two recordings, commits, toolkits or GPUs.

    python -m gemmrepro compare reports/recorded/h200 results/measure
    python -m gemmrepro compare v1.0:reports/recorded/h200 reports/recorded/h200 --families ladder
    python -m gemmrepro compare results/measure results/measure --toolkits cuda12,cuda13
    python -m gemmrepro compare A B --csv changes.csv --figure changes.svg

A side is a folder of families, each with its summary.csv, samples.parquet and run.json, or COMMIT:FOLDER of this
repository. Where samples are missing, the rows' intervals decide. The exit code is 0 if no row is SLOWER, and 3
otherwise.

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
So the baseline is taken as a covariate (analysis of covariance): the logarithm of a kernel's time less its `slopes`
times that of its baseline. A slope of 1 is the ratio, one of 0 the time alone. Slopes are estimated from how rounds
differ within a run, never from how the two runs differ. A few rounds say little of one row's slope, so rows that share
a baseline say what to expect of it: a normal distribution around the slope of the others, of the standard deviation
`SPREAD`.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gemmrepro.core import schemas
from gemmrepro.core.files import csv_text, read_json, write_atomic
from gemmrepro.core.machine import git
from gemmrepro.core.names import LIBRARY, RESTORE, baseline_at
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import SUMMARY_COLUMNS
from gemmrepro.measure.recording import POINT, RUN, SAMPLES, SUMMARY, check_rows, read_rows
from gemmrepro.recordings.sweeps import PointSamples, read_samples
from gemmrepro.stats import REPEATABILITY, Interval

SLOWER_CODE = 3
"""The exit code if a row is slower."""

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

SPREAD = 0.5
"""The standard deviation of slopes of kernels with the same baseline. In 46 of 47 recorded groups it is smaller, mostly
below 0.2; the groups' means are from 0 to 1.3 (docs/recordings-and-comparing.md)."""

LEAST_SCATTER = 1e-6
"""The least scatter of a row, as a logarithm: equal times are no proof of none."""

LEAST_ROWS = 8
"""The fewest rows that say how rows scatter."""

MOST_FREEDOM = 1e6
"""Degrees of freedom that stand for infinitely many: rows that all scatter alike."""

NEEDED = {
    "type": "object",
    "required": ["gpu"],
    "properties": {
        "gpu": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "card": {"type": "string"}},
        },
        "baseline_algorithms": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
"""What must stand in a run.json; the rest may be of another version."""

DRAWN = (".svg", ".pdf", ".png")
"""Formats of a figure."""

MOST_DRAWN = 120
"""Rows of a figure: those that changed most."""

Row = Mapping[str, str]
Numbers = Sequence[float] | np.ndarray
Two = tuple[Numbers, Numbers]
"""Rounds of a row before and after."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of a row: logarithms of its median time in µs, and of its baseline's, if it was sampled with one."""

    times: Sequence[float]
    baseline: Sequence[float] | None = None

    @classmethod
    def of(cls, samples: PointSamples) -> Rounds:
        times = [math.log(float(np.median(part))) for part in samples.times]
        if samples.baseline is None:
            return cls(times)
        ratios = [np.median(other / own) for other, own in zip(samples.baseline, samples.times, strict=True)]
        return cls(times, [time + math.log(float(ratio)) for time, ratio in zip(times, ratios, strict=True)])


@dataclass(frozen=True)
class Side:
    """One family of one run: its rows, their rounds where it has samples, the GPU, and the baselines' algorithms.

    `gpu` is its model; `card` names the GPU itself, and is empty where the recording does not.
    """

    rows: Sequence[Row]
    rounds: Mapping[tuple[str, ...], Rounds] = field(default_factory=dict)
    gpu: str = ""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    card: str = ""

    def by_point(self, toolkit: str | None) -> dict[tuple[str, ...], tuple[Row, Rounds | None]]:
        """Rows with their rounds; of one toolkit alone by points without a toolkit."""
        names = [name for name in POINT if toolkit is None or name != "toolkit"]
        return {
            tuple(row[name] for name in names): (row, self.rounds.get(tuple(row[name] for name in POINT)))
            for row in self.rows
            if toolkit in (None, row["toolkit"])
        }


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

    point: tuple[str, ...]
    verdict: str
    by: str
    time: Interval
    cycles: float | None
    least: float | None = None

    @property
    def name(self) -> str:
        return " ".join(filter(None, self.point))


@dataclass(frozen=True)
class Levels:
    """The rounds of a row as they are compared: logarithms of a time.

    Attributes:
        own: the standard deviation that their difference has besides the rounds'.
        spent: degrees of freedom of the rounds that an adjustment took.
    """

    sides: Two
    own: float
    spent: float = 0.0


def on_two_cards(before: Side, after: Side) -> bool:
    """Whether both sides name the card that they ran on, and it is not the same one."""
    return bool(before.card and after.card) and before.card != after.card


def compared(before: Side, after: Side, toolkits: tuple[str, str] | None = None) -> list[Change]:
    """What became of the rows that both sides have.

    Args:
        toolkits: those whose rows are compared, before and after; by default each with its own.
    """
    first, second = toolkits or (None, None)
    old, new = before.by_point(first), after.by_point(second)
    shared = [point for point in old if point in new]
    same_gpu, apart = before.gpu == after.gpu, CARDS if on_two_cards(before, after) else 0.0
    keys = [
        {row["kernel"]: row["build_key"] for row, _ in side.values() if row["toolkit"] == LIBRARY}
        for side in (old, new)
    ]

    def paired(row: Row, later: Row) -> bool:
        """Whether both are compared with the same version and, where both say which, algorithm of one library."""
        library = row["baseline"]
        if not same_gpu or not library or row["toolkit"] == LIBRARY or later["baseline"] != library:
            return False
        place = baseline_at(library, row["dtype"], row["n"])
        algorithms = [
            side.algorithms.get(place) if before.algorithms and after.algorithms else None for side in (before, after)
        ]
        return keys[0].get(library) == keys[1].get(library) and algorithms[0] == algorithms[1]

    beside = {point: paired(old[point][0], new[point][0]) for point in shared}
    alike = defaultdict[tuple[str, ...], dict[tuple[str, ...], tuple[Two, Two]]](dict)
    levels: dict[tuple[str, ...], Levels] = {}
    for point in shared:
        (row, was), (_, now) = old[point], new[point]
        if was is None or now is None:
            continue
        if not beside[point]:
            levels[point] = Levels((was.times, now.times), math.hypot(REPEATABILITY, REPEATABILITY, apart))
        elif was.baseline and now.baseline:
            group = row["baseline"], *(row[name] for name in ("dtype", "m", "n", "k", "d", "cache"))
            alike[group][point] = (was.times, now.times), (was.baseline, now.baseline)
    for rows in alike.values():
        levels |= dict(zip(rows, _adjusted(list(rows.values()), apart), strict=True))
    # Adjusted times scatter less than unadjusted ones, so each kind has a prior of its own.
    priors = {
        kind: Prior.of([pooled(each) for at, each in levels.items() if beside[at] is kind]) for kind in (True, False)
    }
    changes = []
    for point in shared:
        row, later = old[point][0], new[point][0]
        cycles = None
        if same_gpu and row["clock_mhz"] and later["clock_mhz"]:
            earlier, later_cycles = (float(each["median_us"]) * float(each["clock_mhz"]) for each in (row, later))
            cycles = later_cycles / earlier
        moved = shift(levels[point], priors[beside[point]]) if point in levels else None
        if moved:
            changes.append(_by_rounds(point, moved, beside[point], cycles))
        else:
            changes.append(_by_intervals(point, row, later, beside[point], cycles))
    return changes


def _by_rounds(point: tuple[str, ...], moved: Shift, paired: bool, cycles: float | None) -> Change:
    """The verdict on a row of whose rounds' logarithms the shift is known."""
    by = BASELINE if paired else TIME
    half = moved.half_width(CONFIDENCE[by])
    time = Interval(*(math.exp(moved.value + part) for part in (0.0, -half, half)))
    sure = abs(moved.value) + moved.half_width(2 * EXCLUDED - 1) <= math.log1p(BAND)
    least = math.expm1(moved.least(CONFIDENCE[by], POWER))
    return Change(point, verdict(time, _cycles_of(time, cycles, paired), sure), by, time, cycles, least)


def _by_intervals(point: tuple[str, ...], row: Row, later: Row, paired: bool, cycles: float | None) -> Change:
    """The verdict on a row by its intervals alone: those of its ratios to the baseline, if these decide, or times."""
    names = ["ratio", "ratio_ci_low", "ratio_ci_high"]
    paired = paired and all(each[name] for each in (row, later) for name in names)
    if not paired:
        names = ["median_us", "ci_low_us", "ci_high_us"]
    was, now = (Interval(*(float(each[name]) for name in names)) for each in (row, later))
    above, below = (was, now) if paired else (now, was)
    # Its ends are on the same side of 1 exactly if the two intervals do not overlap.
    high = above.high / below.low if below.low else math.inf
    relative = Interval(above.value / below.value, above.low / below.high, high)
    return Change(
        point, verdict(relative, _cycles_of(relative, cycles, paired)), "ratio" if paired else TIME, relative, cycles
    )


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


def _cycles_of(relative: Interval, cycles: float | None, paired: bool) -> Interval | None:
    """Relative cycles with their interval: the time's, scaled; None beside a ratio that they do not contradict."""
    if cycles is None:
        return None
    scale = cycles / relative.value
    if paired:
        return Interval(1.0, 1.0, 1.0) if abs(math.log(scale)) > CYCLES else None
    return Interval(cycles, scale * relative.low, scale * relative.high)


@dataclass(frozen=True)
class Prior:
    """What the rows' variances have in common: `variance` with so many degrees of freedom; none for 0."""

    freedom: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, found: Sequence[tuple[float, float]]) -> Prior:
        """From the variances of many rows, each with its degrees of freedom (at least 1); `Prior()` from too few."""
        from scipy.special import digamma, polygamma

        known = [each for each in found if each[0] > 0 and each[1] >= 1]
        if len(known) < LEAST_ROWS:
            return cls()
        squares, freedoms = np.array(known).T
        half = freedoms / 2
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


@dataclass(frozen=True)
class Shift:
    """The difference of two levels, the later less the earlier; `error` is its standard error."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Half the width of its two-sided interval."""
        return self._quantile(0.5 + confidence / 2) * self.error

    def least(self, confidence: float, power: float) -> float:
        """The smallest difference whose interval excludes 0 with the probability `power`."""
        return self.half_width(confidence) + self._quantile(power) * self.error

    def _quantile(self, probability: float) -> float:
        """Of Student's t distribution."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability))


def pooled(levels: Levels) -> tuple[float, float]:
    """The variance of single rounds around their own side's mean, and its degrees of freedom."""
    freedom = max(0.0, sum(len(side) - 1 for side in levels.sides) - levels.spent)
    squares = sum(float(np.var(side)) * len(side) for side in levels.sides)
    return (squares / freedom if freedom else 0.0), freedom


def shift(levels: Levels, prior: Prior) -> Shift | None:
    """How far the later level lies above the earlier; None where nothing says how much they scatter."""
    variance, freedom = pooled(levels)
    total = freedom + prior.freedom
    if total < 1:
        return None
    before, after = levels.sides
    variance = (freedom * variance + prior.freedom * prior.variance) / total
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)) + levels.own**2)
    return Shift(float(np.mean(after) - np.mean(before)), error, total)


def _adjusted(rows: Sequence[tuple[Two, Two]], apart: float) -> list[Levels]:
    """The times of rows that share a baseline, without what follows the baseline's; as for `slopes`.

    Args:
        apart: the standard deviation between the two sides' GPUs.
    """
    found = []
    for (times, baseline), (slope, variance, spent) in zip(rows, slopes(rows), strict=True):
        before, after = (
            np.asarray(own) - slope * np.asarray(other) for own, other in zip(times, baseline, strict=True)
        )
        drift = np.mean(baseline[1]) - np.mean(baseline[0])
        found.append(Levels((before, after), math.hypot(drift * math.sqrt(variance), apart), spent))
    return found


def slopes(rows: Sequence[tuple[Two, Two]]) -> list[tuple[float, float, float]]:
    """By how much each kernel's time changes where its baseline's changes by one, both as logarithms.

    Args:
        rows: their times and their baseline's; all share a baseline, a shape and a state of the cache.

    Returns:
        For each its slope, that one's variance, and the degrees of freedom of its rounds that this took, from 0 to 1.
    """
    from scipy.special import gammaincinv

    kernel, baseline = (
        [np.concatenate([np.asarray(side) - np.mean(side) for side in row[i]]) for row in rows] for i in (0, 1)
    )
    across = np.array([other @ other for other in baseline])
    along = np.array([other @ own for own, other in zip(kernel, baseline, strict=True)])
    freedoms = np.array([sum(len(side) - 1 for side in times) for times, _ in rows])
    scatter, known = LEAST_SCATTER**2, freedoms > 0
    if known.any():
        common = along.sum() / max(across.sum(), scatter)
        left = np.array([((own - common * other) ** 2).sum() for own, other in zip(kernel, baseline, strict=True)])
        # Not the mean, so that a wild row leaves the others' as it is; variances of few rounds have a lower median.
        scatter = max(scatter, float(np.median(left[known] / (2 * gammaincinv(freedoms[known] / 2, 0.5)))))
    expected, wide = 1 / SPREAD**2, across / scatter
    found = []
    for own, seen in zip(wide, along / scatter, strict=True):
        # What the others say, where they say little a slope of 1: the ratio.
        others = (along.sum() / scatter - seen + expected) / (wide.sum() - own + expected)
        variance = 1 / (expected + own)
        found.append((variance * (seen + expected * others), variance, own * variance))
    return found


def read_side(folder: Path) -> dict[str, Side]:
    """The families of a run that have rows, by name. Raises UserError if there is none, or a file is corrupt."""
    if (folder / SUMMARY).is_file():
        folders = [folder]
    else:
        folders = sorted(path.parent for path in folder.glob(f"*/{SUMMARY}"))
    sides = {}
    for path in folders:
        if rows := _rows(path / SUMMARY):
            run = read_json(path / RUN, "the recording", RESTORE)
            schemas.check(run, NEEDED, f"the recording {path / RUN}")
            gpu, algorithms = run["gpu"], run.get("baseline_algorithms", {})
            sides[path.name] = Side(rows, _rounds(path / SAMPLES), gpu["name"], algorithms, gpu.get("card", ""))
    if not sides:
        raise UserError(f"{folder} holds no run: no folder of a family with rows in its {SUMMARY}.")
    return sides


def _rounds(path: Path) -> dict[tuple[str, ...], Rounds]:
    """The rounds behind a summary, none where its samples are missing or of another version of the project."""
    if not path.is_file():
        return {}
    try:
        return {point: Rounds.of(samples) for point, samples in read_samples(path)[1].items()}
    except UserError as error:
        print(f"gemmrepro: {error} The intervals of the rows decide.", file=sys.stderr)
        return {}


def _rows(path: Path) -> list[dict[str, str]]:
    """A summary's rows; columns that its version of the project did not have are empty."""
    try:
        header = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}); {RESTORE}.") from None
    known = [name for name in header if name in SUMMARY_COLUMNS]
    rows = [{**dict.fromkeys(SUMMARY_COLUMNS, ""), **row} for row in read_rows(path, known)]
    check_rows(rows, path)
    return rows


def side_of(text: str, scratch: Path) -> Path:
    """The folder that an argument names; of a commit, a copy of its rows in `scratch`.

    Raises:
        UserError: it names neither a folder nor one of a commit.
    """
    commit, colon, path = text.partition(":")
    if not colon or Path(text).exists():
        return Path(text)
    listed = _git(text, "ls-tree", "-r", "--name-only", "--full-tree", "--end-of-options", commit, path)
    for name in listed.decode().splitlines():
        if name.endswith((f"/{SUMMARY}", f"/{SAMPLES}", f"/{RUN}")):
            write_atomic(scratch / name, _git(text, "show", "--end-of-options", f"{commit}:{name}"))
    return scratch / path


def _git(text: str, *arguments: str) -> bytes:
    done = git(*arguments)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"'{text}' is neither a folder nor COMMIT:FOLDER ({why[0] if why else 'git gives no reason'}).")
    return done.stdout


def lines(found: Mapping[str, Sequence[Change]], every: bool, two_cards: Container[str] = ()) -> list[str]:
    """The table as text: what is faster or slower, or every row, and the counts.

    Args:
        two_cards: the families whose two sides ran on two cards.
    """
    out = []
    for family, changes in found.items():
        for change in sorted(changes, key=lambda one: one.time.value):
            if every or change.verdict in (FASTER, SLOWER):
                out.append(_line(change))
        counts = Counter(change.verdict for change in changes)
        told = f"{family}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
        least = [change.least for change in changes if change.verdict == UNCLEAR and change.least is not None]
        if least:
            told += f"; unclear rows would show a slowdown of {100 * statistics.median(least):.1f} % (median)"
        if family in two_cards:
            told += f"; on two cards, whose times may differ by {100 * CARDS:.1f} % (standard deviation)"
        out.append(told)
    return out


def _line(change: Change) -> str:
    cycles = "" if change.cycles is None else f"  cycles {100 * (change.cycles - 1):+.2f} %"
    value, low, high = (100 * (part - 1) for part in (change.time.value, change.time.low, change.time.high))
    least = "" if change.least is None else f"  would find {100 * change.least:.2f} %"
    time = f"time {value:+.2f} % [{low:+.2f}, {high:+.2f}]"
    return f"{change.verdict:7} {change.name:64} {time} by {change.by}{cycles}{least}"


def _table(found: Mapping[str, Sequence[Change]]) -> str:
    columns = ("family", "point", "verdict", "by", "time", "time_low", "time_high", "cycles", "least")
    cells = (
        (family, change.name, change.verdict, change.by, *vars(change.time).values(), change.cycles, change.least)
        for family, changes in found.items()
        for change in changes
    )
    return csv_text((dict(zip(columns, row, strict=True)) for row in cells), columns)


def draw(found: Mapping[str, Sequence[Change]], path: Path) -> None:
    """Draw the rows that changed most: the relative time with its interval, coloured by verdict."""
    from matplotlib.figure import Figure

    every = [change for changes in found.values() for change in changes]
    shown = sorted(every, key=lambda one: -abs(one.time.value - 1))[:MOST_DRAWN]
    shown.sort(key=lambda one: -one.time.value)
    figure = Figure(figsize=(9, 1.2 + 0.16 * len(shown)))
    axes = figure.subplots()
    colours = dict(zip(VERDICTS, ("0.6", "tab:green", "tab:red", "tab:orange"), strict=True))
    for verdict in VERDICTS:
        places = [place for place, one in enumerate(shown) if one.verdict == verdict]
        times = [shown[place].time for place in places]
        ends = [[t.value - t.low for t in times], [min(t.high, 10 * t.value) - t.value for t in times]]
        axes.errorbar([t.value for t in times], places, xerr=ends, fmt="o", ms=3, color=colours[verdict], label=verdict)
    axes.axvspan(1 / (1 + BAND), 1 + BAND, color="0.93", zorder=0)
    axes.set(yticks=range(len(shown)), yticklabels=[one.name for one in shown], xlabel="time, after over before")
    axes.tick_params(axis="y", labelsize=5)
    axes.legend(fontsize=6)
    figure.savefig(path, bbox_inches="tight")


def main(options: Namespace) -> int:
    """Compare two runs; 3 if a row is slower."""
    pair = tuple(options.toolkits.split(",")) if options.toolkits else None
    if pair is not None and len(pair) != 2:
        raise UserError(f"--toolkits '{options.toolkits}' is not of the form before,after; for instance cuda12,cuda13.")
    if options.figure and options.figure.suffix not in DRAWN:
        raise UserError(f"--figure {options.figure} is of no known format; choose a name in {', '.join(DRAWN)}.")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [side_of(text, Path(scratch) / str(i)) for i, text in enumerate((options.before, options.after))]
        before, after = (read_side(folder) for folder in folders)
    both = [family for family in before if family in after]
    wanted = options.families.split(",") if options.families else both
    if unknown := [name for name in wanted if name not in both]:
        known = ", ".join(sorted(both)) or "none"
        raise UserError(f"--families: the two runs do not both have {', '.join(unknown)}; both have {known}.")
    found = {family: rows for family in wanted if (rows := compared(before[family], after[family], pair))}
    if not found:
        raise UserError("the two runs share no row; compare the same families, and name --toolkits where they differ.")
    two_cards = {family for family in found if on_two_cards(before[family], after[family])}
    print("\n".join(lines(found, options.all, two_cards)))
    if options.csv:
        write_atomic(options.csv, _table(found))
    if options.figure:
        draw(found, options.figure)
    return SLOWER_CODE if any(one.verdict == SLOWER for changes in found.values() for one in changes) else 0
