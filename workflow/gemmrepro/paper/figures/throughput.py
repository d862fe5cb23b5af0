"""The figure ``throughput``: speed against size, a panel for each type and cache state, cuBLAS among the levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number, listed
from gemmrepro.measure.rows import Measurements, cubes, select, toolkit_of
from gemmrepro.paper.figures.points import Point, throughput_point
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    TUNED,
    Dash,
    Drawing,
    EdgeLabel,
    empty,
    half_widths,
    label_right,
    origin,
    plain,
    ramp,
    stale_note,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import compared, dtypes, is_tuned, level_name

BASELINE_DASHES: tuple[Dash, ...] = ("-", (0, (1, 1)), "-.")
"""Dashes of cuBLAS's lines, in the order in which a family names its baselines."""

TUNED_DASH: Dash = (0, (5, 2))


@dataclass(frozen=True)
class Series:
    """The kernel and the look of one line of a panel; `strong` lines are the last step, the tuned kernel and cuBLAS."""

    kernel: str
    toolkit: str
    label: str
    colour: str
    marker: str
    strong: bool
    dash: Dash


@dataclass(frozen=True)
class Line:
    """A series with its points in the order of their sizes, at least one."""

    series: Series
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """A type in one state of the cache; `sizes` are those at which anything of the type was measured."""

    dtype: str
    cache: str
    sizes: tuple[int, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Throughput:
    """What the figure shows: a row of panels per type. `height` in inches is that of a row, which its labels need."""

    toolkit: str
    origin: str
    types: tuple[str, ...]
    caches: tuple[str, ...]
    height: float
    has_tuned: bool
    panels: tuple[tuple[Panel, ...], ...]

    @property
    def lines(self) -> list[tuple[Panel, Line]]:
        return [(panel, line) for row in self.panels for panel in row for line in panel.lines]

    @property
    def stale(self) -> bool:
        return any(point.stale for _, line in self.lines for point in line.points)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return [point.key for _, line in self.lines for point in line.points]


def draw(measured: Measurements) -> Drawing:
    """Throughput against size, with the lines labelled at their right ends."""
    shown = selection(measured)
    title = f"Throughput against size, {listed(shown.types)}"
    return Drawing(paint(shown), title, caption(shown), alt(shown), shown.rows, table(shown), shown.stale)


def selection(measured: Measurements) -> Throughput:
    """All rows of square problems, by the types and cache states that were measured."""
    toolkit = toolkit_of(measured) or ""
    gemm = cubes(measured.summary[measured.summary["tflops"].notna()])
    types = dtypes(measured.family) or ["fp32"]
    types = [dtype for dtype in types if (gemm["dtype"] == dtype).any()] or types[:1]
    caches = [cache for cache in ("warm", "cold") if (gemm["cache"] == cache).any()] or ["warm"]
    series = {dtype: _series(measured, dtype, toolkit) for dtype in types}
    return Throughput(
        toolkit=toolkit,
        origin=origin(measured),
        types=tuple(types),
        caches=tuple(caches),
        height=max(2.6 if _many(measured.family) else 3.4, 0.19 * max(len(lines) for lines in series.values()) + 1.4),
        has_tuned=any(line.colour == TUNED for lines in series.values() for line in lines),
        panels=tuple(tuple(_panel(gemm, dtype, cache, series[dtype]) for cache in caches) for dtype in types),
    )


def _panel(gemm: pd.DataFrame, dtype: str, cache: str, series: list[Series]) -> Panel:
    of_type = select(gemm, dtype=dtype)
    lines = []
    for chosen in series:
        rows = select(of_type, kernel=chosen.kernel, toolkit=chosen.toolkit, cache=cache).sort_values("n")
        if not rows.empty:
            lines.append(Line(chosen, tuple(throughput_point(row) for _, row in rows.iterrows())))
    return Panel(dtype, cache, tuple(sorted({int(n) for n in of_type["n"]})), tuple(lines))


def _series(measured: Measurements, dtype: str, toolkit: str) -> list[Series]:
    """The lines of a panel: every step, the fastest of the tuned kernels, and the baselines."""
    steps = ladders.steps(measured.family, dtype)
    series = [
        Series(
            kernel.id,
            toolkit,
            _label(kernel),
            ramp(place, len(steps)),
            MARKERS[place % len(MARKERS)],
            strong=place == len(steps) - 1,
            dash="-",
        )
        for place, kernel in enumerate(steps)
    ]
    if tuned := fastest_tuned(measured, dtype, toolkit):
        label = _label(tuned) if _many(measured.family) else level_name(tuned)
        series.append(Series(tuned.id, toolkit, label, TUNED, "h", strong=True, dash=TUNED_DASH))
    for place, name in enumerate(dict.fromkeys(kernel.timing.baseline for kernel in steps if kernel.timing.baseline)):
        dash = BASELINE_DASHES[place % len(BASELINE_DASHES)]
        series.append(Series(name, LIBRARY, _rung(measured, name), INK, "*", strong=True, dash=dash))
    return series


def _rung(measured: Measurements, baseline: str) -> str:
    """What the rows call a baseline."""
    return next(iter(select(measured.summary, kernel=baseline)["rung"]), baseline)


def _many(family: str) -> bool:
    """Whether the family multiplies so many types that its kernels' own names are clearer than those of their steps."""
    return len(dtypes(family)) > 2


def _label(kernel: registry.Kernel) -> str:
    """What a line is called; the panel says the type."""
    return f"{kernel.rung} {kernel.name}" if _many(kernel.family) else ladders.label(kernel)


def fastest_tuned(measured: Measurements, dtype: str, toolkit: str) -> registry.Kernel | None:
    """The tuned kernel that is fastest at the largest size, warm; None if none was measured."""
    tuned = {k.id: k for k in compared(measured.family) if k.compute.dtype_in == dtype and is_tuned(k)}
    rows = cubes(select(measured.summary, cache="warm", toolkit=toolkit, dtype=dtype))
    rows = rows[rows["kernel"].isin(tuned) & rows["tflops"].notna()]
    if rows.empty:
        return None
    rows = rows[rows["n"] == rows["n"].max()]
    return tuned[rows.loc[rows["tflops"].idxmax(), "kernel"]]


def paint(shown: Throughput) -> Figure:
    """Draw it."""
    figure, grid = plt.subplots(
        len(shown.types),
        len(shown.caches),
        figsize=(7.6, shown.height * len(shown.types) + 0.3),
        sharey="row",
        squeeze=False,
    )
    for row_of_axes, row_of_panels in zip(grid, shown.panels, strict=True):
        for axes, panel in zip(row_of_axes, row_of_panels, strict=True):
            for line in panel.lines:
                _line(axes, line)
            _finish(axes, panel)
        row_of_axes[0].set_ylabel("throughput (TFLOP/s)")
    for axes in grid[-1]:
        axes.set_xlabel("M = N = K")
    sns.despine(figure)
    right = 0.76 if len(shown.caches) > 1 else 0.67
    figure.tight_layout(rect=(0, 0, right if shown.lines else 1, 1), w_pad=1.2)
    for row_of_axes, row_of_panels in zip(grid, shown.panels, strict=True):
        label_right(row_of_axes[-1], [_end(line) for line in row_of_panels[-1].lines])
    return figure


def _end(line: Line) -> EdgeLabel:
    """The label at the last point of a line."""
    last, series = line.points[-1], line.series
    return EdgeLabel(float(last.size), last.value, series.label, series.colour, series.strong)


def _line(axes: Axes, line: Line) -> None:
    """Draw one line with its marks and intervals."""
    series = line.series
    x = np.array([float(point.size) for point in line.points])
    y = np.array([point.value for point in line.points])
    low, high = (np.array([getattr(point, end) for point in line.points]) for end in ("low", "high"))
    order = 4 if series.strong else 3
    axes.plot(x, y, color=series.colour, linewidth=2.1 if series.strong else 1.2, linestyle=series.dash, zorder=order)
    axes.errorbar(
        x,
        y,
        yerr=half_widths(y - low, high - y),
        fmt="none",
        ecolor=series.colour,
        capsize=2.5,
        linewidth=1.1,
        zorder=order + 1,
    )
    stale = np.array([point.stale for point in line.points])
    for mask, hollow in ((~stale, False), (stale, True)):
        if np.any(mask):
            axes.plot(
                x[mask],
                y[mask],
                series.marker,
                color=PAPER if hollow else series.colour,
                markeredgecolor=series.colour if hollow else PAPER,
                markeredgewidth=1.3 if hollow else 0.6,
                markersize=9 if series.marker == "*" else 6 if series.strong else 4.5,
                zorder=order + 2,
            )


def _finish(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log", base=2)
    axes.set_title(f"{panel.dtype}, {panel.cache} cache", loc="left")
    if panel.sizes:
        axes.set_xticks(panel.sizes, [str(n) for n in panel.sizes], rotation=45 if len(panel.sizes) > 4 else 0)
    else:
        empty(axes, "not measured")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def caption(shown: Throughput) -> str:
    types = f"{listed(shown.types)}, one row of panels per type" if len(shown.types) > 1 else shown.types[0]
    tuned = ", the fastest tuned kernel is dashed" if shown.has_tuned else ""
    return (
        f"Throughput of each level and of cuBLAS against the size of a square problem, {types}. "
        "Warm: the same matrices in every launch; cold: L2 holds nothing of them. "
        "Labels on the right follow the order in which the lines end; "
        f"the last level and cuBLAS are drawn bold{tuned}. "
        "Error bars are 95% intervals of the median; most are smaller than the markers. "
        f"{f'Built by {shown.toolkit}. ' if shown.toolkit else ''}{shown.origin}{stale_note(shown.stale)}"
    )


def alt(shown: Throughput) -> str:
    values = []
    for panel, line in shown.lines:
        dtype = f" {panel.dtype}" if len(shown.types) > 1 else ""
        last = line.points[-1]
        values.append(f"{line.series.label}{dtype} {panel.cache} {format_number(last.value)} at {last.size}")
    if not values:
        return "Line chart without data."
    return f"Line chart of throughput in TFLOP/s against size. At the largest size: {'; '.join(values)}."


def table(shown: Throughput) -> list[dict[str, Any]]:
    """A line per point."""
    return [
        {
            "level": line.series.label,
            **({"type": panel.dtype} if len(shown.types) > 1 else {}),
            "cache": panel.cache,
            "size": point.size,
            "TFLOP/s": point.value,
            "stale": point.stale,
        }
        for panel, line in shown.lines
        for point in line.points
    ]
