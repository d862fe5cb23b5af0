"""Compares two runs row by row: is a kernel faster, slower, the same, or can these measurements not say?

A kernel's time drifts with the clock, and so does the time of its baseline, which was sampled in turn with it. Where
both runs compare a row with the same library on the same GPU, the quotient of their ratios is therefore what decides;
elsewhere it is the quotient of the times. A difference counts only if

- the two 95% intervals do not overlap, and
- the cycles, time x clock, say so too: a run at a lower clock is no slower kernel. Of times the intervals scaled to
  cycles may not overlap either; beside a ratio, in which the clock cancels, only the direction must be the same.

A row is the same if the intervals overlap and no change beyond `BAND` is compatible with them. What is neither is
unclear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemmrepro.core.names import LIBRARY
from gemmrepro.stats import Interval

SAME, FASTER, SLOWER, UNCLEAR = VERDICTS = ("SAME", "FASTER", "SLOWER", "UNCLEAR")

BAND = 0.02
"""The largest relative change of time that still counts as none."""

Point = tuple[str, ...]
_POINT = ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache")


@dataclass(frozen=True)
class Change:
    """What became of one row.

    Attributes:
        point: the cells that name the row; without the toolkit where two toolkits are compared.
        verdict: SAME, FASTER, SLOWER or UNCLEAR.
        by: what decided, "ratio" or "time".
        time: the relative time, after over before, with the least and the most that both intervals allow.
        cycles: the relative number of cycles, after over before; None if a clock is unknown.
    """

    point: Point
    verdict: str
    by: str
    time: Interval
    cycles: float | None


def by_point(rows: Iterable[Mapping[str, str]], toolkit: str | None = None) -> dict[Point, Mapping[str, str]]:
    """Rows of a summary by point.

    Args:
        toolkit: the only one whose rows are taken, under points without a toolkit; None: all, with it.
    """
    if toolkit is None:
        return {tuple(row[name] for name in _POINT): row for row in rows}
    names = [name for name in _POINT if name != "toolkit"]
    return {tuple(row[name] for name in names): row for row in rows if row["toolkit"] == toolkit}


def compared(
    before: Mapping[Point, Mapping[str, str]], after: Mapping[Point, Mapping[str, str]], same_gpu: bool
) -> list[Change]:
    """What became of the rows that both runs have.

    Args:
        same_gpu: whether both ran on the same kind of GPU, so that ratios and cycles are of the same thing.
    """
    old, new = (
        {row["kernel"]: row["build_key"] for row in rows.values() if row["toolkit"] == LIBRARY}
        for rows in (before, after)
    )
    changes = []
    for point, row in before.items():
        if point in after:
            library = row["baseline"]
            alike = old.get(library) == new.get(library) and after[point]["baseline"] == library
            paired = same_gpu and bool(library) and alike and row["toolkit"] != LIBRARY
            changes.append(change(point, row, after[point], paired, same_gpu))
    return changes


def change(
    point: Point, before: Mapping[str, str], after: Mapping[str, str], paired: bool, same_gpu: bool = True
) -> Change:
    """What became of one row; `paired` if its ratio to the baseline decides."""
    if paired:
        first, second = (_interval(row, "ratio_ci_low", "ratio", "ratio_ci_high") for row in (before, after))
        # The ratio is the baseline's time over the kernel's: the later one stands below.
        relative = _quotient(first, second)
    else:
        first, second = (_interval(row, "ci_low_us", "median_us", "ci_high_us") for row in (before, after))
        relative = _quotient(second, first)
    cycles = _cycles(before, after) if same_gpu else None
    # A ratio is of two times at the same clock; a time by itself must also stand out as cycles.
    counted = None if cycles is None else _cycles_of(relative, cycles, paired)
    return Change(point, verdict(relative, counted), "ratio" if paired else "time", relative, cycles)


def verdict(relative: Interval, cycles: Interval | None = None) -> str:
    """The verdict on a relative time and on relative cycles, each with what both intervals allow."""
    parts = [part for part in (relative, cycles) if part is not None]
    if all(part.low > 1 for part in parts):
        return SLOWER
    if all(part.high < 1 for part in parts):
        return FASTER
    same = 1 / (1 + BAND) <= relative.low <= 1 <= relative.high <= 1 + BAND
    return SAME if same else UNCLEAR


def _cycles_of(relative: Interval, cycles: float, paired: bool) -> Interval:
    """Relative cycles with their interval: the time's, scaled; beside a ratio their direction alone counts."""
    if paired:
        return Interval(cycles, cycles, cycles)
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
