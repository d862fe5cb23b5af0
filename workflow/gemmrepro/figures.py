"""Draws a family's figures as SVG, each with a JSON beside it: caption, alternative text, command, rows used.

An SVG is the same, byte for byte, for the same rows: ids are salted with a constant, no date is written, and text is
drawn as outlines, so it looks the same wherever it is opened. Series differ by marker or hatch as well as by colour,
from a palette that colour-blind readers can tell apart. Colours of ink, grid and series are literal and unique, so
that the report can exchange them for its own in dark mode (`THEME`).
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from gemmrepro import registry
from gemmrepro.claims import as_published, format_number
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import write_atomic, write_json
from gemmrepro.measurements import (
    LIBRARY,
    Measurements,
    convert,
    counter_key,
    is_current,
    load,
    published_rows,
    row_key,
)

NAMES = ("ratio", "throughput", "roofline")
"""Figures of a family that has a baseline."""

SNAKEMAKE = "envs/run snakemake --use-singularity --cores 1"

INK, GRID, PAPER = "#1b1f26", "#d5d9df", "#ffffff"
# Okabe and Ito's colours, darkened where white paper would swallow them; their yellow is left out.
SERIES = ("#0072b2", "#c75600", "#00805f", "#b3568b", "#2f8fc4", "#a87400", "#7a4fbf")
PUBLISHED = "#8a919c"

THEME = {
    INK: "--ink",
    GRID: "--grid",
    PAPER: "--paper",
    PUBLISHED: "--published",
    **{colour: f"--series-{index}" for index, colour in enumerate(SERIES, start=1)},
}
"""Literal colours of the figures and the CSS custom properties that stand for them in the report."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TOOLKIT_ORDER = ("cuda12", "cuda13")
SIZE = 4096


@dataclass
class Drawing:
    """A figure and what the report needs to say about it."""

    figure: Figure
    title: str
    caption: str
    alt: str
    rows: list[str] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)
    stale: bool = False


def _style() -> None:
    sns.set_theme(
        context="paper",
        style="whitegrid",
        rc={
            "svg.fonttype": "path",
            "svg.hashsalt": "gemmrepro",
            "font.family": "DejaVu Sans",
            "font.size": 10,
            "axes.labelsize": 10,
            "axes.titlesize": 10.5,
            "xtick.labelsize": 9.5,
            "ytick.labelsize": 9.5,
            "legend.fontsize": 9.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "axes.linewidth": 0.8,
            "axes.facecolor": PAPER,
            "figure.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "hatch.linewidth": 0.7,
            "hatch.color": INK,
            "legend.frameon": False,
        },
    )


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:,.6g}"


def toolkit_of(measured: Measurements) -> str | None:
    """The toolkit that is drawn: the first of cuda12, cuda13 that has current rows, else any rows."""
    for rows in (measured.summary[is_current(measured.summary)], measured.summary):
        for toolkit in TOOLKIT_ORDER:
            if (rows["toolkit"] == toolkit).any():
                return toolkit
    return None


def _rungs(family: str) -> list[registry.Kernel]:
    """Kernels of the family that are compared with a baseline."""
    return [kernel for kernel in registry.kernels(family) if kernel.baseline]


def figure_names(family: str) -> tuple[str, ...]:
    """The figures of a family: those its registry names.

    Raises:
        UserError: the registry names a figure that there is not.
    """
    named = registry.family(family).figures
    unknown = [name for name in named if name not in NAMES]
    if unknown:
        raise UserError(f"family {family} names the figure {', '.join(unknown)}; known figures: {', '.join(NAMES)}.")
    return named


def level_name(kernel: registry.Kernel) -> str:
    """What figures and tables call a kernel: as its article does, if it has one."""
    return kernel.published_system or (f"{kernel.rung} {kernel.name}" if kernel.article else kernel.title)


def _select(measured: Measurements, **cells: Any) -> pd.DataFrame:
    rows = measured.summary
    for column, value in cells.items():
        rows = rows[(rows[column] == value).fillna(False).astype(bool)]
    return rows


def _cube(rows: pd.DataFrame) -> pd.DataFrame:
    same = (rows["m"] == rows["n"]) & (rows["n"] == rows["k"])
    return rows[same.fillna(False).astype(bool)]


