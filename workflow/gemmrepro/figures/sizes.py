"""The figure ``sizes``: speed relative to cuBLAS against size, a panel per type, published and measured curves.

An article may print throughputs and no ratio; its ratio is then the quotient of two rows, as the claims take it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.figures.ends import End, label, reserve, room, wrapped
from gemmrepro.figures.points import Point, ratio_point
from gemmrepro.figures.style import (
    INK,
    MARKERS,
    PAPER,
    PUBLISHED,
    SERIES,
    TUNED,
    Dash,
    Drawing,
    despine,
    empty,
    finding,
    half_widths,
    origin,
    plain,
    stale_note,
)
from gemmrepro.figures.widths import WIDE, Page, both
from gemmrepro.judge import claims
from gemmrepro.judge.claims import Claim
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.registry import Kernel, ladders

COLUMNS = 2

LETTERS = 14
"""Letters in a line of a label."""

PUBLISHED_DASH: Dash = (0, (4, 2))
TUNED_DASH: Dash = (0, (5, 2))


@dataclass(frozen=True)
class Look:
    """Name, colour, marker and dash of a line."""

    label: str
    colour: str
    marker: str
    dash: Dash


@dataclass(frozen=True)
class Curve:
    """A kernel's line in a panel: published ratios, as (size, ratio), and measured ones; either may be empty."""

    kernel: Kernel
    look: Look
    published: tuple[tuple[int, float], ...]
    points: tuple[Point, ...]

    @property
    def published_label(self) -> str:
        return f"{self.kernel.rung} as published"


@dataclass(frozen=True)
class Panel:
    """A type; `ticks` are all sizes that were measured or published."""

    dtype: str
    ticks: tuple[int, ...]
    curves: tuple[Curve, ...]

    @property
    def measured(self) -> bool:
        return any(curve.points for curve in self.curves)


@dataclass(frozen=True)
class Sizes:
    """What the figure shows; `hardware` is what the published ratios were measured on."""

    toolkit: str
    origin: str
    hardware: tuple[str, ...]
    panels: tuple[Panel, ...]

    @property
    def types(self) -> list[str]:
        return [panel.dtype for panel in self.panels]

    @property
    def curves(self) -> list[tuple[Panel, Curve]]:
        return [(panel, curve) for panel in self.panels for curve in panel.curves]

    @property
    def stale(self) -> bool:
        return any(point.stale for _, curve in self.curves for point in curve.points)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return [point.key for _, curve in self.curves for point in curve.points]


def published_ratios(family: str) -> dict[str, list[Claim]]:
    """The claims of a family on ratios to its baseline that transfer to other GPUs, by kernel, in the order of size."""
    ratios: dict[str, list[Claim]] = {}
    for claim in claims.load((family,)):
        if claim.compute["metric"] == "ratio" and claim.published and claim.compute.get("n"):
            ratios.setdefault(claim.compute["kernel"], []).append(claim)
    return {kernel: sorted(of_kernel, key=lambda claim: claim.compute["n"]) for kernel, of_kernel in ratios.items()}


def draw(measured: Measurements) -> Drawing:
    """Ratio to the baseline against size, warm; above 1 the kernel is faster."""
    shown = selection(measured)
    wide, narrow = both(partial(paint, shown))
    return Drawing(wide, title(shown), caption(shown), alt(shown), shown.rows, table(shown), shown.stale, narrow)


def selection(measured: Measurements) -> Sizes:
    """The warm ratios of square problems by type, and the published ones of the same kernels."""
    toolkit = measured.toolkit or ""
    rows = cubes(select(measured.summary, cache="warm"))
    rows = rows[rows["ratio"].notna()]
    published = published_ratios(measured.family)
    types = ladders.dtypes(measured.family) or ["fp32"]
    types = [dtype for dtype in types if (rows["dtype"] == dtype).any()] or types[:1]
    kernels = {dtype: _kernels(measured, dtype, toolkit) for dtype in types}
    hardware = {
        row["hardware"]
        for looks in kernels.values()
        for kernel, _ in looks
        for claim in published.get(kernel.id, ())
        for row in claim.published
    }
    panels = []
    for dtype in types:
        of_type = select(rows, dtype=dtype)
        curves = tuple(
            _curve(kernel, look, published.get(kernel.id, []), select(of_type, kernel=kernel.id, toolkit=toolkit))
            for kernel, look in kernels[dtype]
        )
        ticks = {int(n) for n in of_type["n"]} | {size for curve in curves for size, _ in curve.published}
        panels.append(Panel(dtype, tuple(sorted(ticks)), curves))
    return Sizes(toolkit, origin(measured), tuple(sorted(hardware)), tuple(panels))


