"""Kernels of mma.sync against all that it can do."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.figures import ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import Drawing

PAPER = {"mma_sync": ()}


def mma_sync(inputs: Inputs) -> Drawing:
    """A line per rung: its ratio, and that of a loop of nothing but mma.sync."""
    return ladder.draw(inputs, "ada", ceiling="ceilings.mma_f16", says=_says)


def _says(current: pd.DataFrame, _gpu: str) -> str:
    """What mma.sync itself reaches, and the article's last kernel."""
    both = current[current["published"].notna()]
    if both.empty or pd.isna(both["limit"].iloc[-1]):
        return ""
    limit, ratio = both[["limit", "ratio"]].iloc[-1]
    reached = f"the article's last kernel reaches {format_number(ratio)}"
    if current["limit"].max() < 1:
        return f"mma.sync itself stays below cuBLAS; {reached}"
    return f"A loop of nothing but mma.sync reaches {format_number(limit)} of cuBLAS; {reached}"
