"""Figures of experiments: one quantity against another, logarithmic, a panel for each case, a line for each series."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmrepro.experiments import Lines
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    SERIES,
    Drawing,
    between_decades,
    empty,
    half_widths,
    origin,
    plain,
    stale_note,
)

COLUMNS = 2
"""Panels side by side: no more, so that a small screen can show their text."""

ALONE = 6.4
"""Width in inches of a figure of one panel."""

DASHES = ("-", (0, (6, 1.6)), "-.", (0, (1, 1.1)), (0, (3, 1, 1, 1)), (0, (8, 2, 1, 2)), (0, (4, 4)))


def draw(family: str, lines: Lines, results: Results) -> Drawing:
    """One figure of an experiment."""
    panels = list(lines.panels.items())
    count = -(-len(panels) // COLUMNS)
    width = min(COLUMNS, len(panels))
    figure, grid = plt.subplots(
        count, width, figsize=(3.8 * width if width > 1 else ALONE, 2.35 * count + 1.0), sharex=True, squeeze=False
    )
    drawing = Drawing(figure, lines.title)
    column = results.experiment.column(lines.y)
    toolkit = results.toolkit
    said = []
    xs = sorted({float(x) for x in results.rows[lines.x].dropna()})
    for place, (value, title) in enumerate(panels):
        axes = grid[place // COLUMNS][place % COLUMNS]
        axes.set_title(title, loc="left")
        at = results.rows[(results.rows[lines.panel] == value).fillna(False).astype(bool)]
        cells: dict[float, dict[str, object]] = {}
        drawn = any_row = False
        for number, (kernel, name) in enumerate(lines.series.items()):
            rows = at[
                at["kernel"].isin(kernel.split(",")) & ((at["toolkit"] == toolkit) | (at["toolkit"] == "library"))
            ]
            rows = rows[rows[lines.y].notna()].sort_values(lines.x)
            if rows.empty:
                continue
            any_row = True
            for _, row in rows.iterrows():
                cell = cells.setdefault(float(row[lines.x]), {lines.panel: title, lines.x_label: _number(row[lines.x])})
                cell[name] = float(row[lines.y])
                cell["stale"] = bool(cell.get("stale")) or row["status"] == "stale"
                drawing.rows.append(row_key(family, results.experiment.name, row, lines.panel, lines.x))
            drawn |= _line(axes, rows, number, lines, column.low, column.high)
            last = rows.iloc[-1]
            said.append(f"{title}, {name}: {last[lines.y]:.3g} at {lines.x_label} {_number(last[lines.x])}")
        drawing.table += [cells[x] for x in sorted(cells)]
        drawing.stale |= any(bool(cell.get("stale")) for cell in cells.values())
        if not any_row:
            empty(axes, "not measured")
        elif not drawn:
            empty(axes, lines.zero)
        elif zeros := _leading_zeros(at, lines):
            said_zero = f"{lines.zero}\nup to {lines.x_label} = {plain(zeros)}"
            axes.text(0.04, 0.5, said_zero, transform=axes.transAxes, va="center", color=INK, fontsize=9.5)
        _ticks(axes, xs, lines.x_scale)
        if place >= len(panels) - width:
            axes.set_xlabel(lines.x_label)
            axes.tick_params(axis="x", labelbottom=True)
    for spare in range(len(panels), count * width):
        grid[spare // COLUMNS][spare % COLUMNS].set_visible(False)
    present = [
        (number, name)
        for number, (kernel, name) in enumerate(lines.series.items())
        if results.rows["kernel"].isin(kernel.split(",")).any()
    ]
    handles = [
        Line2D(
            [],
            [],
            color=_colour(number),
            marker=_marker(number),
            linestyle=_dash(number),
            markersize=_marker_size(number),
            label=name,
        )
        for number, name in present
    ]
    rows_of_legend = -(-len(handles) // 3)
    if handles:
        figure.legend(
            handles=handles, loc="upper left", ncols=3, bbox_to_anchor=(0, 1), borderaxespad=0.3, handlelength=2.6
        )
    sns.despine(figure)
    # A longer legend takes nothing away from the panels.
    inches = figure.get_size_inches()[1] + 0.2 * max(0, rows_of_legend - 2)
    figure.set_figheight(inches)
    top = 1 - (0.12 + 0.2 * rows_of_legend) / inches
    figure.supylabel(lines.y_label, y=top / 2, fontsize=10, color=INK)
    figure.tight_layout(rect=(0, 0, 1, top), w_pad=1.2, h_pad=0.8)
    built = f" Kernels built by {toolkit}." if toolkit else ""
    drawing.caption = f"{lines.caption}{built} {origin(results)}{stale_note(drawing.stale)}".strip()
    drawing.alt = (
        f"{lines.y_label} against {lines.x_label}. " + "; ".join(said) + "." if said else "Line chart without data."
    )
    return drawing


def _number(value: float) -> float | int:
    """A cell as the table beside the figure shows it."""
    return int(value) if float(value).is_integer() else float(f"{value:.3g}")


def size(value: float, _position: int | None = None) -> str:
    """A tick's label of a size: powers of two from 2^20 on as such."""
    power = round(math.log2(value)) if value > 0 else 0
    if power < 20 or value != 2**power:
        return plain(value)
    return "2" + str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def _marker(number: int) -> str:
    # Where there are more series than colours, a colour comes back with another mark.
    return MARKERS[(number + number // len(SERIES)) % len(MARKERS)]


def _marker_size(number: int) -> float:
    return 4.5 + 0.7 * (number % len(SERIES))


def _dash(number: int) -> object:
    return DASHES[(number + number // len(SERIES)) % len(DASHES)]


def _leading_zeros(rows: pd.DataFrame, lines: Lines) -> float | None:
    """The largest x up to which every series is zero, which the axis cannot show; None where the first is not."""
    largest = None
    for x, group in rows[rows[lines.y].notna()].groupby(lines.x):
        if (group[lines.y] != 0).any():
            break
        largest = float(x)
    return largest


def _line(axes: Axes, rows: pd.DataFrame, number: int, lines: Lines, low: str | None, high: str | None) -> bool:
    """Draw one series; returns whether it has a point that a logarithmic axis can show."""
    rows = rows[rows[lines.y] > 0]
    if rows.empty:
        return False
    x, y = rows[lines.x].to_numpy(float), rows[lines.y].to_numpy(float)
    colour = _colour(number)
    # Where lines coincide, the first of the legend is on top, and the marks below it are larger.
    top = 4 - 0.02 * number
    axes.plot(x, y, color=colour, linestyle=_dash(number), linewidth=1.4, zorder=top - 0.01)
    for stale in (False, True):
        chosen = ((rows["status"] == "stale") == stale).to_numpy(bool)
        axes.plot(
            x[chosen],
            y[chosen],
            linestyle="",
            marker=_marker(number),
            color=PAPER if stale else colour,
            markeredgecolor=colour,
            markersize=_marker_size(number),
            zorder=top,
        )
    if low and high:
        ends = half_widths(y - rows[low].to_numpy(float), rows[high].to_numpy(float) - y)
        axes.errorbar(x, y, yerr=ends, color=colour, linestyle="", capsize=2, linewidth=0.8, zorder=top - 0.005)
    return True


def _ticks(axes: Axes, xs: list[float], scale: str) -> None:
    if scale == "linear":
        axes.set_xscale("linear")
    else:
        axes.set_xscale("log", base=2 if scale == "log2" else 10)
    axes.set_yscale("log")
    if scale == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axes.xaxis.set_major_locator(FixedLocator(xs[:: max(1, math.ceil(len(xs) / 4))] or [1.0]))
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    if xs and scale == "linear":
        margin = 0.05 * (xs[-1] - xs[0]) or 0.5
        axes.set_xlim(xs[0] - margin, xs[-1] + margin)
    elif xs:
        axes.set_xlim(xs[0] / 1.3, xs[-1] * 1.3)
    low, high = axes.get_ylim()
    if not axes.lines:
        axes.set_yticks([])
    elif np.log10(high / low) < 1.2:
        # At least a decade, so that a flat line looks flat and has ticks beside it.
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / 4, middle * 4)
    between_decades(axes.yaxis)
