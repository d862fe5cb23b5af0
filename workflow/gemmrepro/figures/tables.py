"""Figures of the articles' tables: what was published beside what was measured, a panel for each column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.tables import Mark, Panel, Printed, Table
from gemmrepro.figures.numbers import Numbers
from gemmrepro.figures.style import (
    INK,
    MARKERS,
    PAPER,
    PUBLISHED,
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
from gemmrepro.figures.widths import WIDE, Page, both, legend, names_above, wrapped
from gemmrepro.measure.rows import Measurements

COLUMNS, LEGEND_COLUMNS = 2, 3
PRINTED_DASH: Dash = (0, (4, 2))
PRINTED_MARKERS = ("D", "s", "^", "v")
"""Of the chips of an article, in the order of its rows, where names stand down the side."""

LINE = 0.27
"""Inches of height per name."""


@dataclass(frozen=True)
class Chart:
    """What the figure shows: the marks of a table that have a number, and where the measured ones are from."""

    declared: Table
    origin: str
    marks: tuple[Mark, ...]

    @property
    def named(self) -> bool:
        """Whether names stand down the side, instead of sizes along the axis."""
        return not self.declared.x_label

    @property
    def series(self) -> list[str]:
        return list(dict.fromkeys(mark.series for mark in self.marks))

    @property
    def hardware(self) -> list[str]:
        return list(dict.fromkeys(printed.hardware for mark in self.marks for printed in mark.printed))

    @property
    def panels(self) -> list[tuple[Panel, list[Mark]]]:
        return [
            (panel, [mark for mark in self.marks if mark.panel == name]) for name, panel in self.declared.panels.items()
        ]

    @property
    def measured(self) -> bool:
        return any(mark.measured for mark in self.marks)

    @property
    def stale(self) -> bool:
        return any(mark.measured.stale for mark in self.marks if mark.measured)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return list(dict.fromkeys(key for mark in self.marks if mark.measured for key in mark.measured.keys))


def draw(
    table: Table, measured: Measurements, ceilings: Measurements | None, results: Mapping[str, Results]
) -> Drawing:
    """The figure of one table."""
    marks = tuple(mark for mark in table.marks(Numbers(measured, ceilings, results)) if mark.printed or mark.measured)
    rows = results.get(table.experiment, measured) if table.experiment else measured
    chart = Chart(table, origin(rows), marks)
    wide, narrow = both(partial(paint, chart))
    return Drawing(wide, title(chart), caption(chart), alt(chart), chart.rows, lines(chart), chart.stale, narrow)


def paint(chart: Chart, page: Page = WIDE) -> Figure:
    """Draw it."""
    return _down_the_side(chart, page) if chart.named else _along_the_axis(chart, page)


def _along_the_axis(chart: Chart, page: Page) -> Figure:
    """Panels of curves against size."""
    columns = min(int(page.pick(COLUMNS, 1)), len(chart.panels))
    down = math.ceil(len(chart.panels) / columns)
    page = replace(page, width=min(page.width, 7.6 if columns > 1 else 6.4))
    figure, grid = plt.subplots(down, columns, figsize=(page.width, 2.4 * down + 0.9), squeeze=False)
    for axes, (panel, marks) in zip(grid.flat, chart.panels, strict=False):
        for place, series in enumerate(chart.series):
            own = sorted((mark for mark in marks if mark.series == series), key=lambda mark: float(mark.x))
            _curves(axes, own, SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)])
        _finish(axes, panel, chart, sorted({float(mark.x) for mark in marks}))
        axes.set_title(wrapped(panel.title, page), loc="left")
    for axes in grid.flat[len(chart.panels) :]:
        axes.set_visible(False)
    _finished(figure, chart, page)
    return figure


def _curves(axes: Axes, marks: Sequence[Mark], colour: str, marker: str) -> None:
    """One series: as published, hollow and grey, and as measured."""
    printed = [(float(mark.x), printed.value) for mark in marks for printed in mark.printed]
    axes.plot(*_xy(printed), color=PUBLISHED, linestyle=PRINTED_DASH, linewidth=1.5, zorder=2)
    axes.plot(
        *_xy(printed), marker, color=PAPER, markeredgecolor=PUBLISHED, markeredgewidth=1.4, markersize=8, zorder=3
    )
    found = [(float(mark.x), mark.measured) for mark in marks if mark.measured]
    axes.plot([x for x, _ in found], [value.value for _, value in found], color=colour, linewidth=1.5, zorder=4)
    for x, value in found:
        axes.errorbar(
            [x],
            [value.value],
            yerr=half_widths([value.value - value.low], [value.high - value.value]),
            color=colour,
            marker=marker,
            markersize=5.5,
            markerfacecolor=PAPER if value.stale else colour,
            markeredgecolor=colour,
            capsize=2.5,
            linewidth=1,
            zorder=5,
        )


def _xy(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _finish(axes: Axes, panel: Panel, chart: Chart, xs: Sequence[float]) -> None:
    axes.set_ylabel(panel.label)
    axes.set_xlabel(chart.declared.x_label)
    if chart.declared.ticks == "log2":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    shown = xs if len(xs) <= 7 else xs[:: math.ceil(len(xs) / 6)]
    axes.set_xticks(shown, [plain(x) for x in shown], rotation=30 if len(shown) > 4 and max(xs) > 999 else 0)
    if panel.log:
        axes.set_yscale("log")
        between_decades(axes.yaxis)
        if isinstance(axes.yaxis.get_minor_formatter(), FuncFormatter):
            axes.yaxis.set_minor_formatter(FuncFormatter(_tick))
    else:
        axes.set_ylim(panel.low, axes.get_ylim()[1] * 1.04)
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    if panel.line is not None:
        axes.axhline(panel.line, color=INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1.5)
    if not xs:
        empty(axes, "not measured")


def _tick(value: float, _position: int | None = None) -> str:
    """As `plain`, with no number in exponent form."""
    digits, _, power = f"{value:.3g}".partition("e")
    return f"{digits} · 10{raised(int(power))}" if power and value < 1e-4 and digits != "1" else plain(value)


def _down_the_side(chart: Chart, page: Page) -> Figure:
    """Panels one below the other, a line for each name: hollow marks as published, filled ones as measured.

    The numbers stand to the right; in the narrow figure, name and numbers stand above the marks.
    """
    heights = [len({mark.x for mark in marks}) * page.pick(LINE, 2.2 * LINE) + 0.75 for _, marks in chart.panels]
    size = (page.width, sum(heights) + 0.7)
    figure, grid = plt.subplots(len(heights), 1, figsize=size, squeeze=False, height_ratios=heights)
    for axes, (panel, marks) in zip(grid[:, 0], chart.panels, strict=True):
        names = list(dict.fromkeys(str(mark.x) for mark in marks))
        for mark in marks:
            _line(axes, mark, names.index(str(mark.x)), chart)
        axes.set_title(wrapped(panel.title, page), loc="left")
        axes.set_xlabel(wrapped(panel.label, page))
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        if panel.log:
            axes.set_xscale("log")
            between_decades(axes.xaxis)
        else:
            axes.set_xlim(panel.low, panel.low + (axes.get_xlim()[1] - panel.low) * 1.03)
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        if panel.line is not None:
            axes.axvline(panel.line, color=INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1.5)
        if names and page.narrow:
            names_above(axes, names, [_numbers(chart, marks, name) for name in names])
        elif names:
            _write_beside(axes, chart, marks, names)
        else:
            empty(axes, "not measured")
    _finished(figure, chart, page)
    return figure


def _numbers(chart: Chart, marks: Sequence[Mark], name: str) -> str:
    """The numbers of a name in a line: of each chip of the article, then the measured one."""
    parts = []
    for mark in marks:
        if str(mark.x) == name:
            for hardware in chart.hardware:
                if values := [printed.value for printed in mark.printed if printed.hardware == hardware]:
                    short = hardware.removeprefix("NVIDIA ")
                    parts.append(f"{short} {' to '.join(format_number(value, 3) for value in values)}")
            parts.append(f"here {format_number(mark.measured.value, 3) if mark.measured else 'not measured'}")
    return ", ".join(parts)


def _line(axes: Axes, mark: Mark, y: int, chart: Chart) -> None:
    """The marks of one number, joined."""
    height = y + _offset(chart, mark)
    colour = SERIES[chart.series.index(mark.series) % len(SERIES)]
    ends = [printed.value for printed in mark.printed]
    for printed in mark.printed:
        shape = PRINTED_MARKERS[chart.hardware.index(printed.hardware) % len(PRINTED_MARKERS)]
        look: dict[str, Any] = {"markeredgecolor": PUBLISHED, "markeredgewidth": 1.5, "markersize": 8}
        axes.plot([printed.value], [height], shape, color=PAPER, zorder=4, **look)
    if value := mark.measured:
        ends.append(value.value)
        axes.errorbar(
            [value.value],
            [height],
            xerr=half_widths([value.value - value.low], [value.high - value.value]),
            color=colour,
            marker="o",
            markersize=5,
            markerfacecolor=PAPER if value.stale else colour,
            markeredgecolor=colour,
            capsize=2.5,
            linewidth=1.1,
            zorder=5,
        )
    if len(ends) > 1:
        axes.plot([min(ends), max(ends)], [height, height], color=PUBLISHED, linewidth=1, zorder=2)


def _offset(chart: Chart, mark: Mark) -> float:
    """How far below its name's line a mark is, where a name has several series."""
    return 0.22 * (chart.series.index(mark.series) - (len(chart.series) - 1) / 2)


