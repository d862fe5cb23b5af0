"""F9, `mma_sync`: the articles' mma.sync kernels against cuBLAS, and all that mma.sync can reach of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number
from gemmrepro.figures import ratio
from gemmrepro.figures.findings.parts import Inputs, legend_above, names_down, pair, pair_handles
from gemmrepro.figures.points import ratio_point
from gemmrepro.figures.style import BAD, INK, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both
from gemmrepro.judge.ceilings import measured_ceiling
from gemmrepro.measure.rows import cubes, select

FAMILIES, CEILING = ("ada", "cute"), "ceilings.mma_f16"


@dataclass(frozen=True)
class Kernel:
    """An article's kernel: published and measured ratio, and the loop of mma.sync over the cuBLAS timed with it."""

    name: str
    published: float
    ratio: float
    limit: float | None
    key: str
    stale: bool


def draw(inputs: Inputs) -> Drawing:
    """A row per kernel."""
    shown = [kernel for family in FAMILIES for kernel in _kernels(inputs, family)]
    wide, narrow = both(lambda page: _paint(shown, page, inputs.gpu))
    caption = (
        f"Speed of the articles' kernels relative to cuBLAS timed in turn, {_caches(inputs)}, at the articles' sizes. "
        "Strokes: the measured rate of a loop of nothing but mma.sync over that cuBLAS. "
        f"{origin(inputs.measured[FAMILIES[0]])}"
    )
    table: list[dict[str, object]] = [
        {"kernel": one.name, "published": one.published, "measured": one.ratio, "mma.sync loop over cuBLAS": one.limit}
        for one in shown
    ]
    keys = [one.key for one in shown]
    return Drawing(wide, _title(shown), caption, _alt(shown), keys, table, any(one.stale for one in shown), narrow)


def _caches(inputs: Inputs) -> str:
    """The state of the cache in which the families were timed: one word, or one for each."""
    caches = {family: inputs.measured[family].cache for family in FAMILIES}
    if len(set(caches.values())) == 1:
        return caches[FAMILIES[0]]
    return " and ".join(f"{family} {cache}" for family, cache in caches.items())


def _kernels(inputs: Inputs, family: str) -> list[Kernel]:
    measured = inputs.measured[family]
    ratios = ratio.selection(measured)
    ceilings = inputs.measured.get("ceilings")
    ceiling = measured_ceiling(ceilings, CEILING) if ceilings is not None and len(ceilings.summary) else None
    rows = cubes(select(measured.summary, cache=measured.cache, n=ratios.size, toolkit=measured.toolkit))
    found = []
    for group in ratios.groups:
        if group.published is None or not group.bars[0].drawn:
            continue
        point = group.bars[0].drawn[-1]
        row = next(
            (row for _, row in rows.iterrows() if row["ratio"] == row["ratio"] and ratio_point(row).key == point.key)
        )
        limit = ceiling.value / (float(row["tflops"]) / point.value) if ceiling else None
        found.append(
            Kernel(
                f"{family} {group.label.removeprefix('cute_')}",
                group.published,
                point.value,
                limit,
                point.key,
                point.stale,
            )
        )
    return found


def _paint(shown: Sequence[Kernel], page: Page, gpu: str) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 0.27 * max(3, len(shown)) + 1.2))
    for place, one in enumerate(shown):
        pair(axes, place, [one.published], one.ratio)
        if one.limit is not None:
            axes.plot([one.limit, one.limit], [place - 0.4, place + 0.4], color=BAD, linewidth=2.2, zorder=2.5)
    names_down(axes, [one.name if not page.narrow else one.name[:20].rstrip() for one in shown])
    axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(0, max([1.05, *(1.04 * one.published for one in shown)]))
    axes.set_xlabel("speed relative to cuBLAS")
    if not shown:
        empty(axes, "not measured")
    despine(figure.axes, "left")
    look = {"linestyle": "", "marker": "|", "markersize": 10.0, "markeredgewidth": 2.2}
    loop = Line2D([], [], color=BAD, label="all that mma.sync can do", **look)  # type: ignore[arg-type]
    figure.tight_layout(rect=(0, 0, 1, legend_above(figure, [*pair_handles("", gpu), loop], int(page.pick(3, 2)))))
    return figure


def _title(shown: Sequence[Kernel]) -> str:
    if not shown:
        return "mma.sync kernels against cuBLAS: not measured"
    limits = [one.limit for one in shown if one.limit is not None]
    best = max(one.ratio for one in shown)
    if limits and max(limits) < 1:
        return f"mma.sync itself stays below cuBLAS; its kernels reach {format_number(best)} at most"
    return f"The articles' mma.sync kernels reach {format_number(best)} of cuBLAS at most"


def _alt(shown: Sequence[Kernel]) -> str:
    if not shown:
        return "Ratios to cuBLAS of the articles' mma.sync kernels, of which nothing was measured."
    below = sum(one.ratio < one.published for one in shown)
    best = max(shown, key=lambda one: one.ratio)
    limits = [one.limit for one in shown if one.limit is not None]
    return finding(
        f"{below} of {len(shown)} mma.sync kernels fall short of their published ratio; the best, {best.name}, reaches "
        f"{format_number(best.ratio)}.",
        f"A loop of nothing but mma.sync reaches {format_number(min(limits))} to {format_number(max(limits))} of that "
        "cuBLAS."
        if limits
        else "",
    )
