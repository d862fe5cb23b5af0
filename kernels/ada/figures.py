"""Kernels of mma.sync against all that it can do."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.figures import ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import Drawing

PAPER = {"mma_sync": ()}

NEAR = 0.05
"""So little beside 1 is about as fast."""


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
    beside = f"is about as fast as cuBLAS ({format_number(limit)})"
    beside = beside if abs(limit - 1) < NEAR else f"runs at {format_number(limit)} of cuBLAS"
    return f"A loop of nothing but mma.sync {beside}; {reached}"
