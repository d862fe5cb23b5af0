"""The bf16 ladder against cuBLAS at three sizes."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.figures import ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import Drawing

PAPER = {"hopper": ()}


def hopper(inputs: Inputs) -> Drawing:
    """A line per rung at 4096, and what comes near cuBLAS at three sizes."""
    return ladder.draw(inputs, "hopper", ceiling="ceilings.wgmma", near=0.95, says=_says)


def _says(current: pd.DataFrame, _gpu: str) -> str:
    """The two ends of the ladder."""
    first, last = current["ratio"].iloc[0], current["ratio"].iloc[-1]
    if last <= first:
        return ""
    names = current.index[0], current.index[-1]
    return f"At 4096, in turn, {names[0]} reaches {format_number(first)} of cuBLAS and {names[1]} {format_number(last)}"
