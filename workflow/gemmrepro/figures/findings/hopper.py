"""F8, `hopper`: the bf16 ladder's ratios to cuBLAS at three sizes, near 1."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number
from gemmrepro.figures import climb
from gemmrepro.figures.findings.parts import Inputs, legend_above, names_down
from gemmrepro.figures.points import Point, ratio_point
from gemmrepro.figures.style import INK, MARKERS, PUBLISHED, SERIES, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both
from gemmrepro.measure.rows import cubes, select
from gemmrepro.registry import ladders

FAMILY = "hopper"
SIZES = climb.SIZES
LOW = 0.8
"""The axis begins here; what is slower is written at its edge."""


def draw(inputs: Inputs) -> Drawing:
    """A row per step, a mark per size."""
    steps = _points(inputs)
    wide, narrow = both(lambda page: _paint(steps, page))
    caption = (
        "Speed relative to cuBLAS timed in turn with the step, bf16, warm, with 95% intervals. The axis begins at "
        f"{LOW}; steps below it are written at its edge. {origin(inputs.measured[FAMILY])}"
    )
    table = [
        {"level": name, "size": size, "ratio": point.value, "low": point.low, "high": point.high, "stale": point.stale}
        for name, points in steps.items()
        for size, point in points.items()
    ]
    keys = [point.key for points in steps.values() for point in points.values()]
    stale = any(row["stale"] for row in table)
    return Drawing(wide, _title(steps), caption, _alt(steps), keys, table, stale, narrow)


def _points(inputs: Inputs) -> dict[str, dict[int, Point]]:
    """The steps' points by size."""
    measured = inputs.measured[FAMILY]
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit))
    found: dict[str, dict[int, Point]] = {}
    for kernel in ladders.steps(FAMILY):
        own = select(rows, kernel=kernel.id)
        own = own[own["ratio"].notna() & own["n"].isin(SIZES)]
        found[ladders.label(kernel)] = {int(row["n"]): ratio_point(row) for _, row in own.sort_values("n").iterrows()}
    return found


def _paint(steps: dict[str, dict[int, Point]], page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 0.33 * len(steps) + 1.1))
    for place, points in enumerate(steps.values()):
        below = [f"{format_number(point.value)}" for point in points.values() if point.value < LOW]
        for size, point in points.items():
            height = place + 0.22 * (SIZES.index(size) - 1)
            colour, marker = SERIES[SIZES.index(size)], MARKERS[SIZES.index(size)]
            if point.value < LOW:
                continue
            if point.has_interval:
                axes.plot([max(LOW, point.low), point.high], [height, height], color=colour, linewidth=1.1, zorder=2)
            axes.plot(point.value, height, marker, color=colour, markersize=5, zorder=3)
        if below:
            text = "◂ " + ", ".join(below)
            axes.annotate(text, (LOW, place), (3, 0), textcoords="offset points", va="center", color=PUBLISHED)
    names_down(axes, list(steps))
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    ends = [point.high if point.has_interval else point.value for points in steps.values() for point in points.values()]
    axes.set_xlim(LOW, max([1.02, *ends]) + 0.005)
    axes.set_xlabel("speed relative to cuBLAS")
    if not ends:
        empty(axes, "not measured")
    despine(figure.axes, "left")
    handles = [
        Line2D([], [], linestyle="", marker=MARKERS[i], color=SERIES[i], markersize=5, label=f"{size}")
        for i, size in enumerate(SIZES)
    ]
    figure.tight_layout(rect=(0, 0, 1, legend_above(figure, handles, 3)))
    return figure


def _best(steps: dict[str, dict[int, Point]]) -> tuple[str, dict[int, Point]] | None:
    """The step whose slowest size is fastest."""
    known = {name: points for name, points in steps.items() if points}
    if not known:
        return None
    return max(known.items(), key=lambda item: min(point.value for point in item[1].values()))


def _title(steps: dict[str, dict[int, Point]]) -> str:
    if not (best := _best(steps)):
        return "The bf16 ladder against cuBLAS: not measured"
    values = [point.value for point in best[1].values()]
    least, most = min(values), max(values)
    verb = "matches or beats" if least >= 0.995 else "comes within reach of"
    return f"{best[0]} {verb} cuBLAS at every size: {format_number(least)} to {format_number(most)}"


def _alt(steps: dict[str, dict[int, Point]]) -> str:
    best = _best(steps)
    if not best:
        return "Ratios to cuBLAS by step of the bf16 ladder, without data: nothing was measured."
    first = next(points for points in steps.values() if points)
    start = min(point.value for point in first.values())
    at = ", ".join(f"{format_number(point.value)} at {size}" for size, point in best[1].items())
    return finding(
        f"The bf16 ladder climbs from {format_number(start)} of cuBLAS to {at} ({best[0]}).",
        f"{sum(bool(points) and min(p.value for p in points.values()) < LOW for points in steps.values())} of "
        f"{len(steps)} steps stay below {LOW} at some size."
        if not math.isnan(start)
        else "",
    )
