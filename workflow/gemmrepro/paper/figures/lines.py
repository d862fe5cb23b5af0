"""Figures of experiments: one quantity against another, logarithmic, a panel for each case, a line for each series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.experiments import Lines
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.paper.figures.points import counted
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    SERIES,
    Dash,
    Drawing,
    between_decades,
    empty,
    finding,
    half_widths,
    origin,
    plain,
    raised,
    stale_note,
    written,
)
from gemmrepro.paper.figures.widths import WIDE, Page, both, legend

COLUMNS = 2
"""At most this many panels side by side."""

ALONE = 6.4
"""Width in inches of a figure of one panel."""

DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (6, 1.6)),
    "-.",
    (0, (1, 1.1)),
    (0, (3, 1, 1, 1)),
    (0, (8, 2, 1, 2)),
    (0, (4, 4)),
)


@dataclass(frozen=True)
class Point:
    """A row: x, y with the ends of its interval (y itself where the experiment gives none), stale, and its key."""

    x: float
    y: float
    low: float
    high: float
    stale: bool
    key: str


@dataclass(frozen=True)
class Series:
    """A line of a panel; `number` is its place in the legend, which gives it its look."""

    number: int
    name: str
    points: tuple[Point, ...]

    @property
    def positive(self) -> list[Point]:
        """The points that a logarithmic axis can show."""
        return [point for point in self.points if point.y > 0]


@dataclass(frozen=True)
class Panel:
    """A case. `zeros_to` is the largest x up to which all series are zero, None where the first is not."""

    title: str
    series: tuple[Series, ...]
    zeros_to: float | None


@dataclass(frozen=True)
class LineChart:
    """What the figure shows: `xs` are all x that are drawn, `legend` the series with a row in any panel, by number."""

    declared: Lines
    toolkit: str | None
    origin: str
    intervals: bool
    xs: tuple[float, ...]
    panels: tuple[Panel, ...]
    legend: tuple[tuple[int, str], ...]

    @property
    def points(self) -> list[Point]:
        return [point for panel in self.panels for series in panel.series for point in series.points]

    @property
    def stale(self) -> bool:
        return any(point.stale for point in self.points)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return [point.key for point in self.points]


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str
    dash: Dash
    size: float


def look(number: int) -> Look:
    """The look of a series by its place in the legend, of which no two are alike.

    Raises:
        UserError: there are more series than colours.
    """
    if number >= len(SERIES):
        raise UserError(f"a figure shows at most {len(SERIES)} series; declare fewer, or two figures.")
    return Look(SERIES[number], MARKERS[number], DASHES[number], 4.5 + 0.6 * number)


def draw(family: str, lines: Lines, results: Results) -> Drawing:
    """One figure of an experiment."""
    chart = selection(family, lines, results)
    wide, narrow = both(partial(paint, chart))
    return Drawing(wide, title(chart), caption(chart), alt(chart), chart.rows, table(chart), chart.stale, narrow)


def selection(family: str, lines: Lines, results: Results) -> LineChart:
    """The rows of one toolkit, and of libraries, by panel and series."""
    rows = results.rows
    column = results.experiment.column(lines.y)
    panels = []
    for value, title in lines.panels.items():
        at = rows[(rows[lines.panel] == value).fillna(False).astype(bool)]
        series = []
        for number, (kernels, name) in enumerate(lines.series.items()):
            ours = at["kernel"].isin(kernels.split(",")) & at["toolkit"].isin((results.toolkit, LIBRARY))
            measured = at[ours & at[lines.y].notna() & at[lines.x].notna()].sort_values(lines.x)
            ends = column.low, column.high
            points = tuple(_point(family, lines, results, *ends, row) for _, row in measured.iterrows())
            if points:
                series.append(Series(number, name, points))
        panels.append(Panel(title, tuple(series), _leading_zeros(at, lines)))
    return LineChart(
        declared=lines,
        toolkit=results.toolkit,
        origin=origin(results),
        intervals=bool(column.low and column.high),
        xs=tuple(sorted({point.x for panel in panels for series in panel.series for point in series.points})),
        panels=tuple(panels),
        legend=tuple(
            (number, name)
            for number, (kernels, name) in enumerate(lines.series.items())
            if rows["kernel"].isin(kernels.split(",")).any()
        ),
    )


def _point(family: str, lines: Lines, results: Results, low: str | None, high: str | None, row: pd.Series) -> Point:
    y = float(row[lines.y])
    known = counted(row)
    return Point(
        float(row[lines.x]),
        y,
        float(row[low]) if low and known else y,
        float(row[high]) if high and known else y,
        row["status"] == "stale",
        row_key(family, results.experiment.name, row, lines.panel, lines.x),
    )


def _leading_zeros(rows: pd.DataFrame, lines: Lines) -> float | None:
    """The largest x up to which every series is zero, which the axis cannot show; None where the first is not."""
    largest = None
    for x, group in rows[rows[lines.y].notna()].groupby(lines.x):
        if (group[lines.y] != 0).any():
            break
        largest = float(x)
    return largest


def paint(chart: LineChart, page: Page = WIDE) -> Figure:
    """Draw it."""
    lines = chart.declared
    width = min(int(page.pick(COLUMNS, 1)), len(chart.panels))
    down = -(-len(chart.panels) // width)
    page = replace(page, width=min(page.width, 3.8 * width if width > 1 else ALONE))
    figure, grid = plt.subplots(down, width, figsize=(page.width, 2.35 * down + 1.0), sharex=True, squeeze=False)
    for place, (axes, panel) in enumerate(zip(grid.flat, chart.panels, strict=False)):
        _paint_panel(axes, panel, chart)
        if place >= len(chart.panels) - width:
            axes.set_xlabel(lines.x_label)
            axes.tick_params(axis="x", labelbottom=True)
    for spare in grid.flat[len(chart.panels) :]:
        spare.set_visible(False)
    handles = [_handle(number, name) for number, name in chart.legend]
    sns.despine(figure)
    # A legend makes the figure higher; the panels keep their size.
    height = figure.get_figheight()
    above = (1 - legend(figure, handles, page)) * height
    figure.set_figheight(height - 0.4 + above)
    top = 1 - above / figure.get_figheight()
    figure.supylabel(lines.y_label, y=top / 2, fontsize=page.letters, color=INK)
    figure.tight_layout(rect=(0, 0, 1, top), w_pad=1.2, h_pad=0.8)
    return figure


def _handle(number: int, name: str) -> Line2D:
    style = look(number)
    return Line2D(
        [], [], color=style.colour, marker=style.marker, linestyle=style.dash, markersize=style.size, label=name
    )


def _paint_panel(axes: Axes, panel: Panel, chart: LineChart) -> None:
    """The lines of a panel, or why there are none, and its axes."""
    lines = chart.declared
    axes.set_title(panel.title, loc="left")
    for series in panel.series:
        if series.positive:
            _line(axes, series, chart.intervals)
    if not panel.series:
        empty(axes, "not measured")
    elif not any(series.positive for series in panel.series):
        empty(axes, lines.zero)
    elif panel.zeros_to:
        zeros = f"{lines.zero}\nup to {lines.x_label} = {plain(panel.zeros_to)}"
        axes.text(0.04, 0.5, zeros, transform=axes.transAxes, va="center", color=INK)
    _scale(axes, lines.x_scale)
    _ticks(axes, chart.xs, lines.x_scale)
    _limits(axes, chart.xs, lines.x_scale)
    between_decades(axes.yaxis)


def _line(axes: Axes, series: Series, intervals: bool) -> None:
    """Draw one series, without the points that a logarithmic axis cannot show."""
    points, style = series.positive, look(series.number)
    x, y = np.array([point.x for point in points]), np.array([point.y for point in points])
    stale = np.array([point.stale for point in points])
    # Where lines coincide, the first of the legend is on top, and the marks below it are larger.
    top = 4 - 0.02 * series.number
    axes.plot(x, y, color=style.colour, linestyle=style.dash, linewidth=1.4, zorder=top - 0.01)
    for chosen, face in ((~stale, style.colour), (stale, PAPER)):
        axes.plot(
            x[chosen],
            y[chosen],
            linestyle="",
            marker=style.marker,
            color=face,
            markeredgecolor=style.colour,
            markersize=style.size,
            zorder=top,
        )
    if known := [point for point in points if intervals and point.low < point.high]:
        low, y, high = (np.array([getattr(point, end) for point in known]) for end in ("low", "y", "high"))
        ends = half_widths(y - low, high - y)
        axes.errorbar(
            [point.x for point in known],
            y,
            yerr=ends,
            color=style.colour,
            linestyle="",
            capsize=2,
            linewidth=0.8,
            zorder=top - 0.005,
        )


def _scale(axes: Axes, scale: str) -> None:
    if scale == "linear":
        axes.set_xscale("linear")
    else:
        axes.set_xscale("log", base=2 if scale == "log2" else 10)
    axes.set_yscale("log")


def _ticks(axes: Axes, xs: tuple[float, ...], scale: str) -> None:
    if scale == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axes.xaxis.set_major_locator(FixedLocator(xs[:: max(1, math.ceil(len(xs) / 4))] or [1.0]))
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def _limits(axes: Axes, xs: tuple[float, ...], scale: str) -> None:
    if xs and scale == "linear":
        margin = 0.05 * (xs[-1] - xs[0]) or 0.5
        axes.set_xlim(xs[0] - margin, xs[-1] + margin)
    elif xs:
        axes.set_xlim(xs[0] / 1.3, xs[-1] * 1.3)
    low, high = axes.get_ylim()
    if not axes.lines:
        axes.set_yticks([])
    elif np.log10(high / low) < 1.2:
        # At least a decade, so that a flat line looks flat and the axis has ticks.
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / 4, middle * 4)


def size(value: float, _position: int | None = None) -> str:
    """A tick's label of a size: powers of two from 2^20 on as such."""
    power = round(math.log2(value)) if value > 0 else 0
    return plain(value) if power < 20 or value != 2**power else f"2{raised(power)}"


