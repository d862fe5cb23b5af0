"""The figure ``climb``: how a ladder approaches cuBLAS and the GPU's ceilings, level by level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemmrepro.core.text import format_number
from gemmrepro.figures.points import Point, throughput_point
from gemmrepro.figures.style import (
    FIRST,
    INK,
    LAST,
    PAPER,
    TUNED,
    Dash,
    Drawing,
    despine,
    empty,
    finding,
    origin,
    plain,
    stale_note,
)
from gemmrepro.figures.widths import WIDE, Page, both, legend
from gemmrepro.judge.ceilings import Ceiling, computed_peak, of_operation
from gemmrepro.measure.rows import BEYOND, Measurements, cubes, select
from gemmrepro.registry import Kernel, ladders

SIZES = (4096, 8192, 16384)

STEP = 0.27
"""Inches per level."""


_DASHES: tuple[Dash, ...] = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))


@dataclass(frozen=True)
class Level:
    """A kernel, or cuBLAS, at one size."""

    name: str
    point: Point
    ratio: float
    clock_mhz: float
    power_w: float

    @property
    def baseline(self) -> float:
        """cuBLAS as timed in turn with this kernel, in TFLOP/s; NaN where it was not."""
        return self.point.value / self.ratio if self.ratio else math.nan


@dataclass(frozen=True)
class Step:
    """A row of a panel: a step of the ladder, if it was measured, and its twins from the same source.

    `twins_end` is where the marks of its twins end, 0 without any.
    """

    level: Level | None
    twins: tuple[Level, ...]
    twins_end: float


@dataclass(frozen=True)
class Panel:
    """One size: the steps in the order of the ladder."""

    size: int
    steps: tuple[Step, ...]
    measured: bool

    def levels(self) -> Iterator[Level]:
        """Everything that it shows, in the order of the table."""
        for step in self.steps:
            yield from (step.level,) if step.level else ()
            yield from step.twins


@dataclass(frozen=True)
class Peak:
    """The computed peak of the GPU: TFLOP/s, the formula in words, and the clock."""

    tflops: float
    formula: str
    clock_mhz: float | None


@dataclass(frozen=True)
class Climb:
    """What the figure shows. `ceilings` are of the ladder's type, the highest first; `labels` name the steps."""

    dtype: str
    toolkit: str
    cache: str
    origin: str
    labels: tuple[str, ...]
    panels: tuple[Panel, ...]
    ceilings: tuple[Ceiling, ...]
    peak: Peak | None
    reach: float
    any_step: bool

    @property
    def sizes(self) -> list[int]:
        return [panel.size for panel in self.panels]

    @property
    def stale(self) -> bool:
        return any(level.point.stale for panel in self.panels for level in panel.levels())

    @property
    def has_tuned(self) -> bool:
        return any(step.twins for panel in self.panels for step in panel.steps)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        levels = [level.point.key for panel in self.panels for level in panel.levels()]
        return [ceiling.key for ceiling in self.ceilings] + levels

    def lines(self) -> list[tuple[float, Dash, str]]:
        """Lines across every panel: TFLOP/s, dash and legend."""
        lines = [
            (ceiling.value, _DASHES[place % 2 * 2], f"{ceiling.label} loop, measured: {format_number(ceiling.value)}")
            for place, ceiling in enumerate(self.ceilings)
        ]
        if self.peak:
            lines.append((self.peak.tflops, _DASHES[1], f"computed peak: {format_number(self.peak.tflops)}"))
        return lines


def draw(measured: Measurements, ceilings: Measurements | None) -> Drawing:
    """A panel per size with a bar per level and the cuBLAS timed in turn with it; lines across it are ceilings."""
    climb = selection(measured, ceilings)
    wide, narrow = both(partial(paint, climb))
    return Drawing(wide, title(climb), caption(climb), alt(climb), climb.rows, table(climb), climb.stale, narrow)


def selection(measured: Measurements, ceilings: Measurements | None) -> Climb:
    """The rows of the family's first type at those of SIZES that were measured, else at the largest size."""
    steps = ladders.steps(measured.family)
    dtype = next(iter(ladders.dtypes(measured.family)), "fp32")
    toolkit = measured.toolkit or ""
    rows = cubes(select(measured.summary, cache=measured.cache, dtype=dtype))
    rows = rows[rows["tflops"].notna()]
    measured_sizes = sorted({int(n) for n in rows["n"]})
    sizes = [size for size in SIZES if size in measured_sizes] or measured_sizes[-1:] or [SIZES[0]]
    roofs = tuple(of_operation(ceilings, "ceiling_flops", dtype)) if ceilings else ()
    gpu = measured.run.get("gpu") or {}
    computed = computed_peak(gpu, dtype)
    peak = Peak(*computed, gpu.get("clock_max_mhz")) if computed else None
    highest = max((roof.value for roof in roofs), default=math.inf)
    # An interval may reach further than any bar.
    shown = rows[rows["n"].isin(sizes) & (rows["ci_low_us"] > 0)]
    ends = shown["tflops"] * shown["median_us"] / shown["ci_low_us"]
    heights = [*(roof.value for roof in roofs), *([peak.tflops] if peak else [])]
    return Climb(
        dtype=dtype,
        toolkit=toolkit,
        cache=measured.cache,
        origin=origin(measured),
        labels=tuple(ladders.label(kernel) for kernel in steps),
        panels=tuple(_panel(select(rows, n=size), size, steps, toolkit, highest) for size in sizes),
        ceilings=roofs,
        peak=peak,
        reach=float(max([*rows["tflops"], *(end for end in ends if end <= BEYOND * highest), *heights], default=1.0)),
        any_step=bool(rows["kernel"].isin([kernel.id for kernel in steps]).any()),
    )