def _curve(kernel: Kernel, look: Look, of_article: list[Claim], rows: pd.DataFrame) -> Curve:
    points = tuple(ratio_point(row) for _, row in rows.sort_values("n").iterrows())
    return Curve(kernel, look, tuple((claim.compute["n"], claim.value or 0.0) for claim in of_article), points)


def _kernels(measured: Measurements, dtype: str, toolkit: str) -> list[tuple[Kernel, Look]]:
    """The kernels with a line in a panel: the first of each source file, and the fastest tuned one."""
    looks = _looks(measured.family)
    lines = [(kernel, looks[kernel.rung]) for kernel in ladders.steps(measured.family, dtype) if kernel.rung in looks]
    if tuned := fastest_tuned(measured, dtype, toolkit):
        lines.append((tuned, Look("fastest tuned kernel", TUNED, "h", TUNED_DASH)))
    return lines


def _looks(family: str) -> dict[str, Look]:
    """The look of a rung, the same in every panel; of the first rungs, as many as there are colours beside TUNED."""
    colours = [colour for colour in SERIES if colour != TUNED]
    titles = {kernel.rung: kernel.title.split(",")[0] for kernel in reversed(ladders.compared(family))}
    return {
        rung: Look(f"{rung} {titles[rung]}", colour, marker, "-")
        for rung, colour, marker in zip(
            dict.fromkeys(kernel.rung for kernel in ladders.compared(family)), colours, MARKERS, strict=False
        )
    }


