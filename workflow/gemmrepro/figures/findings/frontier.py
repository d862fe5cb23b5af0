"""F13, `fp64_frontier`: schemes of FP64 multiplication by speed and error, near and past DGEMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.style import (
    BAD,
    FIRST,
    GOOD,
    INK,
    SERIES,
    Drawing,
    despine,
    empty,
    finding,
    origin,
    plain,
    written,
)
from gemmrepro.figures.widths import Page, both
from gemmrepro.measure.rows import select

FAMILY, EXPERIMENT, DGEMM = "ozaki", "products", "cublas.gemm"
SIZES = (16384, 8192, 4096)
MODULI = ("crt.fused", "crt.ping_pong", "crt.winograd")
OTHERS = {
    "cublas.gemm_emulated": ("cuBLAS, emulated", SERIES[3], "s"),
    "ozaki.diagonal_bf16_d9": ("d = 9, per diagonal", BAD, "D"),
}
_SLICES = "^D"
"""Markers of what multiplies bf16 slices."""


@dataclass(frozen=True)
class Scheme:
    """A scheme: its kernel, label, look, speed relative to DGEMM and Frobenius error."""

    kernel: str
    label: str
    colour: str
    marker: str
    ratio: float
    error: float


def draw(inputs: Inputs) -> Drawing:
    """One panel, at the largest size that has DGEMM."""
    size, schemes = _schemes(inputs)
    results = inputs.results.get(FAMILY, {}).get(EXPERIMENT)
    wide, narrow = both(lambda page: _paint(schemes, page))
    caption = (
        f"Frobenius error at sampled outputs against the speed of the whole product relative to cuBLAS DGEMM, N(0, 1), "
        f"{size}. Shaded: faster than DGEMM and no less accurate. Of each number of INT8 moduli the fastest kernel; "
        "bf16 slices by their cut-off d. Few launches each, not interleaved. "
        f"{origin(results) if results else 'Nothing was measured.'}"
    )
    table: list[dict[str, object]] = [
        {"scheme": one.label, "kernel": one.kernel, "speed over DGEMM": one.ratio, "Frobenius error": one.error}
        for one in schemes
    ]
    return Drawing(wide, _title(schemes), caption, _alt(schemes, size), [], table, False, narrow)


def _schemes(inputs: Inputs) -> tuple[int, list[Scheme]]:
    """The schemes at the first of SIZES that has DGEMM, which comes first."""
    results = inputs.results.get(FAMILY, {}).get(EXPERIMENT)
    if results is None:
        return SIZES[0], []
    for size in SIZES:
        rows = select(results.rows, n=size, law="normal", status="current")
        rows = rows[rows["ratio"].notna() & rows["err_fro"].notna()].drop_duplicates("kernel").set_index("kernel")
        if DGEMM in rows.index:
            return size, list(_of(rows))
    return SIZES[0], []


def _of(rows: pd.DataFrame) -> list[Scheme]:
    base = float(rows.loc[DGEMM, "ratio"])

    def scheme(kernel: str, label: str, colour: str, marker: str) -> Scheme:
        row = rows.loc[kernel]
        return Scheme(kernel, label, colour, marker, float(row["ratio"]) / base, float(row["err_fro"]))

    found = [scheme(DGEMM, "cuBLAS DGEMM", INK, "o")]
    for d in range(9, 4, -1):
        if (kernel := f"ozaki.fused_bf16_d{d}") in rows.index:
            found.append(scheme(kernel, f"d = {d}", BAD, "^"))
    for count in (14, 15, 16):
        names = [name + ("" if count == 15 else f"_{count}") for name in MODULI]
        if known := [name for name in names if name in rows.index]:
            found.append(scheme(max(known, key=lambda name: rows.loc[name, "ratio"]), f"{count} moduli", GOOD, "v"))
    found += [scheme(kernel, *look) for kernel, look in OTHERS.items() if kernel in rows.index]
    return found


def _paint(schemes: list[Scheme], page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, page.pick(3.7, 3.6)))
    if not schemes:
        empty(axes, "not measured")
        return figure
    axes.set(xscale="log", yscale="log")
    slices = [one for one in schemes if one.marker == "^"]
    axes.plot([one.ratio for one in slices], [one.error for one in slices], color=BAD, linewidth=1.2, zorder=2)
    for one in schemes:
        axes.plot(one.ratio, one.error, one.marker, color=one.colour, markersize=7, zorder=4)
    low = min(one.ratio for one in schemes) * page.pick(0.8, 0.65)
    high = max(one.ratio for one in schemes) * page.pick(1.5, 2.3)
    bottom, top = min(one.error for one in schemes) / 4, max(one.error for one in schemes) * 5
    axes.set(xlim=(low, high), ylim=(bottom, top))
    axes.fill_between([1, high], bottom, schemes[0].error, color=FIRST, alpha=0.12, linewidth=0, zorder=0)
    for one in schemes:
        (x, y), side = _aside(one)
        axes.annotate(
            one.label,
            (one.ratio, one.error),
            (x, y),
            textcoords="offset points",
            ha=side,
            va="center",
            color=one.colour,
        )
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2]))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlabel("speed relative to DGEMM")
    axes.set_ylabel("Frobenius error")
    despine(figure.axes)
    figure.tight_layout()
    return figure


def _aside(one: Scheme) -> tuple[tuple[float, float], Literal["left", "center", "right"]]:
    """Where a scheme's label is, in points from its mark, and which side of it is there."""
    if one.marker in "sD":
        return (0, -13), "center"
    if one.label == "d = 9":
        return (3, 12), "right"
    # Below the line that joins the slices.
    return (8, {"o": 6, "^": -4}.get(one.marker, 0)), "left"


def _winners(schemes: list[Scheme]) -> list[Scheme]:
    """Those that are faster than DGEMM and no less accurate, the fastest first."""
    if not schemes:
        return []
    base = schemes[0]
    better = [one for one in schemes[1:] if one.ratio > 1 and one.error <= base.error]
    return sorted(better, key=lambda one: -one.ratio)


def _title(schemes: list[Scheme]) -> str:
    if not schemes:
        return "FP64 schemes by speed and error: not measured"
    if not (winners := _winners(schemes)):
        return "No scheme beats DGEMM in speed without losing accuracy"
    times = f"{winners[0].label} are {format_number(winners[0].ratio)} times as fast as DGEMM and no less accurate"
    return times if any(one.marker in _SLICES for one in winners) else f"{times}; bf16 slices are not"


def _alt(schemes: list[Scheme], size: int) -> str:
    if not schemes:
        return "Scatter of error against speed of FP64 schemes, without data: nothing was measured."
    winners = _winners(schemes)
    first = f"At {size} no scheme is faster than DGEMM and as accurate."
    if winners:
        first = (
            f"At {size} {listed([one.label for one in winners])} are faster than DGEMM and no less accurate, up to "
            f"{format_number(winners[0].ratio)} times as fast."
        )
    slices = [one for one in schemes if one.marker in _SLICES]
    if not slices:
        return finding(first)
    fastest = max(slices, key=lambda one: one.ratio)
    return finding(
        first,
        f"The fastest bf16 slices, {fastest.label}, reach {format_number(fastest.ratio)} with an error of "
        f"{written(fastest.error)}.",
    )
