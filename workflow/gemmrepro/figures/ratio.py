"""The figure ``ratio``: a ladder as bars of the speed relative to the baseline, published and measured side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gemmrepro import registry
from gemmrepro.core.names import SIZE, TOOLKIT_ORDER
from gemmrepro.core.text import as_published, format_number, listed
from gemmrepro.figures.points import Point, ratio_point
from gemmrepro.figures.style import (
    FIRST,
    INK,
    OTHER_TYPE,
    PAPER,
    PUBLISHED,
    TUNED,
    Drawing,
    despine,
    finding,
    origin,
    stale_note,
    value_label,
    written,
)
from gemmrepro.figures.widths import WIDE, Page, both, legend
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.paper.accuracy import TYPE
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, how_made, level_name, twins

BAR, GAP, NAME = 0.19, 0.14, 0.17
"""Inches: a bar, and the space between two steps."""

ERRORS = (
    "Error: the timed product against one in FP64, relative in the Frobenius norm. The latter errs by about 2.1e-15 "
    "itself, so what lies near that may be more accurate. "
)
"""What the caption says of schemes of FP64."""


@dataclass(frozen=True)
class Bar:
    """A kernel: `how` it is made of the step's source (`ladders.how_made`), and its values by toolkit, in file order.

    Bars show the values of `toolkit`; those of another are diamonds. `error` is the relative error of its result in the
    Frobenius norm, of schemes of FP64 alone, which differ in it.
    """

    name: str
    how: str
    toolkit: str | None
    values: tuple[tuple[str, Point], ...]
    error: float | None = None

    @property
    def drawn(self) -> list[Point]:
        """The values of the toolkit that the bars show."""
        return [point for toolkit, point in self.values if toolkit == self.toolkit]

    @property
    def others(self) -> list[Point]:
        """The current values of the other toolkit."""
        return [point for toolkit, point in self.values if toolkit != self.toolkit and not point.stale]


@dataclass(frozen=True)
class Group:
    """A step of the ladder: its published ratio, if there is one, its own bar and those of its twins."""

    label: str
    published: float | None
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Ratios:
    """What the figure shows: `size` as measured, `published_size` that of the published ratios."""

    types: tuple[str, ...]
    toolkit: str | None
    cache: str
    gpu: str | None
    origin: str
    size: int
    published_size: int
    hardware: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def bars(self) -> list[Bar]:
        return [bar for group in self.groups for bar in group.bars]

    @property
    def published(self) -> bool:
        return bool(self.hardware)

    @property
    def stale(self) -> bool:
        return any(point.stale for bar in self.bars for point in bar.drawn)

    @property
    def other_toolkit(self) -> str | None:
        """The toolkit of the diamonds, None where there are none."""
        if not any(bar.others for bar in self.bars):
            return None
        return next(name for name in TOOLKIT_ORDER if name != self.toolkit)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        return [point.key for bar in self.bars for _, point in bar.values]

    @property
    def errors(self) -> bool:
        """Whether its bars have errors."""
        return any(bar.error is not None for bar in self.bars)

    @property
    def made(self) -> list[str]:
        """How bars differ from the main ladder's: "" first, "tuned", a type; in the order of their first bars."""
        return sorted(dict.fromkeys(bar.how for bar in self.bars), key=bool)

    @property
    def reach(self) -> float:
        """The largest value, at least 1."""
        published = [group.published for group in self.groups if group.published is not None]
        return max([1.0, *published, *(point.value for bar in self.bars for _, point in bar.values)])


def draw(measured: Measurements) -> Drawing:
    """A group of bars per step: the published ratio, the step as measured here, and its twins.

    The article's rungs in other types stand before the others.
    """
    ratios = selection(measured)
    wide, narrow = both(partial(paint, ratios))
    said = title(ratios), caption(ratios), alt(ratios)
    return Drawing(wide, *said, ratios.rows, table(ratios), ratios.stale, narrow)


def selection(measured: Measurements) -> Ratios:
    """The ratios of every step and its twins at one size: SIZE, unless the article has its ratios at another."""
    main = ladders.steps(measured.family)
    steps = [*ladders.apart(measured.family), *main]
    timed = cubes(select(measured.summary, cache=measured.cache))
    article = _published(measured.family)
    sizes_of_article = {row["n"] for row in article}
    wanted = SIZE if SIZE in sizes_of_article or not sizes_of_article else max(sizes_of_article)
    sizes = sorted({int(n) for n in timed["n"]})
    size = wanted if wanted in sizes or not sizes else sizes[-1]
    published = {row["system"]: row for row in article if row["n"] == wanted}
    rows = select(timed, n=size)
    toolkit = measured.toolkit
    groups = []
    for kernel in steps:
        of_article = published.get(kernel.story.published_system or "")
        kernels = [kernel, *(twin for twin in twins(kernel) if (rows["kernel"] == twin.id).any())]
        type_of_its_own = "" if kernel in main else kernel.compute.dtype_in
        bars = tuple(
            Bar(
                level_name(made), how_made(made) or type_of_its_own, toolkit, _values(rows, made.id), _error(rows, made)
            )
            for made in kernels
        )
        groups.append(Group(ladders.label(kernel), of_article["value"] if of_article else None, bars))
    return Ratios(
        types=tuple(dtypes(measured.family)),
        toolkit=toolkit,
        cache=measured.cache,
        gpu=measured.gpu,
        origin=origin(measured),
        size=size,
        published_size=wanted,
        hardware=tuple(sorted({row["hardware"] for row in published.values()})),
        groups=tuple(groups),
    )