def _gpu(measured: Measurements) -> str:
    return measured.gpu or "no GPU"


def _origin(measured: Measurements) -> str:
    if measured.source == "none":
        return "Nothing was measured."
    date = str(measured.run.get("date", ""))[:10]
    how = "Measured in this run" if measured.source == "live" else "Recorded earlier"
    return f"{how} on {_gpu(measured)}{f', {date}' if date else ''}."


def _stale_note(stale: bool) -> str:
    return (
        " Hollow marks and bars are stale: taken from another build of the kernel, they support no claim."
        if stale
        else ""
    )


def _empty(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK, fontsize=11)


def _value_label(axes: Axes, x: float, y: float, text: str, weight: str = "normal", gap: float = 4) -> None:
    """A bar's value, right of it, on a patch of paper so that no line crosses it."""
    axes.annotate(
        text,
        (x, y),
        (gap, -0.5),
        textcoords="offset points",
        va="center",
        fontweight=weight,
        fontsize=9.5,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8},
        zorder=6,
    )


# --- ratio to the baseline ------------------------------------------------------------------------------------------


def draw_ratio(measured: Measurements) -> Drawing:
    """The ladder as bars of the ratio to the baseline, published and measured side by side."""
    family = registry.family(measured.family)
    rungs = _rungs(measured.family)
    toolkit = toolkit_of(measured)
    warm = _cube(_select(measured, cache="warm"))
    sizes = sorted({int(n) for n in warm["n"]})
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    published = {
        row["system"]: row
        for row in published_rows()
        if row["article"] == family.article and row["metric"] == "ratio_to_cublas" and row["n"] == SIZE
    }
    hardware = sorted({row["hardware"] for row in published.values()})
    at = warm[(warm["n"] == size).fillna(False).astype(bool)]

    figure, axes = plt.subplots(figsize=(7.6, 0.62 * len(rungs) + 1.35))
    height = 0.36
    drawing = Drawing(figure, f"Ratio to cuBLAS at {size}", "", "")
    reach, other_drawn = 1.0, False
    for index, kernel in enumerate(rungs):
        entry: dict[str, Any] = {"level": level_name(kernel)}
        row = published.get(kernel.published_system or "")
        if row is not None:
            value = row["value"]
            axes.barh(index - height / 2, value, height, color=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///")
            _value_label(axes, value, index - height / 2, as_published(value))
            entry["published"] = value
            reach = max(reach, value)
        for _, found in at[(at["kernel"] == kernel.id) & at["ratio"].notna()].iterrows():
            low, high, value = found["ratio_ci_low"], found["ratio_ci_high"], found["ratio"]
            stale = found["status"] == "stale"
            drawing.rows.append(row_key(found))
            reach = max(reach, value)
            if found["toolkit"] != toolkit:
                if not stale:
                    axes.plot(
                        value, index + height / 2, "D", color=PAPER, markeredgecolor=INK, markersize=4.5, zorder=4
                    )
                    other_drawn = True
                entry[f"measured, {found['toolkit']}"] = value
                continue
            drawing.stale |= stale
            axes.barh(
                index + height / 2,
                value,
                height,
                color=PAPER if stale else SERIES[0],
                edgecolor=SERIES[0] if stale else INK,
                linewidth=1.2 if stale else 0.6,
                linestyle="--" if stale else "-",
            )
            if pd.notna(low) and pd.notna(high):
                error = [[max(0.0, value - low)], [max(0.0, high - value)]]
                axes.errorbar(value, index + height / 2, xerr=error, color=INK, capsize=2.5, linewidth=1, zorder=5)
            right = max([value, *at[at["kernel"] == kernel.id]["ratio"], *([high] if pd.notna(high) else [])])
            text = format_number(value) + (" stale" if stale else "")
            _value_label(axes, right, index + height / 2, text, weight="bold", gap=8)
            entry |= {f"measured, {toolkit}": value, "95% interval": [low, high], "stale": bool(stale)}
        drawing.table.append(entry)
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(rungs)), [level_name(kernel) for kernel in rungs])
    axes.set_ylim(len(rungs) - 0.45, -0.5)
    axes.set_xlim(0, (1.24 if drawing.stale else 1.14) * reach)
    axes.set_xlabel("speed relative to cuBLAS (1 = as fast; higher is better)")
    axes.grid(axis="y", visible=False)
    handles: list[Any] = []
    if published:
        label = f"published, {', '.join(hardware)}"
        handles.append(Patch(facecolor=PUBLISHED, edgecolor=INK, linewidth=0.6, hatch="///", label=label))
    if toolkit:
        label = f"measured, {_gpu(measured)}, {toolkit}"
        handles.append(Patch(facecolor=SERIES[0], edgecolor=INK, linewidth=0.6, label=label))
    if other_drawn:
        other = next(name for name in TOOLKIT_ORDER if name != toolkit)
        mark = Line2D([], [], marker="D", color=PAPER, markeredgecolor=INK, markersize=4.5, linestyle="", label=other)
        handles.append(mark)
    if handles:
        figure.legend(
            handles=handles, loc="upper left", ncols=len(handles), bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3
        )
    sns.despine(ax=axes, left=True)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / figure.get_size_inches()[1]))

    shown = [entry for entry in drawing.table if f"measured, {toolkit}" in entry]
    elsewhere = f" The article's size, {SIZE}, was not measured." if size != SIZE else ""
    drawing.caption = (
        f"Speed of each level relative to cuBLAS, fp32, M = N = K = {size}, warm cache. Hatched: as published"
        f"{f' for {hardware[0]}' if hardware else ''}{f', at {SIZE}' if size != SIZE else ''}. "
        f"Solid: {f'measured, built by {toolkit}, with its 95% interval' if toolkit else 'nothing measured'}"
        f"{'; the diamond is the other toolkit' if other_drawn else ''}. "
        f"{_origin(measured)}{elsewhere}{_stale_note(drawing.stale)}"
    )
    drawing.alt = f"Bar chart of speed relative to cuBLAS at {size}. " + (
        "; ".join(
            f"{entry['level']}: "
            + (f"published {format_number(entry['published'])}, " if "published" in entry else "")
            + f"measured {format_number(entry[f'measured, {toolkit}'])}"
            for entry in shown
        )
        + "."
        if shown
        else "No measured values."
    )
    return drawing