def caption(chart: LineChart) -> str:
    built = f" Kernels built by {chart.toolkit}." if chart.toolkit else ""
    return f"{chart.declared.caption}{built} {chart.origin}{stale_note(chart.stale)}".strip()


def ends(chart: LineChart) -> tuple[Panel, float, Series, Series] | None:
    """Of a panel with two series or more: the largest x that all have, the highest and the lowest there.

    It is the last panel in which these two differ; the last of all if they differ in none.
    """
    found = [at_end for panel in reversed(chart.panels) if (at_end := _ends_of(panel))]
    differing = (each for each in found if _at(each[2], each[1]) > _at(each[3], each[1]))
    return next(differing, found[0] if found else None)


def _ends_of(panel: Panel) -> tuple[Panel, float, Series, Series] | None:
    fresh = [series for series in panel.series if not any(point.stale for point in series.points)]
    common = set.intersection(*({point.x for point in series.points} for series in fresh)) if fresh else set()
    if len(fresh) < 2 or not common:
        return None
    x = max(common)
    order = sorted(fresh, key=lambda series: _at(series, x))
    return panel, x, order[-1], order[0]


def _at(series: Series, x: float) -> float:
    return next(point.y for point in series.points if point.x == x)


def title(chart: LineChart) -> str:
    """The subject, and by how much the series differ where a factor can say it."""
    found = ends(chart)
    subject = chart.declared.title
    if not found:
        return subject if chart.points else f"{subject}: not measured"
    _, x, high, low = found
    if _at(low, x) <= 0 or _at(high, x) < 1.05 * _at(low, x):
        return subject
    return f"{subject}: {high.name} highest, {written(_at(high, x) / _at(low, x))} times {low.name}"


