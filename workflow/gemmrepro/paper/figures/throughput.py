"""The figure ``throughput``: speed against size, a panel for each type and cache state, cuBLAS among the levels."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number, listed
from gemmrepro.gpu import baselines
from gemmrepro.measure.rows import Measurements, cubes, row_key, select, toolkit_of
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    TUNED,
    Drawing,
    empty,
    half_widths,
    label_right,
    origin,
    plain,
    ramp,
    stale_note,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import compared, dtypes, is_tuned, level_name

BASELINES = ("-", (0, (1, 1)), "-.")
"""Lines of the ways of cuBLAS, in the order in which a family names them."""


def _series(measured: Measurements, dtype: str, toolkit: str) -> list[dict]:
    """The lines of a panel: every step, the fastest of the tuned kernels, and the baselines."""
    steps = ladders.steps(measured.family, dtype)
    lines = [
        {
            "id": kernel.id,
            "toolkit": toolkit,
            "label": _label(kernel),
            "short": kernel.rung,
            "colour": ramp(place, len(steps)),
            "marker": MARKERS[place % len(MARKERS)],
            "strong": place == len(steps) - 1,
            "dash": "-",
        }
        for place, kernel in enumerate(steps)
    ]
    if tuned := fastest_tuned(measured, dtype, toolkit):
        style = {"colour": TUNED, "marker": "h", "strong": True, "dash": (0, (5, 2))}
        label = _label(tuned) if _many(measured.family) else level_name(tuned)
        lines.append({"id": tuned.id, "toolkit": toolkit, "label": label, "short": tuned.rung, **style})
    for place, name in enumerate(dict.fromkeys(kernel.baseline for kernel in steps)):
        style = {"colour": INK, "marker": "*", "strong": True, "dash": BASELINES[place % len(BASELINES)]}
        lines.append(
            {"id": name, "toolkit": LIBRARY, "label": baselines.baseline(name).rung, "short": "cuBLAS", **style}
        )
    return lines


def _many(family: str) -> bool:
    """Whether the family multiplies so many types that its kernels' own names tell more than those of their steps."""
    return len(dtypes(family)) > 2


def _label(kernel: registry.Kernel) -> str:
    """What a line is called; the panel says the type."""
    return f"{kernel.rung} {kernel.name}" if _many(kernel.family) else ladders.label(kernel)


def fastest_tuned(measured: Measurements, dtype: str, toolkit: str) -> registry.Kernel | None:
    """Of the tuned kernels the fastest at the largest size, warm."""
    tuned = {k.id: k for k in compared(measured.family) if k.dtype_in == dtype and is_tuned(k)}
    rows = cubes(select(measured.summary, cache="warm", toolkit=toolkit, dtype=dtype))
    rows = rows[rows["kernel"].isin(tuned) & rows["tflops"].notna()]
    if rows.empty:
        return None
    rows = rows[rows["n"] == rows["n"].max()]
    return tuned[rows.loc[rows["tflops"].idxmax(), "kernel"]]