def paint(shown: Sizes, page: Page = WIDE) -> Figure:
    """Draw it."""
    columns = min(int(page.pick(COLUMNS, 1)), len(shown.panels))
    down = math.ceil(len(shown.panels) / columns)
    ends = [_ends(panel) for panel in shown.panels]
    height = max(2.4, 0.95 + max(room([end.text for end in own], page) for own in ends))
    figure, grid = plt.subplots(down, columns, figsize=(page.width, height * down), squeeze=False)
    for axes, panel, own in zip(grid.flat, shown.panels, ends, strict=False):
        for curve in panel.curves:
            if curve.published:
                _published_line(axes, curve)
            if curve.points:
                _line(axes, curve)
        _finish(axes, panel)
        reserve(axes, [end.text for end in own], page)
    for axes in grid.flat[len(shown.panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("speed relative to cuBLAS")
    despine(figure.axes)
    figure.tight_layout(w_pad=1.6, h_pad=1.4)
    for axes, own in zip(grid.flat, ends, strict=False):
        label(axes, own, page)
    return figure


def _ends(panel: Panel) -> list[End]:
    """The labels of a panel's lines, published and measured."""
    found = []
    for curve in panel.curves:
        if curve.published:
            size, ratio = curve.published[-1]
            found.append(End(size, ratio, wrapped(curve.published_label, LETTERS), PUBLISHED))
        if curve.points:
            last = curve.points[-1]
            found.append(
                End(last.size, last.value, wrapped(curve.look.label, LETTERS), curve.look.colour, curve.look.marker)
            )
    return found


def _published_line(axes: Axes, curve: Curve) -> None:
    axes.plot(
        [size for size, _ in curve.published],
        [ratio for _, ratio in curve.published],
        color=PUBLISHED,
        linestyle=PUBLISHED_DASH,
        linewidth=1.6,
        marker="o",
        markerfacecolor=PAPER,
        markersize=4.5,
        zorder=2,
    )


def _line(axes: Axes, curve: Curve) -> None:
    """Draw a kernel's measured line with its marks and intervals."""
    colour, marker = curve.look.colour, curve.look.marker
    x = np.array([float(point.size) for point in curve.points])
    y = np.array([point.value for point in curve.points])
    low, high = (np.array([getattr(point, end) for point in curve.points]) for end in ("low", "high"))
    axes.plot(x, y, color=colour, linewidth=1.5, linestyle=curve.look.dash, zorder=3)
    known = np.isfinite(low) & np.isfinite(high)
    if np.any(known):
        error = half_widths((y - low)[known], (high - y)[known])
        axes.errorbar(x[known], y[known], yerr=error, fmt="none", ecolor=colour, linewidth=1, zorder=3)
    stale = np.array([point.stale for point in curve.points])
    for mask, face in ((~stale, colour), (stale, PAPER)):
        if np.any(mask):
            axes.plot(x[mask], y[mask], marker, color=face, markeredgecolor=colour, markersize=5.5, zorder=4)


def _finish(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.dtype, loc="left")
    axes.set_xscale("log", base=2)
    axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1.5)
    if not panel.measured:
        empty(axes, "not measured")
    axes.set_xticks(panel.ticks, [str(n) for n in panel.ticks], rotation=30 if len(panel.ticks) > 5 else 0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("M = N = K")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def caption(shown: Sizes) -> str:
    published = (
        f"Hollow marks on a dashed grey line: as published for {listed(shown.hardware)}, where the article gives "
        "both throughputs or their ratio. "
        if shown.hardware
        else ""
    )
    return (
        "Speed relative to cuBLAS in the same type and layout against the size of a square problem, warm cache; above "
        f"1 the kernel is faster. {published}Error bars are 95% intervals. The scales of the panels differ. "
        f"{f'Built by {shown.toolkit}. ' if shown.toolkit else ''}{shown.origin}{stale_note(shown.stale)}"
    )


def fastest_tuned(measured: Measurements, dtype: str, toolkit: str) -> Kernel | None:
    """The tuned kernel that is fastest at the largest size, warm; None if none was measured."""
    tuned = {k.id: k for k in ladders.compared(measured.family) if k.compute.dtype_in == dtype and ladders.is_tuned(k)}
    rows = cubes(select(measured.summary, cache="warm", toolkit=toolkit, dtype=dtype))
    rows = rows[rows["kernel"].isin(tuned) & rows["tflops"].notna()]
    if rows.empty:
        return None
    rows = rows[rows["n"] == rows["n"].max()]
    return tuned[rows.loc[rows["tflops"].idxmax(), "kernel"]]


def ends(shown: Sizes) -> list[tuple[str, Curve, Point]]:
    """Of each type the best kernel at the largest size."""
    found = []
    for panel in shown.panels:
        last = [(curve, curve.points[-1]) for curve in panel.curves if curve.points and not curve.points[-1].stale]
        if last:
            size = max(point.size for _, point in last)
            curve, point = max((one for one in last if one[1].size == size), key=lambda one: one[1].value)
            found.append((panel.dtype, curve, point))
    return found


def title(shown: Sizes) -> str:
    """The finding: in how many types a kernel reaches cuBLAS at the largest size."""
    found = ends(shown)
    if not found:
        return f"Ratio to cuBLAS against size, {listed(shown.types)}: not measured"
    ahead = [dtype for dtype, _, point in found if point.value >= 1]
    if not ahead:
        return "At the largest size no kernel reaches cuBLAS in any type"
    return f"At the largest size a kernel reaches cuBLAS in {listed(ahead)}"


def alt(shown: Sizes) -> str:
    values = [
        f"{dtype} {format_number(point.value)} ({curve.kernel.rung} at {point.size})"
        for dtype, curve, point in ends(shown)
    ]
    if not values:
        return "Line chart of speed relative to cuBLAS against size, without measured values."
    return finding(f"The best ratio to cuBLAS at the largest size, by type: {', '.join(values)}.")


def table(shown: Sizes) -> list[dict[str, Any]]:
    """A line per published and per measured ratio."""
    return [line for panel, curve in shown.curves for line in _table_of(panel, curve)]


def _table_of(panel: Panel, curve: Curve) -> Iterator[dict[str, Any]]:
    level = {"level": ladders.level_name(curve.kernel), "type": panel.dtype}
    for size, ratio in curve.published:
        yield {**level, "size": size, "published": round(ratio, 4)}
    for point in curve.points:
        yield {**level, "size": point.size, "measured": point.value, "stale": point.stale}
