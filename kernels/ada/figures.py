"""Kernels of mma.sync against all that it can do, and the error of a sum by where it is kept."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments import Lines, experiment, results
from gemmrepro.figures import declared, ladder
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import Drawing

PAPER = {"mma_sync": (), "accumulation": ()}


def mma_sync(inputs: Inputs) -> Drawing:
    """A line per rung: its ratio, and that of a loop of nothing but mma.sync."""
    return ladder.draw(inputs, "ada", ceiling="ceilings.mma_f16", says=_says)


def _says(current: pd.DataFrame, _gpu: str) -> str:
    """What mma.sync itself reaches, and the article's last kernel."""
    both = current[current["published"].notna()]
    limit, last = current["limit"].dropna(), format_number(both["ratio"].iloc[-1]) if len(both) else ""
    if limit.empty or not last:
        return ""
    reached = f"the article's last kernel reaches {last}"
    if limit.max() < 1:
        return f"mma.sync itself stays below cuBLAS; {reached}"
    return f"A loop of nothing but mma.sync reaches {format_number(limit.iloc[-1])} of cuBLAS; {reached}"


INSIDE, OUTSIDE = "inside mma", "after each mma"


def _sums(errors: Any) -> str:
    """How much more sums err inside the tensor core than outside, at the largest K."""
    last = [errors.loc[law].dropna(subset=[INSIDE, OUTSIDE]).iloc[-1] for law in ("N(0, 1)", "uniform in [0, 1)")]
    factors = [row[INSIDE] / row[OUTSIDE] for row in last]
    ends = " and ".join(format_number(factor, 2) for factor in factors)
    return f"Sums kept inside the tensor core err {ends} times as much as sums kept outside" if min(factors) > 1 else ""


SUMS = Lines(
    name="accumulation",
    title="The error of a dot product by where its sum is kept",
    x="k",
    x_label="K",
    y="rms_u",
    y_label="RMS error in 2⁻²⁴",
    panel="law",
    panels={"normal": "N(0, 1)", "uniform": "uniform in [0, 1)"},
    series={
        "ada.accumulate_inside": INSIDE,
        "cublas.gemm": "cuBLAS",
        "ada.accumulate_ffma": "fp32 FMA",
        "ada.accumulate_outside": OUTSIDE,
        "ada.accumulate_outside4": "after four mma",
        "ada.accumulate_compensated": "compensated",
    },
    says=_sums,
    caption=(
        "Root mean square of an output's error over the sum of its products' magnitudes, in units of fp32's 2⁻²⁴; 2048 "
        "by 2048 outputs, fp16 operands, against float64. After each mma: each mma.sync begins at zero, and fp32 "
        "additions collect its results."
    ),
)


def accumulation(inputs: Inputs) -> Drawing:
    """A panel per kind of operands: the error of a dot product by where its sum is kept."""
    found = inputs.experiment("ada", "accumulation") or results.nothing(experiment("ada", "accumulation"))
    return declared.draw("ada", SUMS, found)
