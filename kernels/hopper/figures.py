"""The bf16 ladder against cuBLAS."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.figures import ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import Drawing

PAPER = {"hopper": ()}


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
