"""A kernel's gain over the one before it, and the counters that explain it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import METRICS, SIZE
from gemmrepro.core.text import in_words
from gemmrepro.measure.rows import Measurements, cubes, is_current, select
from gemmrepro.paper.rows import counter_anchor, row_anchor
from gemmrepro.paper.text import BY, NONE, LinkView, anchor, number
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import level_name


@dataclass(frozen=True)
class CellView:
    """A speed or a counter; `anchor` is the id of its row."""

    text: str
    value: float
    stale: bool
    anchor: str


@dataclass(frozen=True)
class LineView:
    """One quantity of a kernel (`here`) and of the one before it; `name` is the profiler's, empty for a speed."""

    name: str
    meaning: str
    here: CellView | None
    before: CellView | None

    @property
    def change(self) -> str:
        """The factor between the two; a dash unless both are current."""
        here, before = self.here, self.before
        if not here or not before or here.stale or before.stale or not before.value:
            return NONE
        factor = number(here.value / before.value)
        return "the same" if float(factor.replace(",", "")) == 1 else f"{BY} {factor}"

    @property
    def formula(self) -> str:
        """How `change` is computed; empty where it is not a factor."""
        return f"{self.here.text} ÷ {self.before.text}" if self.here and self.before and BY in self.change else ""


@dataclass(frozen=True)
class EvidenceView:
    """A kernel's speed and counters at a size, by a toolkit, and those of the kernel before it where there is one."""

    before: LinkView | None
    size: int
    toolkit: str | None
    lines: tuple[LineView, ...]


def evidence_view(kernel: registry.Kernel, measured: Measurements) -> EvidenceView | None:
    """The counters that explain a kernel's gain; None if it names none.

    The size is the article's if both kernels were counted there, else the largest at which both were.
    """
    if not kernel.story.evidence:
        return None
    before = ladders.before(kernel)
    toolkit = measured.toolkit
    counters = select(measured.counters, toolkit=toolkit)
    counters = counters[counters["metric"].isin(kernel.story.evidence) & counters["value"].notna()]
    size = _size(counters, kernel, before)
    rows = select(cubes(measured.summary), toolkit=toolkit, n=size, cache=measured.cache)

    speed, earlier_speed = (_speed(rows, side, "tflops", " TFLOP/s") for side in (kernel, before))
    paired = kernel.timing.baseline and (
        before is None or (before.problem, before.timing.baseline) == (kernel.problem, kernel.timing.baseline)
    )
    lines = [LineView("", f"speed, {measured.cache}", speed, None if paired else earlier_speed)]
    if paired:
        # Both were timed in alternation with the same baseline, so a clock that changes cancels: it is their gain.
        meaning = "speed relative to the baseline, timed in alternation"
        lines.append(LineView("", meaning, *(_speed(rows, side, "ratio", "") for side in (kernel, before))))
    scope = ", over all launches of a run" if kernel.run.steps else ""
    for metric in kernel.story.evidence:
        counted = select(cubes(counters), metric=metric, n=size)
        here, earlier = (_counter(counted, side) for side in (kernel, before))
        lines.append(LineView(metric, METRICS.get(metric, "") + scope, here, earlier))
    link = LinkView(level_name(before), anchor(before.id)) if before else None
    return EvidenceView(link, size, toolkit, tuple(lines))


def _size(counters: pd.DataFrame, kernel: registry.Kernel, before: registry.Kernel | None) -> int:
    counted = set(select(counters, kernel=kernel.id)["n"])
    common = counted & set(select(counters, kernel=before.id)["n"]) if before else counted
    sizes = sorted(int(n) for n in (common or counted))
    return SIZE if SIZE in sizes or not sizes else sizes[-1]


def _row(rows: pd.DataFrame) -> pd.Series | None:
    """The last of `rows` that is current, else the last."""
    if rows.empty:
        return None
    current = rows[is_current(rows)]
    return (current if len(current) else rows).iloc[-1]


def _cell(row: pd.Series | None, column: str, write: Callable[[float], str]) -> CellView | None:
    if row is None or pd.isna(row[column]):
        return None
    value = float(row[column])
    place = counter_anchor(row) if column == "value" else row_anchor(row)
    return CellView(write(value), value, row["status"] == "stale", place)


def _speed(rows: pd.DataFrame, kernel: registry.Kernel | None, column: str, unit: str) -> CellView | None:
    row = _row(select(rows, kernel=kernel.id, dtype=kernel.compute.dtype_in)) if kernel else None
    return _cell(row, column, lambda value: number(value) + unit)


def _counter(rows: pd.DataFrame, kernel: registry.Kernel | None) -> CellView | None:
    row = _row(select(rows, kernel=kernel.id)) if kernel else None
    return _cell(row, "value", lambda value: in_words(value, row["unit"] if row is not None else ""))