# --- throughput against size ----------------------------------------------------------------------------------------


def draw_throughput(measured: Measurements) -> Drawing:
    """Throughput against size, one panel for each cache state, the baseline beside the levels."""
    rungs = _rungs(measured.family)
    toolkit = toolkit_of(measured)
    gemm = _cube(measured.summary[measured.summary["tflops"].notna()])
    caches = [cache for cache in ("warm", "cold") if (gemm["cache"] == cache).any()] or ["warm"]
    figure, panels = plt.subplots(1, len(caches), figsize=(7.6, 4.7), sharey=True, squeeze=False)
    drawing = Drawing(figure, "Throughput against size", "", "")
    handles: dict[str, Line2D] = {}
    best: list[str] = []
    for axes, cache in zip(panels[0], caches, strict=True):
        series: list[tuple[str, str, str, str, bool]] = [
            (kernel.id, toolkit or "", level_name(kernel), SERIES[i % len(SERIES)], False)
            for i, kernel in enumerate(rungs)
        ]
        baselines = sorted({kernel.baseline for kernel in rungs if kernel.baseline})
        series += [(name, LIBRARY, "cuBLAS", INK, True) for name in baselines]
        for position, (kernel_id, built, label, colour, is_baseline) in enumerate(series):
            rows = gemm[(gemm["kernel"] == kernel_id) & (gemm["toolkit"] == built) & (gemm["cache"] == cache)]
            rows = rows.sort_values("n")
            if rows.empty:
                continue
            marker = "*" if is_baseline else MARKERS[position % len(MARKERS)]
            x, y = rows["n"].astype(float), rows["tflops"]
            low = y - y * rows["median_us"] / rows["ci_high_us"]
            high = y * rows["median_us"] / rows["ci_low_us"] - y
            axes.plot(x, y, color=colour, linewidth=2 if is_baseline else 1.4, zorder=3)
            axes.errorbar(
                x,
                y,
                yerr=np.clip(np.nan_to_num(np.array([low, high], dtype=float)), 0, None),
                fmt="none",
                ecolor=colour,
                capsize=2.5,
                linewidth=1.1,
                zorder=4,
            )
            stale = (rows["status"] == "stale").to_numpy()
            size = 9 if is_baseline else 5.5
            for mask, face in ((~stale, colour), (stale, PAPER)):
                if mask.any():
                    axes.plot(
                        x[mask],
                        y[mask],
                        marker,
                        color=face,
                        markeredgecolor=colour if face == PAPER else PAPER,
                        markeredgewidth=1.3 if face == PAPER else 0.6,
                        markersize=size,
                        zorder=5,
                    )
            drawing.stale |= bool(stale.any())
            handles[label] = Line2D(
                [], [], color=colour, marker=marker, markersize=size, linewidth=2 if is_baseline else 1.4, label=label
            )
            for _, row in rows.iterrows():
                drawing.rows.append(row_key(row))
                drawing.table.append(
                    {
                        "level": label,
                        "cache": cache,
                        "size": int(row["n"]),
                        "TFLOP/s": row["tflops"],
                        "stale": row["status"] == "stale",
                    }
                )
            last = rows.iloc[-1]
            best.append(f"{label} {cache} {format_number(last['tflops'])} at {int(last['n'])}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(f"{cache} cache", loc="left")
        axes.set_xlabel("M = N = K")
        sizes = sorted({int(n) for n in gemm["n"]})
        if sizes:
            axes.set_xticks(sizes, [str(n) for n in sizes], rotation=45 if len(sizes) > 5 else 0)
        else:
            _empty(axes, "not measured")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.grid(which="minor", axis="y", linewidth=0.35)
    panels[0][0].set_ylabel("throughput (TFLOP/s)")
    if handles:
        order = sorted(handles, key=lambda label: (label == "cuBLAS", label), reverse=True)
        figure.legend(
            handles=[handles[label] for label in order],
            loc="center right",
            bbox_to_anchor=(1.0, 0.54),
            borderaxespad=0.2,
            labelspacing=0.9,
        )
    sns.despine(figure)
    figure.tight_layout(rect=(0, 0, 0.79 if handles else 1, 1), w_pad=1.2)
    both = "Both axes are logarithmic. " if handles else ""
    drawing.caption = (
        f"Throughput of each level and of cuBLAS against the size of a square problem, fp32. {both}"
        "Warm: the same matrices again and again; cold: nothing of them left in the L2 cache. "
        f"Bars are 95% intervals of the median, mostly smaller than the marks. "
        f"{f'Built by {toolkit}. ' if toolkit else ''}{_origin(measured)}{_stale_note(drawing.stale)}"
    )
    drawing.alt = (
        "Line chart of throughput in TFLOP/s against size. At the largest size: " + "; ".join(best) + "."
        if best
        else "Line chart without data."
    )
    return drawing


# --- roofline -------------------------------------------------------------------------------------------------------


def _ceiling(ceilings: Measurements, op: str, column: str) -> tuple[float, str] | None:
    """The best current value of a ceiling, our kernel's or its baseline's, and the key of its row."""
    kernels = [kernel for kernel in registry.kernels("ceilings") if kernel.op == op]
    ids = {kernel.id for kernel in kernels} | {kernel.baseline for kernel in kernels}
    rows = ceilings.summary
    rows = rows[rows["kernel"].isin(ids) & is_current(rows) & rows[column].notna()]
    if rows.empty:
        return None
    row = rows.loc[rows[column].idxmax()]
    return float(row[column]), row_key(row)


def _dram_bytes(measured: Measurements, kernel: str, toolkit: str, n: int) -> tuple[float, str] | None:
    """Bytes that one launch moved to and from DRAM, by the profiler's count."""
    rows = measured.counters
    mask = (rows["kernel"] == kernel) & (rows["toolkit"] == toolkit) & (rows["metric"] == "dram__bytes.sum")
    rows = rows[mask & is_current(rows) & ((rows["n"] == n) & (rows["k"] == n)).fillna(False).astype(bool)]
    for _, row in rows.iterrows():
        value = convert(row["value"], row["unit"], "byte")
        if value:
            return value, "counters:" + counter_key(row)
    return None


def draw_roofline(measured: Measurements, ceilings: Measurements) -> Drawing:
    """Throughput against arithmetic intensity, below this GPU's measured ceilings."""
    rungs = _rungs(measured.family)
    toolkit = toolkit_of(measured) or ""
    warm = _cube(_select(measured, cache="warm", toolkit=toolkit))
    warm = warm[warm["tflops"].notna()]
    sizes = sorted({int(n) for n in warm["n"]})
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    figure, axes = plt.subplots(figsize=(7.6, 4.7))
    drawing = Drawing(figure, f"Roofline at {size}", "", "")
    flops = 2 * size**3
    points = []
    counted_any, guessed_any = False, False
    for index, kernel in enumerate(rungs):
        rows = warm[(warm["kernel"] == kernel.id) & (warm["n"] == size).fillna(False).astype(bool)]
        if rows.empty:
            continue
        row = rows.iloc[-1]
        counted = _dram_bytes(measured, kernel.id, toolkit, size)
        # Without counters: each matrix crosses the bus once, and C is written, not read (beta = 0).
        traffic = counted[0] if counted else 3 * 4 * size**2
        counted_any |= counted is not None
        guessed_any |= counted is None
        stale = row["status"] == "stale"
        drawing.stale |= stale
        drawing.rows += [row_key(row)] + ([counted[1]] if counted else [])
        points.append((index, kernel, flops / traffic, float(row["tflops"]), stale, counted is not None))
        drawing.table.append(
            {
                "level": level_name(kernel),
                "FLOP/byte": flops / traffic,
                "traffic": "counted" if counted else "least possible",
                "TFLOP/s": row["tflops"],
                "stale": bool(stale),
            }
        )
    compute = _ceiling(ceilings, "ceiling_flops", "tflops")
    memory = _ceiling(ceilings, "ceiling_bytes", "gbps")
    drawing.rows += [each[1] for each in (compute, memory) if each]

    xs = [point[2] for point in points]
    ridge = compute[0] * 1e3 / memory[0] if compute and memory else None
    low = min([*xs, ridge or 1.0, 1.0]) / 2
    high = max([*xs, ridge or 1.0, 100.0]) * 2.2
    if compute:
        start = ridge if ridge else low
        axes.plot([start, high], [compute[0]] * 2, color=INK, linewidth=1.6)
        axes.annotate(
            f"FFMA {format_number(compute[0])} TFLOP/s",
            (high, compute[0]),
            (-4, 5),
            textcoords="offset points",
            ha="right",
            va="bottom",
        )
    handles = [
        Line2D(
            [],
            [],
            linestyle="",
            marker=MARKERS[i % len(MARKERS)],
            color=PAPER if stale else SERIES[i % len(SERIES)],
            markeredgecolor=SERIES[i % len(SERIES)],
            markersize=8,
            label=level_name(kernel) + (" (stale)" if stale else ""),
        )
        for i, kernel, _, _, stale, _ in points
    ]
    for i, _, x, y, stale, _ in points:
        colour = SERIES[i % len(SERIES)]
        axes.plot(
            x,
            y,
            MARKERS[i % len(MARKERS)],
            color=PAPER if stale else colour,
            markeredgecolor=colour if stale else PAPER,
            markersize=9,
            markeredgewidth=1.4 if stale else 0.7,
            zorder=5,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    ys = [point[3] for point in points] + ([compute[0]] if compute else [])
    if ys:
        axes.set_ylim(min(ys) / 2.2, max(ys) * 2)
    if memory:
        bottom = axes.get_ylim()[0]
        start = max(low, bottom * 1e3 / memory[0])
        end = ridge if ridge else high
        axes.plot([start, end], [start * memory[0] / 1e3, end * memory[0] / 1e3], color=INK, linewidth=1.6)
    if not ys and not memory:
        _empty(axes, "not measured")
    axes.set_xlabel("arithmetic intensity (FLOP per byte of DRAM traffic)")
    axes.set_ylabel("throughput (TFLOP/s)")
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.grid(which="minor", linewidth=0.35)
    if handles:
        figure.legend(
            handles=handles[::-1], loc="center right", bbox_to_anchor=(1.0, 0.54), borderaxespad=0.2, labelspacing=0.9
        )
    sns.despine(figure)
    figure.tight_layout(rect=(0, 0, 0.79 if handles else 1, 1))
    if memory:
        # The angle is known only once the axes have their final size.
        start, end = max(low, axes.get_ylim()[0] * 1e3 / memory[0]), ridge or high
        ends = axes.transData.transform([(start, start * memory[0] / 1e3), (end, end * memory[0] / 1e3)])
        angle = float(np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1])))
        middle = float(np.sqrt(start * end))
        axes.annotate(
            f"DRAM copy {format_number(memory[0])} GB/s",
            (middle, middle * memory[0] / 1e3),
            (-6, 6),
            textcoords="offset points",
            rotation=angle,
            rotation_mode="anchor",
            ha="center",
            va="bottom",
        )

    if not points:
        traffic = ""
    elif counted_any and guessed_any:
        unknown = ", ".join(level_name(point[1]) for point in points if not point[5])
        traffic = (
            f"DRAM traffic is the profiler's count (dram__bytes.sum); for {unknown} the least possible stands in. "
        )
    elif counted_any:
        traffic = "DRAM traffic is the profiler's count (dram__bytes.sum). "
    else:
        traffic = (
            "No hardware counters were read, so all levels stand at the least possible DRAM traffic, each matrix "
            "crossing once: their true intensity is lower. "
        )
    missing = [name for name, found in (("arithmetic", compute), ("memory", memory)) if not found]
    roof = "The roof is this GPU's own, measured with a register-only FFMA loop and a 128-bit copy. "
    if missing:
        plural = len(missing) > 1
        roof = (
            f"The {' and '.join(missing)} ceiling{'s' if plural else ''} of this GPU {'were' if plural else 'was'} not "
        )
        roof += "measured. "
    built = f", built by {toolkit}" if toolkit else ""
    drawing.caption = (
        f"Throughput of each level against its arithmetic intensity, fp32, M = N = K = {size}, warm cache{built}. "
        f"{roof}{traffic}{_origin(measured)}{_stale_note(drawing.stale)}"
    )
    drawing.alt = "Roofline chart. " + (
        "; ".join(
            f"{level_name(k)}: {format_number(y)} TFLOP/s at {format_number(x)} FLOP per byte"
            for _, k, x, y, _, _ in points
        )
        + "."
        if points
        else "No measured levels."
    )
    return drawing