def _write_beside(axes: Axes, chart: Chart, marks: Sequence[Mark], names: Sequence[str]) -> None:
    """The numbers to the right of a panel: a column for each chip of the article, then the measured one."""
    for place, head in enumerate([*chart.hardware, "here"]):
        cells = [(-0.9, head.removeprefix("NVIDIA ").replace(" ", "\n", 1), INK)]
        for mark in marks:
            found = [printed.value for printed in mark.printed if printed.hardware == head]
            if head == "here" and mark.measured:
                found = [mark.measured.value]
            height = names.index(str(mark.x)) + _offset(chart, mark)
            text = " to ".join(format_number(value, 2 if len(found) > 1 else 3) for value in found)
            cells.append((height, text, INK if head == "here" else PUBLISHED))
        for y, text, colour in cells:
            axes.annotate(
                text,
                (1.09 + 0.13 * place, y),
                xycoords=("axes fraction", "data"),
                ha="center",
                va="center",
                fontsize=8.5,
                color=colour,
                annotation_clip=False,
            )


def _handles(chart: Chart) -> list[Line2D]:
    """Of curves two for each series; of names one for each chip, then one for each series."""
    handles = []
    if chart.named:
        for place, hardware in enumerate(chart.hardware):
            shape = PRINTED_MARKERS[place % len(PRINTED_MARKERS)]
            handles.append(_hollow(f"published, {hardware}", shape, ""))
    for place, series in enumerate(chart.series):
        colour, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        own = [mark for mark in chart.marks if mark.series == series]
        if not chart.named and any(mark.printed for mark in own):
            handles.append(_hollow(f"{series}, published", marker, PRINTED_DASH))
        if any(mark.measured for mark in own):
            dash: Dash | Literal[""] = "" if chart.named else "-"
            shape = "o" if chart.named else marker
            label = f"{series}, measured"
            handles.append(Line2D([], [], color=colour, marker=shape, linestyle=dash, markersize=5.5, label=label))
    return handles


