"""The bf16 ladder against cuBLAS."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.figures import ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, empty, finished, percent
from gemmrepro.figures.style import INK, SERIES, Drawing, Page
from gemmrepro.registry import ladders

PAPER = {"hopper": ()}

GOOD = 0.95
"""The ratio to cuBLAS from which shapes are counted."""


def hopper(inputs: Inputs) -> Drawing:
    """A line per rung at 4096, with what wgmma alone reaches."""
    return ladder.draw(inputs, "hopper", ceiling="ceilings.wgmma", says=_says)


def _says(current: pd.DataFrame, _gpu: str) -> str:
    """Which step gains most, and where the ladder ends."""
    gains, best = current["ratio"].diff(), current["ratio"].idxmax()
    top = current["ratio"].max()
    end = (
        f"{best} reaches {format_number(top)} of cuBLAS" if top >= 1 else f"no rung reaches cuBLAS ({best}: {top:.3g})"
    )
    return f"{gains.idxmax()} is the largest step; {end}" if gains.max() > 0 else ""


def shapes(inputs: Inputs) -> Drawing:
    """The cumulative share of shapes by the speed of the last rungs over cuBLAS."""
    found = inputs.experiment("hopper", "shapes")
    rows = found.rows[found.rows["toolkit"] == found.toolkit] if found else pd.DataFrame(columns=["kernel", "times"])
    rows = rows.assign(rung=[ladders.label(registry.kernel(name)) for name in rows["kernel"]])
    table = []
    for (rung, kind), of in pd.concat([rows.assign(kind="all"), rows]).groupby(["rung", "kind"], sort=False):
        ratios = of["times"].astype(float)
        cells = {"shapes": len(of), "geometric mean": math.exp(np.log(ratios).mean()), "worst": float(ratios.min())}
        table.append({"rung": rung, "kind": kind, **cells, f"share from {GOOD} on": float((ratios >= GOOD).mean())})
    every = {line["rung"]: line for line in table if line["kind"] == "all"}
    means = [f"{rung} {line['geometric mean']:.3g}" for rung, line in every.items()]
    title = f"Geometric mean over cuBLAS: {', '.join(means)}" if every else "Shapes outside the tuning set"
    caption = (
        "Cumulative share of shapes by speed over cuBLAS, in turn, warm: random shapes with sides of about 64 to 16384 "
        "(odd multiples of 8 in every second one), shapes of language models, and extreme ones. Curves to the right "
        "are faster."
    )
    alt = (
        f"Two cumulative curves of shapes by ratio; {title}."
        if every
        else "A figure of shapes without data: nothing was measured."
    )
    return Drawing(title, caption, alt, table, lambda page: _paint_shapes(rows, page), shown=found)


def _paint_shapes(rows: pd.DataFrame, page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(min(page.width, 6.4), 2.8))
    if rows.empty:
        empty(axes)
    looks = [Look(str(rung), SERIES[place], dash="-", marker="") for place, rung in enumerate(rows["rung"].unique())]
    for look in looks:
        sns.ecdfplot(x=rows.loc[rows["rung"] == look.label, "times"], color=look.colour, ax=axes, linewidth=1.8)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set(xlabel="speed over cuBLAS", ylabel="share of shapes")
    percent(axes, "y")
    return finished(figure, page, [look.handle(True) for look in looks])
