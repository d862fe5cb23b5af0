"""The figure ``ratio``: a ladder as bars of the speed relative to the baseline, published and measured side by side."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gemmrepro import registry
from gemmrepro.core.names import SIZE, TOOLKIT_ORDER
from gemmrepro.core.text import as_published, format_number, listed
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, row_key, select, toolkit_of
from gemmrepro.paper.figures.style import (
    FIRST,
    INK,
    OTHER_TYPE,
    PAPER,
    PUBLISHED,
    TUNED,
    Drawing,
    origin,
    stale_note,
    value_label,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, how_made, level_name, twins

BAR, GAP = 0.19, 0.14
"""Inches: a bar, and the space between two steps."""


def draw(measured: Measurements) -> Drawing:
    """A group of bars a step: as published, with the article's constants here, and what else was made of its source."""
    family = registry.family(measured.family)
    steps = ladders.steps(measured.family)
    types = dtypes(measured.family)
    toolkit = toolkit_of(measured)
    warm = cubes(select(measured.summary, cache="warm"))
    systems = {kernel.published_system for kernel in steps}
    ratios = [
        row
        for row in published_rows()
        if row["article"] == family.article and row["metric"] == "ratio_to_cublas" and row["system"] in systems
    ]
    # The usual size, unless the article has its ratios at another.
    theirs = {row["n"] for row in ratios}
    wanted = SIZE if SIZE in theirs or not theirs else max(theirs)
    sizes = sorted({int(n) for n in warm["n"]})
    size = wanted if wanted in sizes or not sizes else sizes[-1]
    at = select(warm, n=size)
    published = {row["system"]: row for row in ratios if row["n"] == wanted}
    hardware = sorted({row["hardware"] for row in published.values()})

    # A bar for what is published, one for the step, and one for each twin that was measured.
    groups = []
    for kernel in steps:
        row = published.get(kernel.published_system or "")
        kernels = [kernel, *(twin for twin in twins(kernel) if (at["kernel"] == twin.id).any())]
        groups.append((kernel, row, kernels))
    bars = sum(len(kernels) + (row is not None) for _, row, kernels in groups)
    inches = bars * BAR + len(groups) * GAP
    figure, axes = plt.subplots(figsize=(7.6, inches + 1.2))
    drawing = Drawing(figure, f"Ratio to cuBLAS at {size}, {listed(types)}")
    reach, other_drawn, kinds, y = 1.0, False, {}, 0.0
    ticks: list[float] = []
    for kernel, row, kernels in groups:
        top = y
        entry: dict[str, Any] = {"level": level_name(kernel)}
        if row is not None:
            value = row["value"]
            middle = y + BAR / 2
            axes.barh(middle, value, BAR, color=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///")
            value_label(axes, value, middle, as_published(value))
            entry["published"] = value
            reach = max(reach, value)
            y += BAR
        drawing.table.append(entry)
        for each in kernels:
            how = how_made(each)
            if each is not kernel:
                entry = {"level": level_name(each)}
                drawing.table.append(entry)
            colour, hatch = _look(each, how)
            kinds.setdefault(how, (colour, hatch))
            middle = y + BAR / 2
            y += BAR
            found = at[(at["kernel"] == each.id) & at["ratio"].notna()]
            for _, point in found.iterrows():
                low, high, value = point["ratio_ci_low"], point["ratio_ci_high"], point["ratio"]
                stale = point["status"] == "stale"
                drawing.rows.append(row_key(point))
                reach = max(reach, value)
                if point["toolkit"] != toolkit:
                    if not stale:
                        axes.plot(value, middle, "D", color=PAPER, markeredgecolor=INK, markersize=4, zorder=4)
                        other_drawn = True
                    entry[f"measured, {point['toolkit']}"] = value
                    continue
                drawing.stale |= stale
                axes.barh(
                    middle,
                    value,
                    BAR,
                    color=PAPER if stale else colour,
                    edgecolor=colour if stale else INK,
                    linewidth=1.2 if stale else 0.6,
                    linestyle="--" if stale else "-",
                    hatch=None if stale else hatch,
                )
                if pd.notna(low) and pd.notna(high):
                    error = [[max(0.0, value - low)], [max(0.0, high - value)]]
                    axes.errorbar(value, middle, xerr=error, color=INK, capsize=2, linewidth=1, zorder=5)
                right = max([value, *found["ratio"], *([high] if pd.notna(high) else [])])
                text = format_number(value) + (" stale" if stale else "")
                value_label(axes, right, middle, text, weight="bold", gap=7)
                entry |= {f"measured, {toolkit}": value, "95% interval": [low, high], "stale": bool(stale)}
        ticks.append((top + y) / 2)
        y += GAP
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    axes.set_yticks(ticks, [ladders.label(kernel) for kernel in steps])
    axes.set_ylim(max(y, 0.5), -GAP)
    axes.set_xlim(0, (1.24 if drawing.stale else 1.14) * reach)
    axes.set_xlabel("speed relative to cuBLAS (1 = as fast; higher is better)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    handles: list[Any] = []
    if published:
        label = f"published, {', '.join(hardware)}"
        handles.append(Patch(facecolor=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///", label=label))
    for how, (colour, hatch) in kinds.items() if toolkit else ():
        label = how or f"measured, {measured.gpu or 'no GPU'}, {toolkit}"
        handles.append(Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, hatch=hatch, label=label))
    if other_drawn:
        other = next(name for name in TOOLKIT_ORDER if name != toolkit)
        mark = Line2D([], [], marker="D", color=PAPER, markeredgecolor=INK, markersize=4, linestyle="", label=other)
        handles.append(mark)
    if handles:
        figure.legend(
            handles=handles,
            loc="upper left",
            ncols=len(handles),
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.3,
            columnspacing=1.4,
            handlelength=1.6,
        )
    sns.despine(ax=axes, left=True)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / figure.get_size_inches()[1]))

    shown = [entry for entry in drawing.table if f"measured, {toolkit}" in entry]
    names = {
        **{"": f"Solid: measured, built by {toolkit}, with its 95% interval" if toolkit else "Nothing was measured"},
        "tuned": "dotted: the same source with constants found on this GPU",
    }
    said = [names.get(how, f"crossed: the same source in {how}") for how in kinds] or [names[""]]
    hatched = f"Hatched: as published{f' for {hardware[0]}' if hardware else ''}"
    hatched += f"{f', at {wanted}' if size != wanted else ''}. "
    drawing.caption = (
        f"Speed of each level relative to cuBLAS, {listed(types)}, M = N = K = {size}, warm cache. "
        f"{hatched if published else ''}{'; '.join(said)}"
        f"{'; the diamond is the other toolkit' if other_drawn else ''}. "
        f"{'Each type stands beside cuBLAS in the same type. ' if len(types) > 1 else ''}"
        f"{origin(measured)}{f' The size {wanted} was not measured.' if size != wanted else ''}"
        f"{stale_note(drawing.stale)}"
    )
    drawing.alt = f"Bar chart of speed relative to cuBLAS at {size}. " + (
        "; ".join(
            f"{entry['level']}: "
            + (f"published {format_number(entry['published'])}, " if "published" in entry else "")
            + f"measured {format_number(entry[f'measured, {toolkit}'])}"
            for entry in shown
        )
        + "."
        if shown
        else "No measured values."
    )
    return drawing


def _look(kernel: registry.Kernel, how: str) -> tuple[str, str | None]:
    """Fill and hatch of a measured bar."""
    if not how:
        return FIRST, None
    return (TUNED, "...") if how == "tuned" else (OTHER_TYPE, "xxx")