def _panel(rows: pd.DataFrame, size: int, steps: Sequence[Kernel], toolkit: str, highest: float) -> Panel:
    """The rows of one size as a panel."""
    shown = []
    for kernel in steps:
        twins = [twin for twin in ladders.twins(kernel) if twin.compute.dtype_in == kernel.compute.dtype_in]
        end = select(rows[rows["kernel"].isin([twin.id for twin in twins])], toolkit=toolkit)["tflops"].max()
        shown.append(
            Step(
                next(iter(_levels(rows, [kernel], toolkit, highest)), None),
                tuple(_levels(rows, twins, toolkit, highest)),
                0.0 if pd.isna(end) else float(end),
            )
        )
    return Panel(size, tuple(shown), not rows.empty)


def _levels(rows: pd.DataFrame, kernels: Sequence[Kernel], toolkit: str, highest: float) -> Iterator[Level]:
    """Those of the kernels that were measured, without intervals that reach above the `highest` ceiling."""
    for kernel in kernels:
        measured = select(rows, kernel=kernel.id, toolkit=toolkit)
        if not measured.empty:
            row = measured.iloc[-1]
            point = throughput_point(row)
            if point.has_interval and point.high > BEYOND * highest:
                point = replace(point, low=math.nan, high=math.nan)
            yield Level(ladders.level_name(kernel), point, row["ratio"], row["clock_mhz"], row["power_w"])


def paint(climb: Climb, page: Page = WIDE) -> Figure:
    """Draw it, the panels beside each other or, in the narrow figure, one below the other."""
    shape = (len(climb.panels), 1) if page.narrow else (1, len(climb.panels))
    height = shape[0] * (STEP * len(climb.labels) + 0.7) + 1.25
    figure, panels = plt.subplots(*shape, figsize=(page.width, height), sharey=True, sharex=True, squeeze=False)
    for axes, panel in zip(panels.flat, climb.panels, strict=True):
        _paint_panel(axes, panel, climb)
        axes.tick_params(axis="x", labelbottom=True)
    first = panels[0][0]
    first.set_yticks(range(len(climb.labels)), climb.labels)
    first.set_ylim(len(climb.labels) - 0.45, -0.55)
    first.set_xlim(0, 1.04 * climb.reach)
    despine(figure.axes, "left")
    figure.tight_layout(rect=(0, 0, 1, legend(figure, _legend(climb), page)), w_pad=1.0)
    return figure


def _paint_panel(axes: Axes, panel: Panel, climb: Climb) -> None:
    """Bars, marks of tuned kernels and of cuBLAS, and the lines of the ceilings."""
    for place, step in enumerate(panel.steps):
        if step.level:
            last = place == len(panel.steps) - 1
            _bar(axes, place, step.level.point, LAST if last else FIRST, climb.reach, step.twins_end)
            beside = step.level.baseline
            axes.plot([beside, beside], [place - 0.42, place + 0.42], color=INK, linewidth=2.2, zorder=4)
        for twin in step.twins:
            face = PAPER if twin.point.stale else TUNED
            axes.plot(twin.point.value, place, "d", color=face, markeredgecolor=TUNED, markersize=6.5, zorder=5)
    for value, dash, _ in climb.lines():
        axes.axvline(value, color=INK, linewidth=1.2, linestyle=dash, zorder=3)
    if not panel.measured:
        empty(axes, "not measured")
    axes.set_title(f"{panel.size}", loc="left")
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("TFLOP/s")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.tick_params(axis="y", length=0)


def _bar(axes: Axes, place: int, point: Point, colour: str, reach: float, twins_end: float) -> None:
    """One level's bar, interval and value; `reach` is the panel's width, `twins_end` where its twins' marks end."""
    value = point.value
    axes.barh(
        place,
        value,
        0.66,
        color=PAPER if point.stale else colour,
        edgecolor=colour if point.stale else INK,
        linewidth=1.2 if point.stale else 0.6,
        linestyle="--" if point.stale else "-",
        zorder=2,
    )
    interval_end = value
    if point.has_interval:
        interval_end = point.high
        error = [[max(0.0, value - point.low)], [max(0.0, point.high - value)]]
        axes.errorbar(value, place, xerr=error, color=INK, capsize=2, linewidth=1, zorder=4.5)
    # Inside the bar where there is room for it, else beside it.
    inside = value > 0.22 * reach
    axes.annotate(
        # Right of a twin's mark, the number could be mistaken for the twin's.
        format_number(value) + (" untuned" if not inside and twins_end > value else ""),
        (0 if inside else max(value, interval_end, twins_end), place),
        (4 if inside else 8, -0.5),
        textcoords="offset points",
        va="center",
        color=PAPER if inside and not point.stale else INK,
        fontweight="bold" if colour == LAST else "normal",
        zorder=6,
    )


