"""The figure ``sizes``: speed relative to cuBLAS against size, a panel a type, the published curve among the measured.

An article may print throughputs and no ratio; its ratio is then the quotient of two rows, as the claims take it.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from gemmrepro.core.text import format_number, listed
from gemmrepro.judge import claims
from gemmrepro.judge.claims import Claim
from gemmrepro.measure.rows import Measurements, cubes, row_key, select, toolkit_of
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    PUBLISHED,
    SERIES,
    TUNED,
    Drawing,
    empty,
    half_widths,
    origin,
    plain,
    stale_note,
)
from gemmrepro.paper.figures.throughput import fastest_tuned
from gemmrepro.registry import Kernel, ladders

COLUMNS = 2


def published_ratios(family: str) -> dict[str, list[Claim]]:
    """The claims of a family on ratios to its baseline that carry over to other GPUs, by kernel, by size."""
    found: dict[str, list[Claim]] = {}
    for claim in claims.load((family,)):
        if claim.compute["metric"] == "ratio" and claim.published and claim.compute.get("n"):
            found.setdefault(claim.compute["kernel"], []).append(claim)
    return {kernel: sorted(each, key=lambda claim: claim.compute["n"]) for kernel, each in found.items()}


def _looks(family: str) -> dict[str, tuple[str, str, str]]:
    """Legend, colour and marker of a rung, the same in every panel."""
    colours = [SERIES[place] for place in (0, 1, 3, 5, 6)]  # told apart best; TUNED is another
    titles = {kernel.rung: kernel.title.split(",")[0] for kernel in reversed(ladders.compared(family))}
    return {
        rung: (f"{rung} {titles[rung]}", colours[place % len(colours)], MARKERS[place % len(MARKERS)])
        for place, rung in enumerate(dict.fromkeys(kernel.rung for kernel in ladders.compared(family)))
    }


def _lines(measured: Measurements, dtype: str, toolkit: str) -> list[tuple[Kernel, str, str, str]]:
    """Kernel, legend, colour and marker of a panel's lines: a kernel a source file, and the fastest of the tuned."""
    looks = _looks(measured.family)
    lines = [(kernel, *looks[kernel.rung]) for kernel in ladders.steps(measured.family, dtype)]
    if tuned := fastest_tuned(measured, dtype, toolkit):
        lines.append((tuned, "the fastest with other constants", TUNED, "h"))
    return lines


