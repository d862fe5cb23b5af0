"""Schemes of FP64 by speed and error, published and measured."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gemmrepro.core.text import format_number, listed
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import empty, finished
from gemmrepro.figures.style import (
    FIRST,
    INK,
    PUBLISHED,
    SERIES,
    Drawing,
    Page,
    finding,
    logarithmic,
    origin,
    plain,
    written,
)
from gemmrepro.figures.style import PAPER as WHITE
from gemmrepro.measure.rows import select

PAPER = {"fp64_frontier": ()}


DGEMM, SIZES = "cublas.gemm", (16384, 8192, 4096)
MODULI = ("crt.fused", "crt.ping_pong", "crt.winograd")
OTHERS = {
    "cublas.gemm_emulated": ("cuBLAS, emulated", SERIES[3], "s"),
    "ozaki.diagonal_bf16_d9": ("d = 9, per diagonal", SERIES[1], "D"),
}


def fp64_frontier(inputs: Inputs) -> Drawing:
    """Schemes of FP64 by speed over DGEMM and error, at the largest size that has DGEMM, beside the article's."""
    size, shown = _schemes(inputs)
    there = _printed(inputs) if size == SIZES[0] else pd.DataFrame()
    chip = f"Hollow grey: the article's, {there['chip'].iloc[0]}, its error against cuBLAS. " if len(there) else ""
    caption = (
        f"Frobenius error at sampled outputs against the speed of the whole product relative to cuBLAS DGEMM, N(0, 1), "
        f"{size}. Shaded: faster than DGEMM and no less accurate. Of each number of INT8 moduli the fastest kernel "
        f"of this experiment; bf16 slices by their cut-off d. {chip}Few launches each, in rounds with DGEMM. "
        f"{origin(inputs.experiment('ozaki', 'products'))}"
    )
    columns = {"label": "scheme", "kernel": "kernel", "ratio": "speed over DGEMM", "error": "Frobenius error"}
    columns |= {"keys": "keys"}
    table = pd.concat([shown, there])[list(columns)].rename(columns=columns).to_dict("records")
    return Drawing(*_words(shown, size, caption), table, lambda page: _paint(shown, there, page))


def _printed(inputs: Inputs) -> pd.DataFrame:
    """The article's slices by their cut-off."""
    own = {(mark.panel, int(mark.x)): mark.printed[0] for mark in inputs.marks("ozaki", "sweep_d") if mark.printed}
    found = [
        {
            "label": f"d = {d}, in print",
            "kernel": "",
            "chip": speed.hardware,
            "ratio": speed.value,
            "error": error.value,
            "keys": {},
        }
        for (panel, d), speed in own.items()
        if panel == "speed" and (error := own.get(("error", d)))
    ]
    return pd.DataFrame(found)


def _schemes(inputs: Inputs) -> tuple[int, pd.DataFrame]:
    """The schemes at the first of SIZES that has DGEMM, which comes first."""
    results, found = inputs.experiment("ozaki", "products"), []
    size = SIZES[0]
    for size in SIZES if results else ():
        assert results is not None
        rows = select(results.rows, n=size, law="normal", status="current")
        rows = rows[rows["ratio"].notna() & rows["err_fro"].notna()].drop_duplicates("kernel")
        rows = rows.assign(key=[results.key("ozaki", row) for _, row in rows.iterrows()]).set_index("kernel")
        if DGEMM in rows.index:
            found = [(DGEMM, "cuBLAS DGEMM", INK, "o")]
            found += [(f"ozaki.fused_bf16_d{d}", f"d = {d}", SERIES[1], "^") for d in range(9, 4, -1)]
            for count in (14, 15, 16):
                known = [name for base in MODULI if (name := base + ("" if count == 15 else f"_{count}")) in rows.index]
                best = max(known, key=lambda name: float(rows.loc[name, "ratio"]), default="")
                found.append((best, f"{count} moduli", SERIES[2], "v"))
            found += [(kernel, *look) for kernel, look in OTHERS.items()]
            found = [scheme for scheme in found if scheme[0] in rows.index]
            break
    frame = pd.DataFrame(found, columns=["kernel", "label", "colour", "marker"])
    if frame.empty:
        return SIZES[0], frame.assign(ratio=[], error=[], keys=[])
    ratio, error = (rows.loc[frame["kernel"], column].astype(float).tolist() for column in ("ratio", "err_fro"))
    keys = [dict.fromkeys(("speed over DGEMM", "Frobenius error"), (key,)) for key in rows.loc[frame["kernel"], "key"]]
    keys[0].pop("speed over DGEMM")  # of DGEMM the row is a second take
    return size, frame.assign(ratio=[1.0, *ratio[1:]], error=error, keys=keys)


def _paint(shown: pd.DataFrame, there: pd.DataFrame, page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 3.7))
    if shown.empty:
        empty(axes)
        return figure
    axes.set(xscale="log", yscale="log")
    slices_of = shown[shown["marker"] == "^"]
    sns.lineplot(slices_of, x="ratio", y="error", color=SERIES[1], linewidth=1.2, ax=axes, sort=False, estimator=None)
    if len(there):
        hollow = {"color": PUBLISHED, "markerfacecolor": WHITE, "markersize": 7, "linestyle": "--", "linewidth": 1}
        axes.plot(there["ratio"], there["error"], "^", **hollow)
        last = there.loc[there["ratio"].idxmax()]
        where = {"xytext": (0, 10), "textcoords": "offset points", "ha": "center", "color": PUBLISHED}
        axes.annotate(str(last["label"]), (last["ratio"], last["error"]), **where)
    for one in shown.to_dict("records"):
        axes.plot(one["ratio"], one["error"], one["marker"], color=one["colour"], markersize=7, zorder=4)
        # Below the line that joins the slices, but for its two close ends.
        near = {"o": ((8, 9), "left"), "^": ((8, -4), "left"), "v": ((8, 0), "left"), "D": ((30, -13), "right")}
        near |= {"d = 9": ((-8, 0), "right"), "d = 8": ((-3, 10), "right")}
        at, side = near.get(one["label"]) or near.get(one["marker"], ((0, -13), "center"))
        where: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center", "color": INK}
        axes.annotate(one["label"], (one["ratio"], one["error"]), at, **where)
    every = pd.concat([shown, there])
    high, bottom = every["ratio"].max() * page.pick(1.5, 2.3), every["error"].min() / 4
    axes.set(xlim=(every["ratio"].min() * page.pick(0.7, 0.36), high), ylim=(bottom, every["error"].max() * 8))
    axes.fill_between([1, high], bottom, shown["error"].iloc[0], color=FIRST, alpha=0.12, linewidth=0, zorder=0)
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2]))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    logarithmic(axes.yaxis)
    axes.set(xlabel="speed relative to DGEMM", ylabel="Frobenius error")
    return finished(figure, page)


def _words(shown: pd.DataFrame, size: int, caption: str) -> tuple[str, str, str]:
    if shown.empty:
        alt = "Scatter of error against speed of FP64 schemes, without data: nothing was measured."
        return "FP64 schemes by speed and error: not measured", caption, alt
    winners = shown[(shown["ratio"] > 1) & (shown["error"] <= shown["error"].iloc[0]) & (shown["kernel"] != DGEMM)]
    winners = winners.sort_values("ratio", ascending=False, kind="stable")
    title = "No scheme beats DGEMM in speed without losing accuracy"
    first = f"At {size} no scheme is faster than DGEMM and as accurate."
    if len(winners):
        times = format_number(winners["ratio"].iloc[0])
        title = f"{listed(list(winners['label']))} are faster than DGEMM and no less accurate"
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