def _legend(climb: Climb) -> list[Artist]:
    handles: list[Artist] = []
    if climb.any_step:
        handles.append(Patch(facecolor=FIRST, edgecolor=INK, linewidth=0.6, label="level"))
        handles.append(Patch(facecolor=LAST, edgecolor=INK, linewidth=0.6, label="last level"))
    if climb.has_tuned:
        handles.append(Line2D([], [], linestyle="", marker="d", color=TUNED, markersize=6.5, label="tuned"))
    if climb.any_step:
        look: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 2.2}
        handles.append(Line2D([], [], linestyle="", color=INK, label="cuBLAS, timed in turn with it", **look))
    for _, dash, label in climb.lines():
        handles.append(Line2D([], [], color=INK, linewidth=1.2, linestyle=dash, label=label))
    return handles


def caption(climb: Climb) -> str:
    lines = []
    for ceiling in climb.ceilings:
        conditions = f" at {ceiling.conditions}" if ceiling.conditions else ""
        lines.append(
            f"a loop of nothing but {ceiling.label} reaches {format_number(ceiling.value)} TFLOP/s{conditions}"
        )
    if climb.peak:
        lines.append(f"the computed peak is {format_number(climb.peak.tflops)} TFLOP/s, {climb.peak.formula}")
    sentences = [
        f"Throughput of each level, {climb.dtype}, {climb.cache} cache, at {_listed(climb.sizes)}"
        f"{f', built by {climb.toolkit}' if climb.toolkit else ''}, and (strokes) of cuBLAS as timed in turn with that "
        "level: the clock moves between levels, so cuBLAS has a stroke at each.",
        "Diamonds: the same source, tuned on this GPU." if climb.has_tuned else "",
        f"Lines across the panels: {'; '.join(lines)}." if lines else "",
        "" if climb.ceilings else f"No {climb.dtype} ceiling was measured.",
        "The table below adds clock and power.",
        climb.origin,
    ]
    return " ".join(filter(None, sentences)) + stale_note(climb.stale)


def fastest(climb: Climb) -> tuple[Panel, Level] | None:
    """The level with the best ratio at the first size that has any."""
    for panel in climb.panels:
        if levels := [level for level in panel.levels() if not math.isnan(level.ratio) and not level.point.stale]:
            return panel, max(levels, key=lambda level: level.ratio)
    return None


def title(climb: Climb) -> str:
    """The finding: what the best level reaches of cuBLAS and of the ceiling."""
    if not (found := fastest(climb)):
        return f"Throughput by level, {climb.dtype}: not measured"
    panel, best = found
    share = f", {best.point.value / climb.ceilings[0].value:.0%} of the ceiling" if climb.ceilings else ""
    return f"{best.name} reaches {format_number(best.ratio)} of cuBLAS at {panel.size}{share}"


def alt(climb: Climb) -> str:
    if not (found := fastest(climb)):
        return "Bar chart of throughput by level, without data: nothing was measured."
    panel, best = found
    first = next(level for level in panel.levels() if not level.point.stale)
    times = best.point.value / first.point.value
    return finding(
        f"At {panel.size} the levels climb from {format_number(first.point.value)} TFLOP/s ({first.name}) to "
        f"{format_number(best.point.value)} ({best.name}), {format_number(times)} times as much and "
        f"{format_number(best.ratio)} of the cuBLAS timed in turn with it.",
        f"The ceiling is {format_number(climb.ceilings[0].value)} TFLOP/s." if climb.ceilings else "",
    )


def table(climb: Climb) -> list[dict[str, Any]]:
    """A line per level and size, and one per ceiling."""
    lines: list[dict[str, Any]] = []
    for panel in climb.panels:
        for level in panel.levels():
            cells = {"level": level.name, "size": panel.size, "TFLOP/s": level.point.value}
            conditions = {"clock, MHz": level.clock_mhz, "power, W": level.power_w}
            cells |= {"cuBLAS in turn, TFLOP/s": level.baseline}
            share = {"share of the highest loop": level.point.value / climb.ceilings[0].value} if climb.ceilings else {}
            lines.append({**cells, "ratio to cuBLAS": level.ratio, **share, **conditions, "stale": level.point.stale})
    for ceiling in climb.ceilings:
        cells = {"level": f"{ceiling.label} loop, measured", "TFLOP/s": ceiling.value}
        lines.append({**cells, "clock, MHz": ceiling.clock_mhz, "power, W": ceiling.power_w})
    if climb.peak:
        peak = climb.peak
        lines.append({"level": "computed peak", "TFLOP/s": peak.tflops, "clock, MHz": peak.clock_mhz})
    return lines


def _listed(sizes: Sequence[int]) -> str:
    parts = [f"M = N = K = {sizes[0]}", *(str(size) for size in sizes[1:])]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
