"""Slices of bf16 by their cut-off, published and measured, and schemes of FP64 by speed and error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Mark, Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import curves, empty, finished, marks, pair
from gemmrepro.figures.style import (
    BAD,
    FIRST,
    GOOD,
    INK,
    SERIES,
    Drawing,
    Page,
    finding,
    logarithmic,
    origin,
    plain,
    written,
)
from gemmrepro.measure.rows import select

PAPER = {"slices": (), "fp64_frontier": ()}

PANELS = {
    "speed": Panel("speed relative to cuBLAS FP64", "", line=1.0),
    "gain": Panel("speed relative to d = 9", "", line=1.0),
    "error": Panel("relative error", "", log=True),
}


def slices(inputs: Inputs) -> Drawing:
    """Speed, gain and error against the cut-off d."""
    shown = [mark for mark in inputs.marks("ozaki", "sweep_d") if mark.panel in PANELS]
    hardware = next((each.hardware for mark in shown for each in mark.printed), "")
    caption = (
        "The sweep of the cut-off d at 16384, bf16 slices: speed relative to cuBLAS FP64 of the same GPU, speed "
        f"relative to d = 9, and the error against cuBLAS. Hollow: as published for {hardware or 'no GPU'}."
    )
    table, lines = [], []
    for mark in shown:
        there, here = mark.printed[0].value if mark.printed else None, mark.measured.value if mark.measured else None
        table.append({"panel": mark.panel, "d": int(float(mark.x)), "published": there, "measured": here})
        at = {"panel": mark.panel, "x": float(mark.x)}
        lines += [{**at, "series": kind, "y": y} for kind, y in (("print", there), ("here", here)) if y is not None]
    frame = marks(sorted(lines, key=lambda line: float(str(line["x"]))))
    looks = pair(hardware, inputs.gpu)
    options: dict[str, Any] = {"x_label": "cut-off d", "x_scale": "linear", "columns": 3, "handles": True}
    paint = lambda page: curves(frame, looks, PANELS, page, **options)  # noqa: E731
    found = [mark.measured for mark in shown if mark.measured]
    title, alt = _slices_words(shown, inputs.gpu)
    keys = [key for each in inputs.marks("ozaki", "sweep_d") if each.measured for key in each.measured.keys]
    return Drawing(title, caption, alt, table, paint, keys, any(each.stale for each in found))


def _slices_words(shown: Sequence[Mark], gpu: str) -> tuple[str, str]:
    both = [mark for mark in shown if mark.printed and mark.measured]
    speeds = sorted((mark for mark in both if mark.panel == "speed"), key=lambda mark: float(mark.x))
    if not speeds or not speeds[0].measured:
        alt = "Speed and error of bf16 slices against their cut-off d, of which nothing was measured."
        return "Slices and their cut-off d: not measured", alt
    there, here = format_number(speeds[0].printed[0].value), format_number(speeds[0].measured.value)
    title = f"At the shortest cut-off slices reach {here} of cuBLAS here, {there} in print"
    if speeds[0].measured.value < 1 <= speeds[0].printed[0].value:
        title = f"Slices pass cuBLAS in print ({there}) and not here ({here})"
    errors = [mark.measured.value / mark.printed[0].value for mark in both if mark.panel == "error" and mark.measured]
    near = sum(abs(over - 1) <= 0.1 for over in errors)
    alt = finding(
        f"At d = {float(speeds[0].x):.0f} slices run at {here} of cuBLAS FP64 on {gpu}, published {there}.",
        f"Of {len(errors)} errors {near} agree within 10%.",
    )
    return title, alt


DGEMM, SIZES = "cublas.gemm", (16384, 8192, 4096)
MODULI = ("crt.fused", "crt.ping_pong", "crt.winograd")
OTHERS = {
    "cublas.gemm_emulated": ("cuBLAS, emulated", SERIES[3], "s"),
    "ozaki.diagonal_bf16_d9": ("d = 9, per diagonal", BAD, "D"),
}


def fp64_frontier(inputs: Inputs) -> Drawing:
    """Schemes of FP64 by speed over DGEMM and error, at the largest size that has DGEMM."""
    size, shown = _schemes(inputs)
    caption = (
        f"Frobenius error at sampled outputs against the speed of the whole product relative to cuBLAS DGEMM, N(0, 1), "
        f"{size}. Shaded: faster than DGEMM and no less accurate. Of each number of INT8 moduli the fastest kernel; "
        "bf16 slices by their cut-off d. Few launches each, not interleaved. "
        f"{origin(inputs.experiment('ozaki', 'products'))}"
    )
    columns = {"label": "scheme", "kernel": "kernel", "ratio": "speed over DGEMM", "error": "Frobenius error"}
    table = shown[list(columns)].rename(columns=columns).to_dict("records")
    return Drawing(*_frontier_words(shown, size, caption), table, lambda page: _paint_frontier(shown, page))


def _schemes(inputs: Inputs) -> tuple[int, pd.DataFrame]:
    """The schemes at the first of SIZES that has DGEMM, which comes first."""
    results, found = inputs.experiment("ozaki", "products"), []
    size = SIZES[0]
    for size in SIZES if results else ():
        assert results is not None
        rows = select(results.rows, n=size, law="normal", status="current")
        rows = rows[rows["ratio"].notna() & rows["err_fro"].notna()].drop_duplicates("kernel").set_index("kernel")
        if DGEMM in rows.index:
            found = [(DGEMM, "cuBLAS DGEMM", INK, "o")]
            found += [(f"ozaki.fused_bf16_d{d}", f"d = {d}", BAD, "^") for d in range(9, 4, -1)]
            for count in (14, 15, 16):
                known = [name for base in MODULI if (name := base + ("" if count == 15 else f"_{count}")) in rows.index]
                best = max(known, key=lambda name: float(rows.loc[name, "ratio"]), default="")
                found.append((best, f"{count} moduli", GOOD, "v"))
            found += [(kernel, *look) for kernel, look in OTHERS.items()]
            found = [scheme for scheme in found if scheme[0] in rows.index]
            break
    frame = pd.DataFrame(found, columns=["kernel", "label", "colour", "marker"])
    if frame.empty:
        return SIZES[0], frame.assign(ratio=[], error=[])
    ratio, error = (rows.loc[frame["kernel"], column].astype(float).to_numpy() for column in ("ratio", "err_fro"))
    return size, frame.assign(ratio=ratio / ratio[0], error=error)


def _paint_frontier(shown: pd.DataFrame, page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 3.7))
    if shown.empty:
        empty(axes)
        return figure
    axes.set(xscale="log", yscale="log")
    slices_of = shown[shown["marker"] == "^"]
    sns.lineplot(slices_of, x="ratio", y="error", color=BAD, linewidth=1.2, ax=axes, sort=False, estimator=None)
    for one in shown.to_dict("records"):
        axes.plot(one["ratio"], one["error"], one["marker"], color=one["colour"], markersize=7, zorder=4)
        # Below the line that joins the slices; the last two are close to others.
        near = {"o": ((8, 6), "left"), "^": ((8, -4), "left"), "v": ((8, 0), "left")}
        at, side = ((3, 12), "right") if one["label"] == "d = 9" else near.get(one["marker"], ((0, -13), "center"))
        where: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center", "color": one["colour"]}
        axes.annotate(one["label"], (one["ratio"], one["error"]), at, **where)
    high, bottom = shown["ratio"].max() * page.pick(1.5, 2.3), shown["error"].min() / 4
    axes.set(xlim=(shown["ratio"].min() * page.pick(0.8, 0.65), high), ylim=(bottom, shown["error"].max() * 5))
    axes.fill_between([1, high], bottom, shown["error"].iloc[0], color=FIRST, alpha=0.12, linewidth=0, zorder=0)
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2]))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    logarithmic(axes.yaxis)
    axes.set(xlabel="speed relative to DGEMM", ylabel="Frobenius error")
    return finished(figure, page)


def _frontier_words(shown: pd.DataFrame, size: int, caption: str) -> tuple[str, str, str]:
    if shown.empty:
        alt = "Scatter of error against speed of FP64 schemes, without data: nothing was measured."
        return "FP64 schemes by speed and error: not measured", caption, alt
    winners = shown[(shown["ratio"] > 1) & (shown["error"] <= shown["error"].iloc[0]) & (shown["kernel"] != DGEMM)]
    winners = winners.sort_values("ratio", ascending=False, kind="stable")
    title = "No scheme beats DGEMM in speed without losing accuracy"
    first = f"At {size} no scheme is faster than DGEMM and as accurate."
    if len(winners):
        times = format_number(winners["ratio"].iloc[0])
        title = f"{winners['label'].iloc[0]} are {times} times as fast as DGEMM and no less accurate"
        title += "" if winners["marker"].isin(["^", "D"]).any() else "; bf16 slices are not"
        first = f"At {size} {listed(list(winners['label']))} are faster than DGEMM and no less accurate, up to "
        first += f"{times} times as fast."
    own = shown[shown["marker"].isin(["^", "D"])]
    second = ""
    if len(own):
        best = own.loc[own["ratio"].idxmax()]
        second = f"The fastest bf16 slices, {best['label']}, reach {format_number(best['ratio'])} with an error of "
        second += f"{written(best['error'])}."
    return title, caption, finding(first, second)
