"""F4, `row`: one row's life, from its samples by way of its rounds to the interval that the tables give."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number
from gemmrepro.figures.findings.parts import Inputs, legend_above
from gemmrepro.figures.style import FIRST, INK, LAST, PUBLISHED, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both
from gemmrepro.measure.rows import cubes, row_key, select
from gemmrepro.registry import ladders

FAMILY, SIZE = "ladder", 4096


@dataclass(frozen=True)
class Life:
    """A row of the summary, what its kernel is called, and its samples by round, in milliseconds."""

    name: str
    row: pd.Series
    rounds: tuple[pd.DataFrame, ...]

    @property
    def count(self) -> int:
        return sum(len(samples) for samples in self.rounds)


def draw(inputs: Inputs) -> Drawing:
    """Three panels: times, ratios of neighbours, and what the tables give."""
    measured, life = inputs.measured.get(FAMILY), read(inputs)
    wide, narrow = both(lambda page: _paint(life, page))
    if life is None or measured is None:
        alt = "Times and ratios of the samples of one row, of which nothing was measured."
        return Drawing(wide, "One row's life: not measured", "No samples are known.", alt, [], [], False, narrow)
    row = life.row
    value, low, high = (format_number(float(row[end])) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    caption = (
        f"{life.name} at {SIZE}, warm. First the times of kernel and cuBLAS, which alternate; strokes are the rounds' "
        "medians. Then cuBLAS's time over that of the kernel beside it. Last what tables give: the median of the "
        "rounds' medians, in the hull of a Student t interval over rounds and of the samples' order statistics. "
        f"{origin(measured)}"
    )
    alt = finding(
        f"{life.count} samples in {len(life.rounds)} rounds become one row: ratio {value}, 95% interval {low} to "
        f"{high}.",
        f"Its rounds' medians are {', '.join(format_number(float(_ratios(each).median())) for each in life.rounds)}.",
    )
    title = f"{life.count} samples in {len(life.rounds)} rounds make one row: {value} [{low}, {high}]"
    table: list[dict[str, object]] = [
        {
            "round": number,
            "kernel ms": float(sample["time_us"]) / 1e3,
            "cuBLAS ms": float(sample["baseline_us"]) / 1e3,
            "ratio": float(sample["baseline_us"] / sample["time_us"]),
        }
        for number, each in enumerate(life.rounds, start=1)
        for _, sample in each.iterrows()
    ]
    return Drawing(wide, title, caption, alt, [row_key(row)], table, row["status"] == "stale", narrow)


def read(inputs: Inputs) -> Life | None:
    """The article's last level at SIZE, if its samples are known."""
    measured = inputs.measured.get(FAMILY)
    if measured is None:
        return None
    levels = [kernel for kernel in ladders.steps(measured.family) if kernel.story.published_system]
    toolkit = measured.toolkit
    for kernel in reversed(levels):
        cells = {"kernel": kernel.id, "n": SIZE, "cache": "warm", "toolkit": toolkit}
        rows = cubes(select(measured.summary, **cells))
        rows = rows[rows["ratio"].notna()]
        samples = cubes(select(measured.samples(), **cells)) if len(rows) else pd.DataFrame()
        if len(samples):
            rounds = tuple(each.sort_values("index") for _, each in samples.groupby("round"))
            return Life(ladders.label(kernel), rows.iloc[0], rounds)
    return None


def _ratios(samples: pd.DataFrame) -> pd.Series:
    return samples["baseline_us"] / samples["time_us"]


def _paint(life: Life | None, page: Page) -> Figure:
    if page.narrow:
        figure, grid = plt.subplots(3, 1, figsize=(page.width, 5.9), squeeze=False, height_ratios=(1.25, 1.1, 1))
    else:
        figure, grid = plt.subplots(1, 3, figsize=(page.width, 2.9), squeeze=False, width_ratios=(1.35, 1.2, 1))
    times, quotients, result = grid.flat
    times.set_title("samples, ms", loc="left")
    quotients.set_title("cuBLAS over kernel", loc="left")
    result.set_title("the row's ratio", loc="left")
    if life is None:
        for axes in grid.flat:
            empty(axes, "not measured")
        return figure
    for column, colour, marker in (("time_us", FIRST, "o"), ("baseline_us", INK, "s")):
        _samples(times, [each[column] / 1e3 for each in life.rounds], colour, marker)
    _samples(quotients, [_ratios(each) for each in life.rounds], PUBLISHED, "o")
    _result(result, life)
    times.set_ylim(0, 1.04 * max(float(each["time_us"].max()) for each in life.rounds) / 1e3)
    for axes in (times, quotients):
        axes.set_xticks(range(len(life.rounds)), [str(number + 1) for number in range(len(life.rounds))])
        axes.set_xlabel("round")
        axes.grid(axis="x", visible=False)
    despine(figure.axes)
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=4, color=FIRST, label="kernel"),
        Line2D([], [], linestyle="", marker="s", markersize=4, color=INK, label="cuBLAS"),
        Line2D([], [], color=LAST, linewidth=1.4, label="median of a round"),
    ]
    figure.tight_layout(rect=(0, 0, 1, legend_above(figure, handles, 3)), w_pad=1.5)
    return figure


def _samples(axes: Axes, rounds: list[pd.Series], colour: str, marker: str) -> None:
    """The samples of each round side by side, and each round's median as a stroke."""
    for place, values in enumerate(rounds):
        x = place + np.linspace(-0.32, 0.32, len(values))
        axes.plot(x, values, marker, color=colour, markersize=2.6, zorder=2)
        axes.plot([place - 0.4, place + 0.4], [values.median()] * 2, color=LAST, linewidth=1.4, zorder=3)


def _result(axes: Axes, life: Life) -> None:
    """The medians of the rounds, and the row's value with its interval."""
    medians = [float(_ratios(each).median()) for each in life.rounds]
    value, low, high = (float(life.row[end]) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    axes.plot([0] * len(medians), medians, "_", color=LAST, markersize=14, markeredgewidth=2, zorder=3)
    axes.plot([1, 1], [low, high], color=FIRST, linewidth=2.2, zorder=2)
    axes.plot(1, value, "o", color=FIRST, markersize=7, zorder=3)
    for end, place in ((value, "center"), (low, "top"), (high, "bottom")):
        text = format_number(end)
        axes.annotate(text, (1, end), (7, 0), textcoords="offset points", va=place, color=FIRST)
    axes.set_xticks([0, 1], ["rounds", "row"])
    axes.set_xlim(-0.5, 2.1)
    margin = 0.25 * (high - low) or 0.01
    axes.set_ylim(min(low, *medians) - margin, max(high, *medians) + margin)
    axes.grid(axis="x", visible=False)