def draw(measured: Measurements) -> Drawing:
    """Ratio to the baseline against size, warm; above 1 the kernel is faster."""
    toolkit = toolkit_of(measured) or ""
    rows = cubes(select(measured.summary, cache="warm"))
    rows = rows[rows["ratio"].notna()]
    published = published_ratios(measured.family)
    types = ladders.dtypes(measured.family) or ["fp32"]
    types = [dtype for dtype in types if (rows["dtype"] == dtype).any()] or types[:1]
    columns = min(COLUMNS, len(types))
    down = math.ceil(len(types) / columns)
    figure, panels = plt.subplots(down, columns, figsize=(7.6, 2.4 * down + 0.9), squeeze=False)
    drawing = Drawing(figure, f"Ratio to cuBLAS against size, {listed(types)}")
    hardware: set[str] = set()
    best: list[str] = []
    legend: dict[str, Line2D] = {}
    for axes, dtype in zip(panels.flat, types, strict=False):
        drawn = False
        ticks = {int(n) for n in select(rows, dtype=dtype)["n"]}
        for kernel, label, colour, marker in _lines(measured, dtype, toolkit):
            if of_article := published.get(kernel.id):
                sizes = [claim.compute["n"] for claim in of_article]
                ticks |= set(sizes)
                axes.plot(
                    *(sizes, [claim.value for claim in of_article]),
                    **{"color": PUBLISHED, "linestyle": (0, (4, 2)), "linewidth": 1.6, "marker": "o", "zorder": 2},
                    **{"markerfacecolor": PAPER, "markersize": 4.5},
                )
                hardware |= {row["hardware"] for claim in of_article for row in claim.published}
                said = f"{kernel.rung} as published"
                legend[said] = Line2D(
                    *([], []),
                    **{"color": PUBLISHED, "linestyle": (0, (4, 2)), "marker": "o", "markerfacecolor": PAPER},
                    **{"markersize": 4.5, "label": said},
                )
                for claim in of_article:
                    cells = {"level": ladders.level_name(kernel), "type": dtype, "size": claim.compute["n"]}
                    drawing.table.append({**cells, "published": round(claim.value or 0.0, 4)})
            found = select(rows, kernel=kernel.id, toolkit=toolkit, dtype=dtype).sort_values("n")
            if found.empty:
                continue
            drawn = True
            dash = (0, (5, 2)) if colour == TUNED else "-"
            drawing.stale |= _line(axes, found, colour, marker, dash)
            legend[label] = Line2D([], [], color=colour, marker=marker, linestyle=dash, label=label, markersize=5)
            for _, row in found.iterrows():
                drawing.rows.append(row_key(row))
                cells = {"level": ladders.level_name(kernel), "type": dtype, "size": int(row["n"])}
                drawing.table.append({**cells, "measured": row["ratio"], "stale": row["status"] == "stale"})
            last = found.iloc[-1]
            best.append(f"{dtype} {kernel.name}: {format_number(last['ratio'])} at {int(last['n'])}")
        _finish(axes, dtype, sorted(ticks), drawn)
    for axes in panels.flat[len(types) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("speed relative to cuBLAS")
    sns.despine(figure)
    lines = math.ceil(len(legend) / 3)
    if legend:
        handles = [legend[label] for label in sorted(legend)]
        figure.legend(handles=handles, loc="upper left", ncols=3, borderaxespad=0.3, columnspacing=1.4)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.2 * lines / figure.get_size_inches()[1]), w_pad=1.6, h_pad=1.4)
    drawing.caption = (
        "Speed relative to cuBLAS in the same type and layout against the size of a square problem, warm cache; above "
        "the line the kernel is faster. "
        + (
            f"Hollow marks on a dashed grey line: as published for {listed(sorted(hardware))}, where the article gives "
            "both throughputs or their ratio. "
            if hardware
            else ""
        )
        + "Bars are 95% intervals. Scales differ between panels. "
        f"{f'Built by {toolkit}. ' if toolkit else ''}{origin(measured)}{stale_note(drawing.stale)}"
    )
    said = f"At the largest size: {'; '.join(best)}." if best else "No measured values."
    drawing.alt = f"Line chart of speed relative to cuBLAS against size. {said}"
    return drawing


def _line(axes: Axes, rows: pd.DataFrame, colour: str, marker: str, dash: Any) -> bool:
    """Draw one line with its marks and intervals; whether any of it is stale."""
    x, y = rows["n"].astype(float), rows["ratio"]
    axes.plot(x, y, color=colour, linewidth=1.5, linestyle=dash, zorder=3)
    error = half_widths(y - rows["ratio_ci_low"], rows["ratio_ci_high"] - y)
    axes.errorbar(x, y, yerr=error, fmt="none", ecolor=colour, capsize=2.5, linewidth=1, zorder=3)
    stale = (rows["status"] == "stale").to_numpy(dtype=bool)
    for mask, face in ((~stale, colour), (stale, PAPER)):
        if np.any(mask):
            axes.plot(x[mask], y[mask], marker, color=face, markeredgecolor=colour, markersize=5.5, zorder=4)
    return bool(stale.any())


def _finish(axes: Axes, dtype: str, sizes: list[int], drawn: bool) -> None:
    axes.set_title(dtype, loc="left")
    axes.set_xscale("log", base=2)
    axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1.5)
    if not drawn:
        empty(axes, "not measured")
    axes.set_xticks(sizes, [str(n) for n in sizes], rotation=30 if len(sizes) > 5 else 0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("M = N = K")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