def _published(family: str) -> list[dict[str, Any]]:
    """The article's ratios of the steps of a family."""
    systems = {kernel.story.published_system for kernel in ladders.steps(family)}
    article = registry.family(family).article
    return [
        row
        for row in published_rows()
        if row["article"] == article and row["metric"] == "ratio_to_cublas" and row["system"] in systems
    ]


def _values(rows: pd.DataFrame, kernel: str) -> tuple[tuple[str, Point], ...]:
    measured = rows[(rows["kernel"] == kernel) & rows["ratio"].notna()]
    return tuple((row["toolkit"], ratio_point(row)) for _, row in measured.iterrows())


def _error(rows: pd.DataFrame, kernel: registry.Kernel) -> float | None:
    """The error of a scheme of FP64; None of other kernels, and where it was not measured."""
    found = rows.loc[(rows["kernel"] == kernel.id) & rows["err_fro"].notna(), "err_fro"]
    return float(found.iloc[-1]) if kernel.compute.dtype_in == TYPE and len(found) else None


def paint(ratios: Ratios, page: Page = WIDE) -> Figure:
    """Draw it; the narrow figure names a level above its bars."""
    count = sum(len(group.bars) + (group.published is not None) for group in ratios.groups)
    name = page.pick(0, NAME)
    height = count * BAR + len(ratios.groups) * (GAP + name) + 1.2
    figure, axes = plt.subplots(figsize=(page.width, height))
    ticks: list[float] = []
    y = 0.0
    for group in ratios.groups:
        if page.narrow:
            # Names longer than a ratio of 1 stand on its line.
            patch = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
            axes.text(0, y + 0.6 * NAME, f" {group.label}", va="center", color=INK, bbox=patch, zorder=3)
        y += name
        top = y
        if group.published is not None:
            _published_bar(axes, y + BAR / 2, group.published)
            y += BAR
        for bar in group.bars:
            _bar(axes, y + BAR / 2, bar)
            y += BAR
        ticks.append((top + y) / 2)
        y += GAP
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    axes.set_yticks(ticks, ["" if page.narrow else group.label for group in ratios.groups])
    axes.set_ylim(max(y, 0.5), -GAP)
    room = (1.24 if ratios.stale else 1.14) + (page.pick(0.26, 0.45) if ratios.errors else 0)
    axes.set_xlim(0, room * ratios.reach)
    axes.set_xlabel("speed relative to cuBLAS" + ("" if page.narrow else " (1 = equal; higher is better)"))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    despine([axes], "left")
    figure.tight_layout(rect=(0, 0, 1, legend(figure, _legend(ratios), page, 5)))
    return figure


