"""The figure ``climb``: how each level of a ladder comes nearer to cuBLAS and to what the GPU can do at most."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number
from gemmrepro.judge.ceilings import computed_peak, of_operation
from gemmrepro.measure.rows import Measurements, cubes, row_key, select, toolkit_of
from gemmrepro.paper.figures.style import FIRST, INK, LAST, PAPER, TUNED, Drawing, empty, origin, plain, stale_note
from gemmrepro.registry import ladders

SIZES = (4096, 8192, 16384)

STEP = 0.27
"""Inches a level."""

_DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))


def draw(measured: Measurements, ceilings: Measurements) -> Drawing:
    """A panel for each size with a bar a level; cuBLAS and the ceilings of the ladder's type are lines across it."""
    steps = ladders.steps(measured.family)
    dtype = next(iter(ladders.dtypes(measured.family)), "fp32")
    toolkit = toolkit_of(measured) or ""
    warm = cubes(select(measured.summary, cache="warm", dtype=dtype))
    warm = warm[warm["tflops"].notna()]
    there = sorted({int(n) for n in warm["n"]})
    sizes = [size for size in SIZES if size in there] or there[-1:] or [SIZES[0]]

    figure, panels = plt.subplots(
        1, len(sizes), figsize=(7.6, STEP * len(steps) + 1.95), sharey=True, sharex=True, squeeze=False
    )
    drawing = Drawing(figure, f"The climb, {dtype}")
    measured_roofs = of_operation(ceilings, "ceiling_flops", dtype)
    computed = computed_peak(measured.run.get("gpu"), dtype)
    drawing.rows += [roof.key for roof in measured_roofs]
    roofs = [
        (roof.value, _DASHES[place % 2 * 2], f"{roof.label} loop, measured: {format_number(roof.value)}")
        for place, roof in enumerate(measured_roofs)
    ]
    roofs += [(computed[0], _DASHES[1], f"computed peak: {format_number(computed[0])}")] if computed else []
    # An interval may reach further than any bar.
    shown = warm[warm["n"].isin(sizes) & (warm["ci_low_us"] > 0)]
    ends = shown["tflops"] * shown["median_us"] / shown["ci_low_us"]
    reach = max([*warm["tflops"], *ends, *(value for value, _, _ in roofs)], default=1.0)
    tuned_drawn = False
    said: list[str] = []
    for axes, size in zip(panels[0], sizes, strict=True):
        at = select(warm, n=size)
        for place, kernel in enumerate(steps):
            twins = [twin for twin in ladders.twins(kernel) if twin.dtype_in == dtype]
            beside = select(at[at["kernel"].isin([twin.id for twin in twins])], toolkit=toolkit)["tflops"].max()
            beside = 0.0 if pd.isna(beside) else float(beside)
            for each in [kernel, *twins]:
                found = select(at, kernel=each.id, toolkit=toolkit)
                if found.empty:
                    continue
                row = found.iloc[-1]
                stale = row["status"] == "stale"
                drawing.stale |= stale
                drawing.rows.append(row_key(row))
                drawing.table.append(
                    {
                        "level": ladders.level_name(each),
                        "size": size,
                        "TFLOP/s": row["tflops"],
                        "ratio to cuBLAS": row["ratio"],
                        **({"of the highest loop": row["tflops"] / measured_roofs[0].value} if measured_roofs else {}),
                        "clock, MHz": row["clock_mhz"],
                        "power, W": row["power_w"],
                        "stale": bool(stale),
                    }
                )
                if each is not kernel:
                    tuned_drawn = True
                    face = PAPER if stale else TUNED
                    axes.plot(row["tflops"], place, "d", color=face, markeredgecolor=TUNED, markersize=6.5, zorder=5)
                    continue
                _bar(axes, place, row, stale, LAST if place == len(steps) - 1 else FIRST, reach, beside)
                said.append(f"{ladders.level_name(kernel)} {format_number(row['tflops'])} at {size}")
        title = f"{size}"
        for name in dict.fromkeys(kernel.baseline for kernel in steps):
            found = select(at, kernel=name, toolkit=LIBRARY)
            if found.empty:
                continue
            row = found.iloc[-1]
            axes.axvline(row["tflops"], color=INK, linewidth=1.8, zorder=4)
            title += f"\ncuBLAS {format_number(row['tflops'])}"
            drawing.rows.append(row_key(row))
            drawing.table.append(
                {
                    "level": "cuBLAS",
                    "size": size,
                    "TFLOP/s": row["tflops"],
                    "ratio to cuBLAS": 1.0,
                    "clock, MHz": row["clock_mhz"],
                    "power, W": row["power_w"],
                }
            )
            said.append(f"cuBLAS {format_number(row['tflops'])} at {size}")
        for value, dash, _ in roofs:
            axes.axvline(value, color=INK, linewidth=1.2, linestyle=dash, zorder=3)
        if at.empty:
            empty(axes, "not measured")
        axes.set_title(title, loc="left")
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("TFLOP/s")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.tick_params(axis="y", length=0)
    for roof in measured_roofs:
        cells = {"level": f"{roof.label} loop, measured", "TFLOP/s": roof.value}
        drawing.table.append({**cells, "clock, MHz": roof.clock_mhz, "power, W": roof.power_w})
    if computed:
        clock = (measured.run.get("gpu") or {}).get("clock_max_mhz")
        drawing.table.append({"level": "computed peak", "TFLOP/s": computed[0], "clock, MHz": clock})
    first = panels[0][0]
    first.set_yticks(range(len(steps)), [ladders.label(kernel) for kernel in steps])
    first.set_ylim(len(steps) - 0.45, -0.55)
    first.set_xlim(0, 1.04 * reach)

    handles = []
    if warm["kernel"].isin([kernel.id for kernel in steps]).any():
        handles += [Patch(facecolor=FIRST, edgecolor=INK, linewidth=0.6, label="level")]
        handles += [Patch(facecolor=LAST, edgecolor=INK, linewidth=0.6, label="last level")]
    if tuned_drawn:
        handles.append(Line2D([], [], linestyle="", marker="d", color=TUNED, markersize=6.5, label="tuned"))
    if any(entry["level"] == "cuBLAS" for entry in drawing.table):
        handles.append(Line2D([], [], color=INK, linewidth=1.8, label="cuBLAS"))
    handles += [Line2D([], [], color=INK, linewidth=1.2, linestyle=dash, label=label) for _, dash, label in roofs]
    columns = 3
    lines = -(-len(handles) // columns)
    if handles:
        figure.legend(
            handles=handles,
            loc="upper left",
            ncols=columns,
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.3,
            handlelength=2.2,
        )
    sns.despine(figure, left=True)
    inches = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.12 + 0.2 * lines) / inches), w_pad=1.0)

    lines_said = []
    for roof in measured_roofs:
        conditions = f" at {roof.conditions}" if roof.conditions else ""
        lines_said.append(
            f"{roof.label} loop, which does nothing else, measured: {format_number(roof.value)} TFLOP/s{conditions}"
        )
    if computed:
        lines_said.append(f"computed peak: {format_number(computed[0])} TFLOP/s, {computed[1]}")
    across = f"Lines across the panels: {'; '.join(lines_said)}." if lines_said else ""
    missing = "" if measured_roofs else f" No ceiling of {dtype} was measured."
    drawing.caption = (
        f"Throughput of each level, {dtype}, warm cache, at {_listed(sizes)} with cuBLAS of the same size"
        f"{f', built by {toolkit}' if toolkit else ''}. "
        f"{'Diamonds: the same source with constants found on this GPU. ' if tuned_drawn else ''}"
        f"{across}{missing} "
        f"Numbers with clock and power are below. {origin(measured)}{stale_note(drawing.stale)}"
    )
    drawing.alt = (
        "Bars of throughput in TFLOP/s by level and size. " + "; ".join(said) + "."
        if said
        else "Bar chart without data."
    )
    return drawing