def _hollow(label: str, marker: str, dash: Any) -> Line2D:
    return Line2D(
        [], [], color=PUBLISHED, markerfacecolor=PAPER, marker=marker, markersize=6.5, linestyle=dash, label=label
    )


def _finished(figure: Figure, chart: Chart, page: Page) -> None:
    """Give a figure its legend and final places."""
    despine(figure.axes)
    handles = _handles(chart)
    top = legend(figure, handles, page, LEGEND_COLUMNS if len(handles) != 4 else 2)
    figure.tight_layout(rect=(0, 0, 1, top), w_pad=1.6, h_pad=1.2)


def caption(chart: Chart) -> str:
    there = f"Hollow grey marks: as published for {listed(chart.hardware)}. " if chart.hardware else ""
    return f"{chart.declared.caption} {there}{chart.origin}{stale_note(chart.stale)}".strip()


NEAR = 0.1
"""Within this share of the published value a measured one agrees with it."""


def compared(chart: Chart) -> list[tuple[Mark, Printed, float]]:
    """The marks with both sides, and measured over published for each published number."""
    return [
        (mark, printed, mark.measured.value / printed.value)
        for mark in chart.marks
        for printed in mark.printed
        if mark.measured and not mark.measured.stale and printed.value
    ]


def title(chart: Chart) -> str:
    """The subject, and how many of its values agree."""
    pairs = compared(chart)
    if not pairs:
        return chart.declared.title if chart.measured else f"{chart.declared.title}: not measured"
    near = sum(abs(over - 1) <= NEAR for _, _, over in pairs)
    return f"{chart.declared.title}: {near} of {len(pairs)} values within {NEAR:.0%}"


def alt(chart: Chart) -> str:
    pairs = compared(chart)
    if not pairs:
        return f"Chart of {chart.declared.title}, published and measured, of which no value has both."
    near, above = (sum(test(over) for _, _, over in pairs) for test in (_near, lambda over: over > 1 + NEAR))
    mark, printed, _ = max(pairs, key=lambda pair: abs(math.log(pair[2])))
    assert mark.measured
    return finding(
        f"Of {len(pairs)} published values {near} are met within {NEAR:.0%}, {above} are exceeded and "
        f"{len(pairs) - near - above} not reached.",
        f"Farthest: {mark.series}, {_x(mark.x)}, published {written(printed.value)}, measured "
        f"{written(mark.measured.value)}.",
    )


def _near(over: float) -> bool:
    return abs(over - 1) <= NEAR


def _x(x: float | str) -> str:
    return x if isinstance(x, str) else plain(x)


def lines(chart: Chart) -> list[dict[str, Any]]:
    """A line per mark."""
    titles = {name: panel.title for name, panel in chart.declared.panels.items()}
    return [_cells(mark, titles[mark.panel], chart.hardware) for mark in chart.marks]


def _cells(mark: Mark, panel: str, hardware: Sequence[str]) -> dict[str, Any]:
    there = {name: [each.value for each in mark.printed if each.hardware == name] for name in hardware}
    found = mark.measured
    return {
        "": panel,
        "of": mark.series,
        "at": mark.x if isinstance(mark.x, str) or mark.x != int(mark.x) else int(mark.x),
        **{
            f"published, {name}": (values if len(values) > 1 else next(iter(values), None))
            for name, values in there.items()
        },
        "measured": found.value if found else None,
        "stale": bool(found and found.stale),
    }
