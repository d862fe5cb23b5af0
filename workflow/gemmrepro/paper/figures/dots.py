"""Figures of experiments whose rows differ by a name: a dot a row on a logarithmic axis, held against one line."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number
from gemmrepro.experiments import Dots
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.measure.rows import select
from gemmrepro.paper.figures.style import (
    FIRST,
    INK,
    PAPER,
    PUBLISHED,
    Drawing,
    empty,
    half_widths,
    origin,
    plain,
    raised,
    stale_note,
)

LINE = 0.235
"""Inches of height a line takes."""


def draw(family: str, dots: Dots, results: Results) -> Drawing:
    """One figure of an experiment."""
    panels = list(dots.panels.items())
    count = len(dots.categories)
    heights = [count * LINE + 0.35] * len(panels)
    figure, grid = plt.subplots(len(panels), 1, figsize=(7.6, sum(heights) + 0.6), sharex=True, squeeze=False)
    drawing = Drawing(figure, dots.title)
    column = results.experiment.column(dots.x)
    said = []
    ends: list[float] = [dots.line]
    for place, (panel, title) in enumerate(panels):
        axes = grid[place][0]
        axes.set_title(title, loc="left")
        at = select(results.rows, **dots.where, **({} if dots.panel == "kernel" else {dots.panel: panel}))
        at = at[at[dots.x].notna() & (at[dots.x] > 0)]
        if dots.panel == "kernel":
            at = at[_of(at, panel, results)]
        if at.empty:
            empty(axes, "not measured")
        labelled = []
        for number, (value, label) in enumerate(dots.categories.items()):
            rows = at[_of(at, value, results)] if dots.category == "kernel" else select(at, **{dots.category: value})
            if rows.empty:
                continue
            row = rows.iloc[0]
            stale = row["status"] == "stale"
            x = float(row[dots.x])
            low, high = (float(row[end]) if end and pd.notna(row[end]) else x for end in (column.low, column.high))
            ends += [low, high]
            axes.errorbar(
                [x],
                [number],
                xerr=half_widths([x - low], [high - x]),
                color=FIRST,
                marker="o",
                markersize=5.5,
                markerfacecolor=PAPER if stale else FIRST,
                markeredgecolor=FIRST,
                capsize=2.5,
                linewidth=1.1,
                zorder=4,
            )
            axes.plot([dots.line, x], [number, number], color=PUBLISHED, linewidth=1.0, zorder=2)
            labelled.append((x, high, number))
            drawing.rows.append(
                row_key(family, results.experiment.name, row, *({dots.panel, dots.category} - {"kernel"}))
            )
            drawing.stale |= stale
            told = "kernel" if dots.category == "kernel" else results.experiment.column(dots.category).meaning
            drawing.table.append({"": title, told: label, dots.x_label: x})
            drawing.table[-1]["stale"] = stale
            said.append(f"{title}, {label}: {format_number(x)}")
        _scale(axes, dots, count)
        for x, high, number in labelled:
            _label(axes, max(x, high, dots.line), number, _written(x))
    _limits(grid, ends)
    grid[-1][0].set_xlabel(dots.x_label)
    sns.despine(figure)
    figure.tight_layout(h_pad=0.8)
    drawing.caption = f"{dots.caption} {origin(results)}{stale_note(drawing.stale)}".strip()
    drawing.alt = f"{dots.x_label}. " + "; ".join(said) + "." if said else "Dots without data."
    return drawing


def _of(rows: pd.DataFrame, kernel: str, results: Results) -> pd.Series:
    """Which of `rows` are about a kernel, by the toolkit that is drawn, or about a library."""
    return (rows["kernel"] == kernel) & rows["toolkit"].isin((results.toolkit, LIBRARY))


def _scale(axes: Axes, dots: Dots, count: int) -> None:
    axes.set_xscale("log")
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_yticks(range(count), list(dots.categories.values()))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.axvline(dots.line, color=INK, linewidth=1.0, zorder=3)
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5), numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _limits(grid: np.ndarray, ends: list[float]) -> None:
    """The same axis for every panel: a decade at least, and room for the labels on the right."""
    low, high = min(ends), max(ends)
    middle, half = (low * high) ** 0.5, max((high / low) ** 0.5, 10**0.5)
    for axes in grid[:, 0]:
        axes.set_xlim(middle / half / 1.3 / (half * half) ** 0.02, middle * half * (half * half) ** 0.12 * 1.3)


def _written(x: float) -> str:
    """A dot's label: no number in exponent form."""
    text = format_number(x)
    if "e" not in text:
        return text
    digits, power = text.split("e")
    return f"{digits} · 10{raised(int(power))}"


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text,
        (x, y),
        (7, -0.5),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
        zorder=5,
    )
