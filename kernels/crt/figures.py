"""FP64 from INT8 residues against DGEMM by size and number of moduli, and where it errs no more."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, marks
from gemmrepro.figures.ladder import made_here
from gemmrepro.figures.style import BAD, GOOD, MARKERS, SERIES, Drawing, finding, origin
from gemmrepro.measure.rows import cubes, select
from gemmrepro.registry import kernel

PAPER = {"residues": ()}
SPEEDS = {
    "crt.ping_pong_14": "14 moduli",
    "crt.ping_pong": "15 moduli",
    "crt.ping_pong_16": "16 moduli",
    "crt.winograd": "15, Winograd",
    "crt.shared": "15, shared tiles",
}
ERRORS = {"crt.fused_14": "14 moduli", "crt.fused": "15 moduli", "crt.fused_16": "16 moduli"}
"""Kernels by which the error of a number of moduli was measured; the others compute the same bits."""


def residues(inputs: Inputs) -> Drawing:
    """Ratios by size, and for which operands the largest error is no larger than DGEMM's."""
    measured, errors = inputs.measured["crt"], _errors(inputs)
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit))
    rows = rows[rows["ratio"].notna()].sort_values("n")
    points = [
        {"panel": "speed", "series": SPEEDS[one["kernel"]], "x": one["n"], "y": one["ratio"], **one}
        for one in made_here([kernel(name) for name in SPEEDS], rows)
    ]
    ticked = (
        "The ticks say for which operands the largest error of any sampled element is no larger than DGEMM's at the "
        "same size: N(0, 1), and exponents that spread with φ."
    )
    told = [] if errors.empty else [ticked]
    caption = " ".join(["Speed relative to cuBLAS DGEMM timed in turn, warm.", *told, origin(measured)])
    table: list[dict[str, Any]] = [
        {"scheme": one["series"], "size": one["n"], "ratio": one["ratio"], "low": one["low"], "high": one["high"]}
        for one in points
    ]
    table += [
        {"scheme": name, "operands": law, "largest error over DGEMM's": errors.loc[name, law]}
        for name in errors.index
        for law in errors.columns
        if pd.notna(errors.loc[name, law])
    ]
    frame = marks(points)
    looks = {name: Look(name, SERIES[i], MARKERS[i], size=5, dash="-") for i, name in enumerate(SPEEDS.values())}
    panels = {"speed": Panel("", "speed relative to DGEMM", line=1.0)}
    if not errors.empty:
        panels["errors"] = Panel("no worse than DGEMM?", "")

    def ticks(axes: Axes, key: str) -> None:
        if key == "errors":
            _yes_or_no(axes, errors)

    paint = lambda page: curves(frame, looks, panels, page, x_label="M = N = K", finish=ticks)  # noqa: E731
    title, alt = _words(frame, errors)
    keys, stale = [one["key"] for one in points], any(one["stale"] for one in points)
    return Drawing(title, caption, alt, table, paint, keys, stale)


def _errors(inputs: Inputs) -> pd.DataFrame:
    """The largest error over DGEMM's at the largest size, by moduli and operands."""
    results = inputs.experiment("crt", "accuracy")
    if results is None:
        return pd.DataFrame()
    rows = select(results.rows, status="current")
    rows = rows[rows["n"] == rows["n"].max()]
    base = select(rows, kernel="cublas.gemm").set_index("law")["max_u"].astype(float)
    found = {}
    for name, label in ERRORS.items():
        own = select(rows, kernel=name, toolkit=results.toolkit).set_index("law")["max_u"].astype(float)
        if len(over := (own / base[base > 0]).reindex(own.index).dropna()):
            found[label] = over
    return pd.DataFrame(found).T


def _yes_or_no(axes: Axes, errors: pd.DataFrame) -> None:
    axes.clear()
    axes.set_title("no worse than DGEMM?")
    axes.grid(False)
    for y, name in enumerate(errors.index):
        for x, law in enumerate(errors.columns):
            fine = errors.loc[name, law] <= 1
            look: dict[str, Any] = {"color": GOOD, "fontweight": "bold"} if fine else {"color": BAD}
            axes.text(x, y, "yes" if fine else "no", ha="center", va="center", **look)
    laws = [law.replace("phi ", "").replace("normal", "N(0,1)") for law in errors]
    axes.set_xlabel("operands: N(0, 1), or exponents by φ")
    axes.set_xticks(range(len(laws)), laws)
    axes.set_yticks(range(len(errors.index)), list(errors.index))
    axes.set(xlim=(-0.6, len(errors.columns) - 0.4), ylim=(len(errors.index) - 0.4, -0.6))
    sns.despine(ax=axes, left=True, bottom=True)


def _words(frame: pd.DataFrame, errors: pd.DataFrame) -> tuple[str, str]:
    if frame.empty:
        alt = "Speed of FP64 from residues relative to DGEMM by size, of which nothing was measured."
        return "FP64 from residues against DGEMM: not measured", alt
    best, last = frame.loc[frame["y"].idxmax()], frame.groupby("series", sort=False).last()
    title = f"In turn INT8 residues multiply FP64 up to {format_number(best['y'])} times as fast as DGEMM "
    ends = listed([f"{format_number(y)} ({name})" for name, y in last["y"].items()])
    fine = [f"{name} for {(errors.loc[name] <= 1).sum()} of {errors.loc[name].count()}" for name in errors.index]
    alt = finding(
        f"At {last['x'].max():.0f} the speed relative to DGEMM is {ends}.",
        f"The largest error is no larger than DGEMM's with {listed(fine)} kinds of operands." if fine else "",
    )
    return f"{title}({best['series']}, {best['x']:.0f})", alt
