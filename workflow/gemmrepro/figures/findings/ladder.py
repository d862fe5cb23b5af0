"""F5, `ladder`: the SGEMM ladder as ratios to cuBLAS, published, measured, tuned, and past the article."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import as_published, format_number
from gemmrepro.figures import ratio
from gemmrepro.figures.findings.parts import Inputs, column, legend_above, names_down, pair, pair_handles, short
from gemmrepro.figures.ratio import Bar, Group, Ratios
from gemmrepro.figures.style import INK, LAST, PUBLISHED, TUNED, Drawing, despine, empty, finding
from gemmrepro.figures.widths import Page, both

FAMILY = "ladder"


def draw(inputs: Inputs) -> Drawing:
    """A row per level."""
    ratios = ratio.selection(inputs.measured[FAMILY])
    wide, narrow = both(lambda page: _paint(ratios, page, inputs.gpu))
    caption = (
        f"Speed relative to cuBLAS timed in turn with the level, fp32, {ratios.size}, warm. Hollow: as published for "
        f"{', '.join(ratios.hardware) or 'no GPU'}; triangles: the same source with constants tuned on {inputs.gpu}; "
        f"orange: levels past the article. {ratios.origin}"
    )
    return Drawing(
        wide, _title(ratios), caption, _alt(ratios, inputs.gpu), ratios.rows, ratio.table(ratios), ratios.stale, narrow
    )


def _value(bar: Bar) -> float | None:
    current = [point.value for point in bar.drawn if not point.stale]
    return current[-1] if current else None


def _tuned(group: Group) -> float | None:
    values = [value for bar in group.bars if bar.how == "tuned" and (value := _value(bar)) is not None]
    return max(values, default=None)


def _paint(ratios: Ratios, page: Page, gpu: str) -> Figure:
    groups = ratios.groups
    figure, axes = plt.subplots(figsize=(page.width, 0.245 * len(groups) + 1.15))
    for place, group in enumerate(groups):
        own, tuned = _value(group.bars[0]), _tuned(group)
        there = [] if group.published is None else [group.published]
        pair(axes, place, there, own, *(() if there else (LAST,)))
        if tuned is not None:
            axes.plot(tuned, place, "^", color=TUNED, markersize=6, zorder=3.5)
    names_down(axes, [group.label for group in groups])
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(-0.03, 1.08 * ratios.reach)
    axes.set_xlabel("speed relative to cuBLAS")
    if not any(_value(bar) for bar in ratios.bars):
        empty(axes, "not measured")
    despine(figure.axes, "left")
    handles = [
        *pair_handles(", ".join(ratios.hardware).removeprefix("NVIDIA "), gpu),
        Line2D([], [], linestyle="", marker="^", color=TUNED, label="tuned here"),
        Line2D([], [], linestyle="", marker="o", color=LAST, label="past the article"),
    ]
    figure.tight_layout(rect=(0, 0, page.pick(0.85, 0.82), legend_above(figure, handles, int(page.pick(4, 2)))))
    printed = {
        place: as_published(group.published) for place, group in enumerate(groups) if group.published is not None
    }
    if not page.narrow:
        column(axes, 1.09, "print", printed, page, PUBLISHED)
    column(axes, page.pick(1.21, 1.36), "here", {i: short(_value(g.bars[0])) for i, g in enumerate(groups)}, page)
    return figure


def _last(ratios: Ratios) -> tuple[Group, float] | None:
    """The last level with both a published and a measured ratio."""
    found = [(group, value) for group in ratios.groups if group.published and (value := _value(group.bars[0]))]
    return found[-1] if found else None


def _title(ratios: Ratios) -> str:
    last, best = _last(ratios), ratio.best(ratios)
    if not last or not best:
        return "The SGEMM ladder: not measured"
    group, value = last
    verb = "falls to" if value < 0.98 * (group.published or 0) else "reaches"
    past = f"; the ladder goes on to {format_number(best[1].value)}" if best[0] not in group.bars else ""
    return f"{as_published(group.published or 0)} of cuBLAS {verb} {format_number(value)}{past}"


def _alt(ratios: Ratios, gpu: str) -> str:
    last, best = _last(ratios), ratio.best(ratios)
    if not last or not best:
        return "Ratios to cuBLAS by level of the SGEMM ladder, without data: nothing was measured."
    group, value = last
    tuned = _tuned(group)
    return finding(
        f"{group.label}, published at {as_published(group.published or 0)} of cuBLAS, reaches {format_number(value)} "
        f"on {gpu}{f' and {format_number(tuned)} when tuned' if tuned else ''}.",
        f"The fastest level, {best[0].name}, reaches {format_number(best[1].value)}.",
    )