def alt(chart: LineChart) -> str:
    lines = chart.declared
    if not chart.points:
        return f"Line chart of {lines.y_label} against {lines.x_label}, without data: nothing was measured."
    found = ends(chart)
    if not found:
        last = max(chart.points, key=lambda point: point.x)
        return finding(
            f"Line chart of {lines.y_label}, which ends at {format_number(last.y)} where {lines.x_label} is "
            f"{size(last.x)}."
        )
    panel, x, high, low = found
    if _at(high, x) == _at(low, x):
        return finding(
            f"{panel.title}, where {lines.x_label} is {size(x)}: {lines.y_label} is {written(_at(high, x))} in all "
            f"{len(panel.series)} series."
        )
    return finding(
        f"{panel.title}, where {lines.x_label} is {size(x)}: {lines.y_label} is highest for {high.name} "
        f"({written(_at(high, x))}) and lowest for {low.name} ({written(_at(low, x))}), of {len(panel.series)} series."
    )


def table(chart: LineChart) -> list[dict[str, Any]]:
    """A line per panel and x, a column per series."""
    return [line for panel in chart.panels for line in _table_of(panel, chart.declared)]


def _table_of(panel: Panel, lines: Lines) -> Iterator[dict[str, Any]]:
    cells: dict[float, dict[str, Any]] = {}
    for series in panel.series:
        for point in series.points:
            cell = cells.setdefault(point.x, {lines.panel: panel.title, lines.x_label: _number(point.x)})
            cell[series.name] = point.y
            cell["stale"] = bool(cell.get("stale")) or point.stale
    for x in sorted(cells):
        yield cells[x]


def _number(value: float) -> float | int:
    """A cell as the table beside the figure shows it."""
    return int(value) if value.is_integer() else float(f"{value:.3g}")