def _published_bar(axes: Axes, y: float, value: float) -> None:
    axes.barh(y, value, BAR, color=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///")
    value_label(axes, value, y, as_published(value))


def _bar(axes: Axes, y: float, bar: Bar) -> None:
    """A measured bar with its interval and value, and the other toolkit's diamonds."""
    colour, hatch = _look(bar.how)
    for toolkit, point in bar.values:
        if toolkit != bar.toolkit:
            if not point.stale:
                axes.plot(point.value, y, "D", color=PAPER, markeredgecolor=INK, markersize=4, zorder=4)
            continue
        axes.barh(
            y,
            point.value,
            BAR,
            color=PAPER if point.stale else colour,
            edgecolor=colour if point.stale else INK,
            linewidth=1.2 if point.stale else 0.6,
            linestyle="--" if point.stale else "-",
            hatch=None if point.stale else hatch,
        )
        if point.has_interval:
            error = [[max(0.0, point.value - point.low)], [max(0.0, point.high - point.value)]]
            axes.errorbar(point.value, y, xerr=error, color=INK, capsize=2, linewidth=1, zorder=5)
        # Right of everything that is drawn at this height.
        ends = [shown.value for _, shown in bar.values] + ([] if math.isnan(point.high) else [point.high])
        text = format_number(point.value) + (" stale" if point.stale else "")
        text += f", error {bar.error:.1e}" if bar.error is not None else ""
        value_label(axes, max(ends), y, text, weight="bold", gap=7)


def _legend(ratios: Ratios) -> list[Artist]:
    handles: list[Artist] = []
    if ratios.published:
        label = f"published, {', '.join(ratios.hardware)}"
        handles.append(Patch(facecolor=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///", label=label))
    for how in ratios.made if ratios.toolkit else ():
        colour, hatch = _look(how)
        label = how or f"measured, {ratios.gpu or 'no GPU'}, {ratios.toolkit}"
        handles.append(Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, hatch=hatch, label=label))
    if toolkit := ratios.other_toolkit:
        handles.append(
            Line2D([], [], marker="D", color=PAPER, markeredgecolor=INK, markersize=4, linestyle="", label=toolkit)
        )
    return handles


def _look(how: str) -> tuple[str, str | None]:
    """Fill and hatch of a measured bar."""
    if not how:
        return FIRST, None
    return (TUNED, "|||") if how == "tuned" else (OTHER_TYPE, "xxx")


def caption(ratios: Ratios) -> str:
    elsewhere = ratios.size != ratios.published_size
    hatched = ""
    if ratios.published:
        hatched = f"Hatched: as published for {ratios.hardware[0]}"
        hatched += f"{f', at {ratios.published_size}' if elsewhere else ''}. "
    diamond = f"; diamonds: built by {ratios.other_toolkit}" if ratios.other_toolkit else ""
    return (
        f"Speed of each level relative to cuBLAS, {listed(ratios.types)}, M = N = K = {ratios.size}, "
        f"{ratios.cache} cache. "
        f"{hatched}{_fills(ratios)}{diamond}. "
        f"{ERRORS if ratios.errors else ''}"
        f"{'Each type is compared with cuBLAS in the same type. ' if len(ratios.types) > 1 else ''}"
        f"{ratios.origin}{f' The size {ratios.published_size} was not measured.' if elsewhere else ''}"
        f"{stale_note(ratios.stale)}"
    )


def _fills(ratios: Ratios) -> str:
    """What the fills of the measured bars mean."""
    solid = (
        f"Solid: measured, built by {ratios.toolkit}, with its 95% interval"
        if ratios.toolkit
        else "Nothing was measured"
    )
    names: Mapping[str, str] = {"": solid, "tuned": "striped: the same source, tuned on this GPU"}
    return "; ".join(names.get(how, f"crossed: in {how}") for how in ratios.made or [""])


def best(ratios: Ratios) -> tuple[Bar, Point] | None:
    """The bar with the highest current value."""
    shown = [(bar, point) for bar in ratios.bars for point in bar.drawn if not point.stale]
    return max(shown, key=lambda one: one[1].value, default=None)


def title(ratios: Ratios) -> str:
    """The finding: what the best level reaches."""
    found = best(ratios)
    if not found:
        return f"Ratio to cuBLAS at {ratios.size}, {listed(ratios.types)}: not measured"
    error = found[0].error
    told = f", with an error of {written(error)}" if error is not None else ""
    return f"{found[0].name} is the fastest level, at {format_number(found[1].value)} of cuBLAS ({ratios.size}){told}"


def alt(ratios: Ratios) -> str:
    found = best(ratios)
    if not found:
        return "Bar chart of speed relative to cuBLAS by level, without data: nothing was measured."
    compared = [
        (group, group.bars[0].drawn[-1].value)
        for group in ratios.groups
        if group.published and group.bars[0].drawn and not group.bars[0].drawn[-1].stale
    ]
    below = sum(value < (group.published or 0.0) for group, value in compared)
    last = f" its last, {compared[-1][0].label}, {_both(*compared[-1])}" if compared else ""
    return finding(
        f"The fastest of {len(ratios.bars)} kernels at {ratios.size}, {found[0].name}, reaches "
        f"{format_number(found[1].value)} of cuBLAS.",
        f"Of the {len(compared)} levels with a published ratio {below} fall short of it here;{last}."
        if compared
        else "",
    )


def _both(group: Group, value: float) -> str:
    return f"published at {as_published(group.published or 0.0)}, reaches {format_number(value)}"


def table(ratios: Ratios) -> list[dict[str, Any]]:
    """A line per bar; the published value is in that of the step itself."""
    return [
        dict(_cells(bar, group.published if place == 0 else None))
        for group in ratios.groups
        for place, bar in enumerate(group.bars)
    ]


def _cells(bar: Bar, published: float | None) -> Iterator[tuple[str, Any]]:
    yield "level", bar.name
    if published is not None:
        yield "published", published
    for toolkit, point in bar.values:
        yield f"measured, {toolkit}", point.value
        if toolkit == bar.toolkit:
            if bar.error is not None:
                yield "error", bar.error
            yield "95% interval", [point.low, point.high] if point.has_interval else None
            yield "stale", point.stale