# --- files ----------------------------------------------------------------------------------------------------------


def svg_of(drawing: Drawing) -> str:
    """The figure as SVG text, without date, generator, or trailing blanks."""
    buffer = io.StringIO()
    drawing.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": drawing.title})
    plt.close(drawing.figure)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _clean(value: Any) -> Any:
    """JSON has no NaN: empty cells become null, numpy's numbers Python's."""
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def draw(measured: Measurements, ceilings: Measurements, names: Sequence[str] = NAMES) -> dict[str, Drawing]:
    """The named figures of a family."""
    _style()
    draw_one = {
        "ratio": lambda: draw_ratio(measured),
        "throughput": lambda: draw_throughput(measured),
        "roofline": lambda: draw_roofline(measured, ceilings),
    }
    return {name: draw_one[name]() for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a family's figures.")
    parser.add_argument("--family", required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows a family")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--png", action="store_true", help="write PNG too, for looking at")
    arguments = parser.parse_args()
    names = figure_names(arguments.family)
    if not names:
        arguments.out.mkdir(parents=True, exist_ok=True)
        print(f"family {arguments.family} names no figure")
        return 0
    measured = load(arguments.measure, arguments.family)
    drawings = draw(measured, load(arguments.measure, "ceilings"), names)
    for name, drawing in drawings.items():
        if arguments.png:
            arguments.out.mkdir(parents=True, exist_ok=True)
            drawing.figure.savefig(arguments.out / f"{name}.png", dpi=110)
        write_atomic(arguments.out / f"{name}.svg", svg_of(drawing))
        about = {
            "figure": name,
            "family": arguments.family,
            "title": drawing.title,
            "caption": drawing.caption,
            "alt": drawing.alt,
            "command": f"{SNAKEMAKE} --force results/figures/{arguments.family}/{name}.svg",
            "rows": drawing.rows,
            "columns": list(dict.fromkeys(key for row in drawing.table for key in row if key != "stale")),
            "table": _clean(drawing.table),
            "stale": bool(drawing.stale),
            "source": measured.source,
            "gpu": measured.gpu,
        }
        write_json(arguments.out / f"{name}.json", about)
    return 0


if __name__ == "__main__":
    run_stage(main)
