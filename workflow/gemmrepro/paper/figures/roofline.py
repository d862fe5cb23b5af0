"""The figure ``roofline``: throughput against arithmetic intensity, below this GPU's measured ceilings."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.ticker import FuncFormatter

from gemmrepro import operations
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import convert, format_number
from gemmrepro.judge.ceilings import of_operation
from gemmrepro.measure.rows import Measurements, counter_key, cubes, is_current, row_key, select, toolkit_of
from gemmrepro.operations import Shape
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    Drawing,
    between_decades,
    empty,
    label_right,
    origin,
    plain,
    ramp,
    stale_note,
)
from gemmrepro.registry import Kernel, ladders


@dataclass(frozen=True)
class Point:
    """A level in the figure: FLOP a byte, TFLOP/s, and whether its traffic was counted."""

    kernel: Kernel
    x: float
    y: float
    colour: str
    marker: str
    stale: bool
    counted: bool
    last: bool


def dram_bytes(measured: Measurements, kernel: str, toolkit: str, n: int) -> tuple[float, str] | None:
    """Bytes that one launch moved to and from DRAM, by the profiler's count, and the key of the counter's row."""
    rows = select(measured.counters, kernel=kernel, toolkit=toolkit, metric="dram__bytes.sum", n=n, k=n)
    for _, row in rows[is_current(rows)].iterrows():
        value = convert(row["value"], row["unit"], "byte")
        if value:
            return value, "counters:" + counter_key(row)
    return None


def draw(measured: Measurements, ceilings: Measurements) -> Drawing:
    """The steps of the family's first type at the article's size."""
    steps = ladders.steps(measured.family)
    dtype = next(iter(ladders.dtypes(measured.family)), "fp32")
    toolkit = toolkit_of(measured) or ""
    warm = cubes(select(measured.summary, cache="warm", toolkit=toolkit, dtype=dtype))
    warm = warm[warm["tflops"].notna()]
    sizes = sorted({int(n) for n in warm["n"]})
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    figure, axes = plt.subplots(figsize=(7.6, 4.7))
    drawing = Drawing(figure, f"Roofline at {size}, {dtype}")
    points: list[Point] = []
    for place, kernel in enumerate(steps):
        rows = select(warm, kernel=kernel.id, n=size)
        if rows.empty:
            continue
        row = rows.iloc[-1]
        counted = dram_bytes(measured, kernel.id, toolkit, size)
        # Without counters: each matrix crosses the bus once, and C is written, not read (beta = 0).
        traffic = counted[0] if counted else operations.nbytes(kernel.problem, Shape.cube(size))
        stale = row["status"] == "stale"
        drawing.stale |= stale
        drawing.rows += [row_key(row)] + ([counted[1]] if counted else [])
        look = ramp(place, len(steps)), MARKERS[place % len(MARKERS)], bool(stale)
        intensity = 2 * size**3 / traffic
        points.append(
            Point(kernel, intensity, float(row["tflops"]), *look, counted is not None, place == len(steps) - 1)
        )
        drawing.table.append(
            {
                "level": ladders.level_name(kernel),
                "FLOP/byte": intensity,
                "traffic": "counted" if counted else "least possible",
                "TFLOP/s": row["tflops"],
                "stale": bool(stale),
            }
        )
    roofs = of_operation(ceilings, "ceiling_flops", dtype)
    compute = roofs[0] if roofs else None
    memory = next(iter(of_operation(ceilings, "ceiling_bytes")), None)
    drawing.rows += [each.key for each in (*roofs, memory) if each]

    ridge = compute.value * 1e3 / memory.value if compute and memory else None
    xs = [point.x for point in points]
    low = min([*xs, ridge or 1.0, 1.0]) / 2
    high = max([*xs, ridge or 1.0, 100.0]) * 2.2
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    ys = [point.y for point in points] + [roof.value for roof in roofs[:1]]
    if ys:
        axes.set_ylim(min(ys) / 2.2, max(ys) * 2)
    for place, roof in enumerate(roofs):
        start = max(low, roof.value * 1e3 / memory.value) if memory else low
        style = {"linewidth": 1.6} if not place else {"linewidth": 1.0, "linestyle": (0, (5, 2))}
        axes.plot([start, high], [roof.value] * 2, color=INK, **style)
        text = f"{roof.label} {format_number(roof.value)}" + (" TFLOP/s" if not place else "")
        # The roof's name stands above it, that of a lower ceiling, further left, below.
        where, gap, side = (high, 5, "bottom") if not place else (start * 1.05, -4, "top")
        axes.annotate(
            text,
            (where, roof.value),
            (-4 if not place else 0, gap),
            textcoords="offset points",
            ha="left" if place else "right",
            va=side,
            fontsize=9 if place else 10,
        )
    for point in points:
        axes.plot(
            point.x,
            point.y,
            point.marker,
            color=PAPER if point.stale else point.colour,
            markeredgecolor=point.colour if point.stale else PAPER,
            markersize=9,
            markeredgewidth=1.4 if point.stale else 0.7,
            zorder=5,
        )
    if memory:
        start = max(low, axes.get_ylim()[0] * 1e3 / memory.value)
        end = ridge if ridge else high
        axes.plot([start, end], [start * memory.value / 1e3, end * memory.value / 1e3], color=INK, linewidth=1.6)
    if not ys and not memory:
        empty(axes, "not measured")
    axes.set_xlabel("arithmetic intensity (FLOP per byte of DRAM traffic)")
    axes.set_ylabel("throughput (TFLOP/s)")
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    between_decades(axes.yaxis)
    axes.tick_params(axis="y", which="minor", labelsize=8.5)
    axes.grid(which="minor", linewidth=0.35)
    sns.despine(figure)
    figure.tight_layout(rect=(0, 0, 0.72 if points else 1, 1))
    label_right(
        axes,
        [
            (point.x, point.y, ladders.label(point.kernel) + " (stale)" * point.stale, point.colour, point.last)
            for point in points
        ],
    )
    if memory:
        # The angle is known only once the axes have their final size.
        start, end = max(low, axes.get_ylim()[0] * 1e3 / memory.value), ridge or high
        ends = axes.transData.transform([(start, start * memory.value / 1e3), (end, end * memory.value / 1e3)])
        angle = float(np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1])))
        middle = float(np.sqrt(start * end))
        axes.annotate(
            f"DRAM {memory.label} {format_number(memory.value)} GB/s",
            (middle, middle * memory.value / 1e3),
            (-6, 6),
            textcoords="offset points",
            rotation=angle,
            rotation_mode="anchor",
            ha="center",
            va="bottom",
        )

    missing = [name for name, found in (("arithmetic", compute), ("memory", memory)) if not found]
    roof_said = (
        f"The roof is this GPU's own, measured with a loop that does nothing else ({dtype}) and a 128-bit copy. "
    )
    if missing:
        plural = len(missing) > 1
        roof_said = f"The {' and '.join(missing)} ceiling{'s' if plural else ''} of this GPU "
        roof_said += f"{'were' if plural else 'was'} not measured. "
    elif len(roofs) > 1:
        lower = ", ".join(f"{roof.label} {format_number(roof.value)} TFLOP/s" for roof in roofs[1:])
        roof_said += f"Dashed: what a loop under further conditions reaches ({lower}). "
    built = f", built by {toolkit}" if toolkit else ""
    drawing.caption = (
        f"Throughput of each level against its arithmetic intensity, {dtype}, M = N = K = {size}, warm cache{built}. "
        f"{roof_said}{_traffic_said(points)}{origin(measured)}{stale_note(drawing.stale)}"
    )
    drawing.alt = "Roofline chart. " + (
        "; ".join(
            f"{ladders.level_name(point.kernel)}: {format_number(point.y)} TFLOP/s "
            f"at {format_number(point.x)} FLOP per byte"
            for point in points
        )
        + "."
        if points
        else "No measured levels."
    )
    return drawing


def _traffic_said(points: list[Point]) -> str:
    """Where the traffic comes from, as a sentence."""
    if not points:
        return ""
    guessed = [ladders.level_name(point.kernel) for point in points if not point.counted]
    if not guessed:
        return "DRAM traffic is the profiler's count (dram__bytes.sum). "
    if len(guessed) < len(points):
        return (
            "DRAM traffic is the profiler's count (dram__bytes.sum); for "
            f"{', '.join(guessed)} the least possible stands in. "
        )
    return (
        "No hardware counters were read, so all levels stand at the least possible DRAM traffic, each matrix "
        "crossing once: their true intensity is lower. "
    )