def _bar(axes: Axes, place: int, row: pd.Series, stale: bool, colour: str, reach: float, beside: float) -> None:
    """One level's bar, interval and value; `reach` is the panel's width, `beside` where its twins' marks end."""
    value = float(row["tflops"])
    axes.barh(
        place,
        value,
        0.66,
        color=PAPER if stale else colour,
        edgecolor=colour if stale else INK,
        linewidth=1.2 if stale else 0.6,
        linestyle="--" if stale else "-",
        zorder=2,
    )
    low, high = value * row["median_us"] / row["ci_high_us"], value * row["median_us"] / row["ci_low_us"]
    interval_end = value
    if np.isfinite(low) and np.isfinite(high):
        interval_end = high
        error = [[max(0.0, value - low)], [max(0.0, high - value)]]
        axes.errorbar(value, place, xerr=error, color=INK, capsize=2, linewidth=1, zorder=4.5)
    # Inside the bar where there is room for it, else beside it.
    inside = value > 0.3 * reach
    axes.annotate(
        # Behind a twin's mark the number must not read as the twin's.
        format_number(value) + (" untuned" if not inside and beside > value else ""),
        (0 if inside else max(value, interval_end, beside), place),
        (4 if inside else 8, -0.5),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=PAPER if inside and not stale else INK,
        fontweight="bold" if colour == LAST else "normal",
        zorder=6,
    )


def _listed(sizes: Sequence[int]) -> str:
    parts = [f"M = N = K = {sizes[0]}", *(str(size) for size in sizes[1:])]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
