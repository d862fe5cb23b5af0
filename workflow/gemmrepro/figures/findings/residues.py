"""F14, `residues`: FP64 from INT8 residues against DGEMM by size and number of moduli, and where it errs no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.figures.ends import End, label, reserve, wrapped
from gemmrepro.figures.findings.parts import Inputs, names_down
from gemmrepro.figures.points import Point, ratio_point
from gemmrepro.figures.style import BAD, GOOD, INK, MARKERS, SERIES, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both
from gemmrepro.measure.rows import cubes, select

FAMILY, DGEMM, ACCURACY = "crt", "cublas.gemm", "accuracy"
SPEEDS = {
    "crt.ping_pong_14": "14 moduli",
    "crt.ping_pong": "15 moduli",
    "crt.ping_pong_16": "16 moduli",
    "crt.winograd": "15, Winograd",
}
ERRORS = {"crt.fused_14": "14 moduli", "crt.fused": "15 moduli", "crt.fused_16": "16 moduli"}
"""Kernels by which the error of a number of moduli was measured; the others compute the same bits."""


@dataclass(frozen=True)
class Shown:
    """Ratios by scheme, and by moduli and operands the largest error over DGEMM's at the largest size."""

    ratios: Mapping[str, tuple[Point, ...]]
    errors: Mapping[str, Mapping[str, float]]


def draw(inputs: Inputs) -> Drawing:
    """Lines, and a table of ticks."""
    shown = Shown(_ratios(inputs), _errors(inputs))
    wide, narrow = both(lambda page: _paint(shown, page))
    caption = (
        "Left or above: speed relative to cuBLAS DGEMM timed in turn, warm. The ticks say for which operands the "
        "largest error of any sampled element is no larger than DGEMM's at the same size: N(0, 1), and exponents that "
        f"spread with φ. {origin(inputs.measured[FAMILY])}"
    )
    table: list[dict[str, object]] = [
        {"scheme": name, "size": point.size, "ratio": point.value, "low": point.low, "high": point.high}
        for name, points in shown.ratios.items()
        for point in points
    ]
    table += [
        {"scheme": name, "operands": law, "largest error over DGEMM's": error}
        for name, laws in shown.errors.items()
        for law, error in laws.items()
    ]
    points = [point for each in shown.ratios.values() for point in each]
    stale = any(point.stale for point in points)
    return Drawing(wide, _title(shown), caption, _alt(shown), [point.key for point in points], table, stale, narrow)


def _ratios(inputs: Inputs) -> dict[str, tuple[Point, ...]]:
    measured = inputs.measured[FAMILY]
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit))
    rows = rows[rows["ratio"].notna()].sort_values("n")
    found = {
        label: tuple(ratio_point(row) for _, row in select(rows, kernel=kernel).iterrows())
        for kernel, label in SPEEDS.items()
    }
    return {label: points for label, points in found.items() if points}


def _errors(inputs: Inputs) -> dict[str, dict[str, float]]:
    results = inputs.results.get(FAMILY, {}).get(ACCURACY)
    if results is None or results.rows.empty:
        return {}
    rows = select(results.rows, status="current")
    rows = rows[rows["n"] == rows["n"].max()]
    base = {row["law"]: float(row["max_u"]) for _, row in select(rows, kernel=DGEMM).iterrows()}
    found: dict[str, dict[str, float]] = {}
    for kernel, name in ERRORS.items():
        for _, row in select(rows, kernel=kernel, toolkit=results.toolkit).iterrows():
            if base.get(row["law"]):
                found.setdefault(name, {})[str(row["law"])] = float(row["max_u"]) / base[row["law"]]
    return found


def _paint(shown: Shown, page: Page) -> Figure:
    if page.narrow:
        figure, (lines, ticks) = plt.subplots(2, 1, figsize=(page.width, 4.6), height_ratios=(2.4, 1))
    else:
        figure, (lines, ticks) = plt.subplots(1, 2, figsize=(page.width, 3.0), width_ratios=(1.1, 1))
    ends = []
    for place, (name, points) in enumerate(shown.ratios.items()):
        x, y = [point.size for point in points], [point.value for point in points]
        lines.plot(x, y, MARKERS[place] + "-", color=SERIES[place], linewidth=1.5, markersize=5)
        for point in points:
            if point.has_interval:
                lines.plot([point.size] * 2, [point.low, point.high], color=SERIES[place], linewidth=1)
        ends.append(End(x[-1], y[-1], wrapped(name, 12), SERIES[place], MARKERS[place]))
    if shown.ratios:
        lines.set_xscale("log", base=2)
        sizes = sorted({point.size for points in shown.ratios.values() for point in points})
        lines.set_xticks(sizes, [f"{size // 1024}k" if size >= 1024 else str(size) for size in sizes])
        lines.xaxis.set_minor_locator(NullLocator())
        lines.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        lines.set_ylim(0, lines.get_ylim()[1])
    else:
        empty(lines, "not measured")
    lines.set_xlabel("M = N = K")
    lines.set_ylabel("speed relative to DGEMM")
    _ticks(ticks, shown)
    despine(figure.axes)
    despine([ticks], "left", "bottom")
    reserve(lines, [end.text for end in ends], page)
    figure.tight_layout(w_pad=1.5)
    if page.narrow:  # the ticks need no room for labels
        box = ticks.get_position()
        ticks.set_position((box.x0, box.y0, 0.97 - box.x0, box.height))
    label(lines, ends, page)
    return figure


def _ticks(axes: Axes, shown: Shown) -> None:
    """Yes or no by moduli and operands."""
    axes.set_title("no worse than DGEMM?", loc="left")
    axes.grid(False)
    laws = list(dict.fromkeys(law for each in shown.errors.values() for law in each))
    if not laws:
        empty(axes, "not measured")
        return
    for place, errors in enumerate(shown.errors.values()):
        for column, law in enumerate(laws):
            fine = errors.get(law, 2.0) <= 1
            text, colour = ("yes", GOOD) if fine else ("no", BAD)
            axes.text(
                column, place, text, ha="center", va="center", color=colour, fontweight="bold" if fine else "normal"
            )
    names_down(axes, list(shown.errors))
    axes.set_xticks(range(len(laws)), [law.replace("phi ", "φ=").replace("normal", "N(0,1)") for law in laws])
    axes.set_xlim(-0.6, len(laws) - 0.4)
    axes.tick_params(length=0)


def _title(shown: Shown) -> str:
    points = [(label, point) for label, each in shown.ratios.items() for point in each]
    if not points:
        return "FP64 from residues against DGEMM: not measured"
    label, best = max(points, key=lambda one: one[1].value)
    return (
        f"INT8 residues multiply FP64 up to {format_number(best.value)} times as fast as DGEMM ({label}, {best.size})"
    )


def _alt(shown: Shown) -> str:
    if not shown.ratios:
        return "Speed of FP64 from residues relative to DGEMM by size, of which nothing was measured."
    ends = listed([f"{format_number(points[-1].value)} ({label})" for label, points in shown.ratios.items()])
    size = max(points[-1].size for points in shown.ratios.values())
    fine = [
        f"{label} for {sum(e <= 1 for e in errors.values())} of {len(errors)}" for label, errors in shown.errors.items()
    ]
    return finding(
        f"At {size} the speed relative to DGEMM is {ends}.",
        f"The largest error is no larger than DGEMM's with {listed(fine)} kinds of operands." if fine else "",
    )
