"""Figures of experiments whose rows differ by a name: a dot per row on a logarithmic axis, compared with one line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.names import LIBRARY
from gemmrepro.experiments import Dots
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.figures.style import (
    FIRST,
    INK,
    PAPER,
    PUBLISHED,
    Drawing,
    despine,
    empty,
    finding,
    half_widths,
    origin,
    plain,
    stale_note,
    written,
)
from gemmrepro.figures.widths import WIDE, Page, both, names_above, wrapped
from gemmrepro.measure.rows import counted, select

LINE = 0.235
"""Inches of height per dot."""


@dataclass(frozen=True)
class Dot:
    """A row at `place` of its panel; the ends of its interval are x itself where the experiment gives none."""

    place: int
    label: str
    x: float
    low: float
    high: float
    stale: bool
    key: str


@dataclass(frozen=True)
class Panel:
    """A case. `measured` says whether there is any row, of whatever category."""

    title: str
    measured: bool
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class DotChart:
    """What the figure shows; `category` is what the table calls the categories."""

    declared: Dots
    origin: str
    category: str
    panels: tuple[Panel, ...]

    @property
    def dots(self) -> list[tuple[Panel, Dot]]:
        return [(panel, dot) for panel in self.panels for dot in panel.dots]

    @property
    def stale(self) -> bool:
        return any(dot.stale for _, dot in self.dots)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return [dot.key for _, dot in self.dots]


def draw(family: str, dots: Dots, results: Results) -> Drawing:
    """One figure of an experiment."""
    chart = selection(family, dots, results)
    wide, narrow = both(partial(paint, chart))
    return Drawing(wide, title(chart), caption(chart), alt(chart), chart.rows, table(chart), chart.stale, narrow)


def selection(family: str, dots: Dots, results: Results) -> DotChart:
    """The first row of each category in each panel: of one toolkit where it is of a kernel."""
    panels = []
    for panel, title in dots.panels.items():
        rows = select(results.rows, **dots.where, **({} if dots.panel == "kernel" else {dots.panel: panel}))
        rows = rows[rows[dots.x].notna() & (rows[dots.x] > 0)]
        if dots.panel == "kernel":
            rows = rows[_of_kernel(rows, panel, results)]
        panels.append(Panel(title, not rows.empty, _dots(family, dots, results, rows)))
    of_kernels = dots.category == "kernel"
    category = "kernel" if of_kernels else results.experiment.column(dots.category).meaning
    return DotChart(dots, origin(results), category, tuple(panels))


def _dots(family: str, dots: Dots, results: Results, rows: pd.DataFrame) -> tuple[Dot, ...]:
    column = results.experiment.column(dots.x)
    keyed = {dots.panel, dots.category} - {"kernel"}
    shown = []
    for place, (value, label) in enumerate(dots.categories.items()):
        of_kernel = dots.category == "kernel"
        chosen = rows[_of_kernel(rows, value, results)] if of_kernel else select(rows, **{dots.category: value})
        if chosen.empty:
            continue
        row = chosen.iloc[0]
        x = float(row[dots.x])
        known = counted(row)
        low, high = (
            float(row[end]) if end and known and pd.notna(row[end]) else x for end in (column.low, column.high)
        )
        key = row_key(family, results.experiment.name, row, *keyed)
        shown.append(Dot(place, label, x, low, high, row["status"] == "stale", key))
    return tuple(shown)


def _of_kernel(rows: pd.DataFrame, kernel: str, results: Results) -> pd.Series:
    """Which of `rows` are of a kernel, built by the toolkit that is drawn, or of a library."""
    return (rows["kernel"] == kernel) & rows["toolkit"].isin((results.toolkit, LIBRARY))


def paint(chart: DotChart, page: Page = WIDE) -> Figure:
    """Draw it; the narrow figure names a category above its dot."""
    dots = chart.declared
    heights = [len(dots.categories) * page.pick(LINE, 1.7 * LINE) + 0.35] * len(chart.panels)
    size = (page.width, sum(heights) + 0.6)
    figure, grid = plt.subplots(len(chart.panels), 1, figsize=size, sharex=True, squeeze=False)
    for axes, panel in zip(grid[:, 0], chart.panels, strict=True):
        axes.set_title(wrapped(panel.title, page), loc="left")
        if not panel.measured:
            empty(axes, "not measured")
        for dot in panel.dots:
            _dot(axes, dot, dots.line)
        _scale(axes, dots)
        for dot in panel.dots:
            _label(axes, max(dot.x, dot.high, dots.line), dot.place, written(dot.x))
    low, high = _limits(chart)
    for axes in grid[:, 0]:
        axes.set_xlim(low, high)
        if page.narrow:
            names_above(axes, list(dots.categories.values()))
    figure.supxlabel(wrapped(dots.x_label, page), fontsize=page.letters, color=INK)
    despine(figure.axes)
    figure.tight_layout(h_pad=0.8)
    return figure


def _dot(axes: Axes, dot: Dot, line: float) -> None:
    axes.errorbar(
        [dot.x],
        [dot.place],
        xerr=half_widths([dot.x - dot.low], [dot.high - dot.x]),
        color=FIRST,
        marker="o",
        markersize=5.5,
        markerfacecolor=PAPER if dot.stale else FIRST,
        markeredgecolor=FIRST,
        capsize=2.5,
        linewidth=1.1,
        zorder=4,
    )
    axes.plot([line, dot.x], [dot.place, dot.place], color=PUBLISHED, linewidth=1.0, zorder=2)


def _scale(axes: Axes, dots: Dots) -> None:
    count = len(dots.categories)
    axes.set_xscale("log")
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_yticks(range(count), list(dots.categories.values()))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.axvline(dots.line, color=INK, linewidth=1.0, zorder=3)
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())


def _limits(chart: DotChart) -> tuple[float, float]:
    """The limits of every panel: a decade at least, and room for the labels on the right.

    A confidence interval may reach down to 0, which a logarithmic axis does not have: its bar then ends at the edge.
    """
    ends = [chart.declared.line, *(end for _, dot in chart.dots for end in (dot.low, dot.x, dot.high) if end > 0)]
    low, high = min(ends), max(ends)
    middle, half = (low * high) ** 0.5, max((high / low) ** 0.5, 10**0.5)
    return middle / half / 1.3 / (half * half) ** 0.02, middle * half * (half * half) ** 0.12 * 1.3


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text,
        (x, y),
        (7, -0.5),
        textcoords="offset points",
        va="center",
        color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
        zorder=5,
    )


def caption(chart: DotChart) -> str:
    return f"{chart.declared.caption} {chart.origin}{stale_note(chart.stale)}".strip()


def title(chart: DotChart) -> str:
    """The subject, and how far apart the dots lie."""
    shown = sorted(dot.x for _, dot in chart.dots if not dot.stale)
    subject = chart.declared.title
    if not shown:
        return f"{subject}: not measured"
    return f"{subject}: from {written(shown[0])} to {written(shown[-1])}"


def alt(chart: DotChart) -> str:
    if not chart.dots:
        return f"Dot chart of {chart.declared.x_label}, without data: nothing was measured."
    (first, low), (last, high) = (choose(chart.dots, key=lambda one: one[1].x) for choose in (min, max))
    return finding(
        f"Of {len(chart.dots)} dots the lowest is {low.label}, {first.title} ({written(low.x)}), and the highest "
        f"{high.label}, {last.title} ({written(high.x)}).",
        f"The axis is {chart.declared.x_label}.",
    )


def table(chart: DotChart) -> list[dict[str, Any]]:
    """A line per dot."""
    return [
        {"": panel.title, chart.category: dot.label, chart.declared.x_label: dot.x, "stale": dot.stale}
        for panel, dot in chart.dots
    ]