def draw(measured: Measurements) -> Drawing:
    """Throughput against size; lines are labelled at their ends, on the right."""
    toolkit = toolkit_of(measured) or ""
    gemm = cubes(measured.summary[measured.summary["tflops"].notna()])
    types = dtypes(measured.family) or ["fp32"]
    types = [dtype for dtype in types if (gemm["dtype"] == dtype).any()] or types[:1]
    caches = [cache for cache in ("warm", "cold") if (gemm["cache"] == cache).any()] or ["warm"]
    height = max(
        2.6 if _many(measured.family) else 3.4,
        0.19 * max(len(_series(measured, dtype, toolkit)) for dtype in types) + 1.4,
    )
    figure, panels = plt.subplots(
        len(types), len(caches), figsize=(7.6, height * len(types) + 0.3), sharey="row", squeeze=False
    )
    drawing = Drawing(figure, f"Throughput against size, {listed(types)}")
    best: list[str] = []
    ends: list[tuple[Axes, list]] = []
    tuned_drawn = False
    for row_of_panels, dtype in zip(panels, types, strict=True):
        lines = _series(measured, dtype, toolkit)
        tuned_drawn |= any(line["colour"] == TUNED for line in lines)
        for axes, cache in zip(row_of_panels, caches, strict=True):
            labels = []
            for line in lines:
                rows = select(gemm, kernel=line["id"], toolkit=line["toolkit"], cache=cache, dtype=dtype)
                rows = rows.sort_values("n")
                if rows.empty:
                    continue
                drawing.stale |= _line(axes, rows, line)
                for _, row in rows.iterrows():
                    drawing.rows.append(row_key(row))
                    cells = {"cache": cache, "size": int(row["n"]), "TFLOP/s": row["tflops"]}
                    level = {"level": line["label"], **({"type": dtype} if len(types) > 1 else {})}
                    drawing.table.append({**level, **cells, "stale": row["status"] == "stale"})
                last = rows.iloc[-1]
                labels.append((float(last["n"]), float(last["tflops"]), line["label"], line["colour"], line["strong"]))
                best.append(
                    f"{line['label']}{f' {dtype}' if len(types) > 1 else ''} {cache} "
                    f"{format_number(last['tflops'])} at {int(last['n'])}"
                )
            _finish(axes, cache, dtype, select(gemm, dtype=dtype))
            ends.append((axes, labels if axes is row_of_panels[-1] else []))
        row_of_panels[0].set_ylabel("throughput (TFLOP/s)")
    for axes in panels[-1]:
        axes.set_xlabel("M = N = K")
    sns.despine(figure)
    right = 0.76 if len(caches) > 1 else 0.67
    figure.tight_layout(rect=(0, 0, right if best else 1, 1), w_pad=1.2)
    for axes, labels in ends:
        label_right(axes, labels)
    several = f"{listed(types)}, a row of panels each" if len(types) > 1 else types[0]
    drawing.caption = (
        f"Throughput of each level and of cuBLAS against the size of a square problem, {several}. "
        "Warm: the same matrices again and again; cold: nothing of them left in the L2 cache. "
        "Lines are named at their right ends, in the order of their ends; "
        f"the last level and cuBLAS are drawn strong{', and dashed the fastest of the tuned kernels' * tuned_drawn}. "
        "Bars are 95% intervals of the median; where none is seen, it is smaller than the mark. "
        f"{f'Built by {toolkit}. ' if toolkit else ''}{origin(measured)}{stale_note(drawing.stale)}"
    )
    drawing.alt = (
        "Line chart of throughput in TFLOP/s against size. At the largest size: " + "; ".join(best) + "."
        if best
        else "Line chart without data."
    )
    return drawing


def _line(axes: Axes, rows, line: dict) -> bool:
    """Draw one line with its marks and intervals; whether any of it is stale."""
    x, y = rows["n"].astype(float), rows["tflops"]
    colour, strong = line["colour"], line["strong"]
    low = y - y * rows["median_us"] / rows["ci_high_us"]
    high = y * rows["median_us"] / rows["ci_low_us"] - y
    order = 4 if strong else 3
    axes.plot(x, y, color=colour, linewidth=2.1 if strong else 1.2, linestyle=line["dash"], zorder=order)
    axes.errorbar(
        x, y, yerr=half_widths(low, high), fmt="none", ecolor=colour, capsize=2.5, linewidth=1.1, zorder=order + 1
    )
    stale = (rows["status"] == "stale").to_numpy(dtype=bool)
    size = 9 if line["marker"] == "*" else 6 if strong else 4.5
    for mask, face in ((~stale, colour), (stale, PAPER)):
        if np.any(mask):
            axes.plot(
                x[mask],
                y[mask],
                line["marker"],
                color=face,
                markeredgecolor=colour if face == PAPER else PAPER,
                markeredgewidth=1.3 if face == PAPER else 0.6,
                markersize=size,
                zorder=order + 2,
            )
    return bool(stale.any())


def _finish(axes: Axes, cache: str, dtype: str, gemm) -> None:
    axes.set_xscale("log", base=2)
    axes.set_title(f"{dtype}, {cache} cache", loc="left")
    sizes = sorted({int(n) for n in gemm["n"]})
    if sizes:
        axes.set_xticks(sizes, [str(n) for n in sizes], rotation=45 if len(sizes) > 4 else 0)
    else:
        empty(axes, "not measured")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
