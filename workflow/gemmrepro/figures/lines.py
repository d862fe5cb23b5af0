"""Figures of experiments: one quantity against another, logarithmic, a panel for each case, a line for each series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.experiments import Lines
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.figures.ends import End, label, reserve, room, wrapped
from gemmrepro.figures.style import (
    INK,
    MARKERS,
    PAPER,
    SERIES,
    Dash,
    Drawing,
    between_decades,
    despine,
    empty,
    finding,
    half_widths,
    origin,
    plain,
    raised,
    stale_note,
    written,
)
from gemmrepro.figures.widths import WIDE, Page, both
from gemmrepro.measure.rows import counted

COLUMNS = 2
"""At most this many panels side by side."""

ALONE = 6.4
"""Width in inches of a figure of one panel."""

LETTERS = (13, 26, 15)
"""Letters in a line of a label: in the narrow figure, and in the wide one with one panel side by side and with two."""

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
    """A line of a panel; `number` is its place among the declared series, which gives it its look."""

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
    """What the figure shows: `xs` are all x that are drawn."""

    declared: Lines
    toolkit: str | None
    origin: str
    intervals: bool
    xs: tuple[float, ...]
    panels: tuple[Panel, ...]

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
    """The look of a series by its number, of which no two are alike.

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
    letters = LETTERS[0 if page.narrow else width]
    names = [[wrapped(series.name, letters) for series in labelled(panel)] for panel in chart.panels]
    height = max(2.35, 0.75 + max(room(texts, page) for texts in names))
    figure, grid = plt.subplots(down, width, figsize=(page.width, height * down + 0.3), sharex=True, squeeze=False)
    for place, (axes, panel) in enumerate(zip(grid.flat, chart.panels, strict=False)):
        _paint_panel(axes, panel, chart)
        reserve(axes, names[place], page)
        if place >= len(chart.panels) - width:
            axes.set_xlabel(lines.x_label)
            axes.tick_params(axis="x", labelbottom=True)
    for spare in grid.flat[len(chart.panels) :]:
        spare.set_visible(False)
    despine(figure.axes)
    figure.supylabel(lines.y_label, fontsize=page.letters, color=INK)
    figure.tight_layout(w_pad=1.2, h_pad=0.8)
    for axes, panel, texts in zip(grid.flat, chart.panels, names, strict=False):
        label(axes, [_end(series, text) for series, text in zip(labelled(panel), texts, strict=True)], page)
        if chart.xs and lines.x_scale != "log":
            _thin_ticks(axes, page)
    return figure


def _thin_ticks(axes: Axes, page: Page) -> None:
    """Leave out the labels of x that would touch one before, which only the final layout tells."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    width = axes.get_position().width * figure.get_size_inches()[0] * 72
    kept: list[float] = []
    right = -math.inf
    for x in axes.get_xticks():
        middle = float(axes.transAxes.inverted().transform(axes.transData.transform((x, 1)))[0]) * width
        half = 0.34 * page.letters * (len(size(x)) + 1)
        if middle - half >= right:
            kept.append(float(x))
            right = middle + half
    axes.xaxis.set_major_locator(FixedLocator(kept))


def labelled(panel: Panel) -> list[Series]:
    """The lines of a panel that need a label: all that are drawn, if there are several."""
    drawn = [series for series in panel.series if series.positive]
    return drawn if len(drawn) > 1 else []


def _end(series: Series, text: str) -> End:
    last, style = series.positive[-1], look(series.number)
    return End(last.x, last.y, text, style.colour, style.marker)


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
    # Where lines coincide, the first declared is on top, and the marks below it are larger.
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
    """The finding, or the subject and by how much the series differ where a factor can say it."""
    subject = chart.declared.title
    if said := said_of(chart):
        return said
    found = ends(chart)
    if not found:
        return subject if chart.points else f"{subject}: not measured"
    _, x, high, low = found
    if _at(low, x) <= 0 or _at(high, x) < 1.05 * _at(low, x):
        return subject
    return f"{subject}: {high.name} highest, {written(_at(high, x) / _at(low, x))} times {low.name}"


def said_of(chart: LineChart) -> str | None:
    """What the figure was declared to say, if the last panel with current rows bears it out."""
    lines = chart.declared
    for panel in reversed(chart.panels):
        fresh = [series for series in panel.series if not any(point.stale for point in series.points)]
        if not lines.says or not fresh:
            continue
        if lines.reference:
            found = beyond(fresh, lines.reference)
            return lines.says.format(name=found[0].name, factor=written(found[1].x / found[2].x)) if found else None
        first, last = fresh[0].points[0], fresh[0].points[-1]
        if max(first.y, last.y) < 1.05 * min(first.y, last.y):
            return None
        texts = {"first": written(first.y), "last": written(last.y), "start": size(first.x), "end": size(last.x)}
        return lines.says.format(**texts)
    return None


def beyond(panel: Sequence[Series], reference: str) -> tuple[Series, Point, Point] | None:
    """The series and the point with the largest x of those whose y is no larger than the reference's, and its point."""
    own = next((series.points[-1] for series in panel if series.name == reference), None)
    if own is None:
        return None
    others = [(series, point) for series in panel if series.name != reference for point in series.points]
    better = [(series, point) for series, point in others if point.x > own.x and point.y <= own.y]
    if not better:
        return None
    series, point = max(better, key=lambda pair: pair[1].x)
    return series, point, own


def alt(chart: LineChart) -> str:
    lines = chart.declared
    if not chart.points:
        return f"Line chart of {lines.y_label} against {lines.x_label}, without data: nothing was measured."
    found = ends(chart)
    if not found:
        return _alt_of_points(chart)
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


def _alt_of_points(chart: LineChart) -> str:
    """Of a figure whose series have no x in common."""
    lines = chart.declared
    panel = next((panel for panel in reversed(chart.panels) if panel.series), chart.panels[-1])
    if lines.reference and (found := beyond(panel.series, lines.reference)):
        best, point, own = found
        return finding(
            f"{panel.title}: {best.name} reaches a {lines.x_label} of {written(point.x)} with {lines.y_label} "
            f"{written(point.y)}; {lines.reference} has {written(own.x)} and {written(own.y)}."
        )
    points = sorted(chart.points, key=lambda point: point.x)
    first, last = points[0], points[-1]
    return finding(
        f"Line chart of {lines.y_label}: {written(first.y)} where {lines.x_label} is {size(first.x)}, and "
        f"{written(last.y)} where it is {size(last.x)}."
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
