"""The figure ``roofline``: throughput against arithmetic intensity, below this GPU's measured ceilings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gemmrepro import operations
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import convert, format_number
from gemmrepro.judge.ceilings import Ceiling, of_operation
from gemmrepro.measure.rows import Measurements, counter_key, cubes, is_current, row_key, select, toolkit_of
from gemmrepro.operations import Shape
from gemmrepro.paper.figures.style import (
    INK,
    MARKERS,
    PAPER,
    Drawing,
    EdgeLabel,
    between_decades,
    empty,
    label_right,
    origin,
    plain,
    ramp,
    stale_note,
)
from gemmrepro.registry import ladders


@dataclass(frozen=True)
class Level:
    """A step of the ladder: FLOP per byte of DRAM traffic, TFLOP/s, and whether the traffic was counted.

    `place` is the step's, of all of the ladder, measured or not.
    """

    name: str
    label: str
    place: int
    intensity: float
    tflops: float
    counted: bool
    stale: bool
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Roofline:
    """What the figure shows: measured levels, the arithmetic ceilings (the highest first) and the memory's."""

    dtype: str
    size: int
    toolkit: str
    origin: str
    steps: int
    levels: tuple[Level, ...]
    arithmetic: tuple[Ceiling, ...]
    memory: Ceiling | None

    @property
    def stale(self) -> bool:
        return any(level.stale for level in self.levels)

    @property
    def rows(self) -> list[str]:
        """The keys of the rows that it shows."""
        ceilings = [*self.arithmetic, *([self.memory] if self.memory else [])]
        return [key for level in self.levels for key in level.rows] + [ceiling.key for ceiling in ceilings]

    @property
    def ridge(self) -> float | None:
        """FLOP per byte at which the roof's two parts meet."""
        return self.arithmetic[0].value * 1e3 / self.memory.value if self.arithmetic and self.memory else None

    def x_limits(self) -> tuple[float, float]:
        """All levels, the ridge, and 1 to 100 FLOP per byte, with a margin."""
        shown = [*(level.intensity for level in self.levels), self.ridge or 1.0]
        return min([*shown, 1.0]) / 2, max([*shown, 100.0]) * 2.2

    def y_limits(self) -> tuple[float, float] | None:
        """All levels and the highest ceiling, with a margin; None where there is neither."""
        shown = [level.tflops for level in self.levels] + [ceiling.value for ceiling in self.arithmetic[:1]]
        return (min(shown) / 2.2, max(shown) * 2) if shown else None


def dram_bytes(measured: Measurements, kernel: str, toolkit: str, n: int) -> tuple[float, str] | None:
    """Bytes that one launch moved to and from DRAM, by the profiler's count, and the key of the counter's row."""
    rows = select(measured.counters, kernel=kernel, toolkit=toolkit, metric="dram__bytes.sum", n=n, k=n)
    for _, row in rows[is_current(rows)].iterrows():
        value = convert(row["value"], row["unit"], "byte")
        if value:
            return value, "counters:" + counter_key(row)
    return None


def draw(measured: Measurements, ceilings: Measurements | None) -> Drawing:
    """The steps of the family's first type at the article's size."""
    roofline = selection(measured, ceilings)
    return Drawing(
        paint(roofline),
        f"Roofline at {roofline.size}, {roofline.dtype}",
        caption(roofline),
        alt(roofline),
        roofline.rows,
        table(roofline),
        roofline.stale,
    )


def selection(measured: Measurements, ceilings: Measurements | None) -> Roofline:
    """The warm rows of the family's first type at SIZE, or at the largest size where that was not measured."""
    steps = ladders.steps(measured.family)
    dtype = next(iter(ladders.dtypes(measured.family)), "fp32")
    toolkit = toolkit_of(measured) or ""
    warm = cubes(select(measured.summary, cache="warm", toolkit=toolkit, dtype=dtype))
    warm = warm[warm["tflops"].notna()]
    sizes = sorted({int(n) for n in warm["n"]})
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    levels = []
    for place, kernel in enumerate(steps):
        rows = select(warm, kernel=kernel.id, n=size)
        if rows.empty:
            continue
        row = rows.iloc[-1]
        counted = dram_bytes(measured, kernel.id, toolkit, size)
        # Without counters: each matrix crosses the bus once, and C is written, not read (beta = 0).
        traffic = counted[0] if counted else operations.nbytes(kernel.problem, Shape.cube(size))
        levels.append(
            Level(
                name=ladders.level_name(kernel),
                label=ladders.label(kernel),
                place=place,
                intensity=2 * size**3 / traffic,
                tflops=float(row["tflops"]),
                counted=counted is not None,
                stale=row["status"] == "stale",
                rows=(row_key(row), *([counted[1]] if counted else [])),
            )
        )
    return Roofline(
        dtype,
        size,
        toolkit,
        origin(measured),
        len(steps),
        tuple(levels),
        tuple(of_operation(ceilings, "ceiling_flops", dtype)) if ceilings else (),
        next(iter(of_operation(ceilings, "ceiling_bytes")), None) if ceilings else None,
    )


def paint(roofline: Roofline) -> Figure:
    """Draw it."""
    figure, axes = plt.subplots(figsize=(7.6, 4.7))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*roofline.x_limits())
    if limits := roofline.y_limits():
        axes.set_ylim(*limits)
    for place, ceiling in enumerate(roofline.arithmetic):
        _roof(axes, roofline, ceiling, place == 0)
    for level in roofline.levels:
        colour = ramp(level.place, roofline.steps)
        axes.plot(
            level.intensity,
            level.tflops,
            MARKERS[level.place % len(MARKERS)],
            color=PAPER if level.stale else colour,
            markeredgecolor=colour if level.stale else PAPER,
            markersize=9,
            markeredgewidth=1.4 if level.stale else 0.7,
            zorder=5,
        )
    if roofline.memory:
        slope = roofline.memory.value
        start, end = _memory_span(axes, roofline, roofline.memory)
        axes.plot([start, end], [start * slope / 1e3, end * slope / 1e3], color=INK, linewidth=1.6)
    elif not limits:
        empty(axes, "not measured")
    _finish(axes)
    sns.despine(figure)
    figure.tight_layout(rect=(0, 0, 0.72 if roofline.levels else 1, 1))
    label_right(axes, [_label(level, roofline.steps) for level in roofline.levels])
    if roofline.memory:
        _name_memory(axes, roofline, roofline.memory)
    return figure


def _roof(axes: Axes, roofline: Roofline, ceiling: Ceiling, highest: bool) -> None:
    """One arithmetic ceiling from where the memory's meets it. The roof's name is above it, a lower one's below."""
    low, high = roofline.x_limits()
    start = max(low, ceiling.value * 1e3 / roofline.memory.value) if roofline.memory else low
    axes.plot(
        [start, high],
        [ceiling.value] * 2,
        color=INK,
        linewidth=1.6 if highest else 1.0,
        linestyle="-" if highest else (0, (5, 2)),
    )
    axes.annotate(
        f"{ceiling.label} {format_number(ceiling.value)}" + (" TFLOP/s" if highest else ""),
        (high if highest else start * 1.05, ceiling.value),
        (-4, 5) if highest else (0, -4),
        textcoords="offset points",
        ha="right" if highest else "left",
        va="bottom" if highest else "top",
        fontsize=10 if highest else 9,
    )


def _memory_span(axes: Axes, roofline: Roofline, memory: Ceiling) -> tuple[float, float]:
    """FLOP per byte between which the memory's ceiling is in sight."""
    low, high = roofline.x_limits()
    return max(low, axes.get_ylim()[0] * 1e3 / memory.value), roofline.ridge or high


def _name_memory(axes: Axes, roofline: Roofline, memory: Ceiling) -> None:
    """The memory ceiling's name along its line. The angle is known only once the axes have their final size."""
    slope = memory.value
    start, end = _memory_span(axes, roofline, memory)
    ends = axes.transData.transform([(start, start * slope / 1e3), (end, end * slope / 1e3)])
    middle = float(np.sqrt(start * end))
    axes.annotate(
        f"DRAM {memory.label} {format_number(memory.value)} GB/s",
        (middle, middle * slope / 1e3),
        (-6, 6),
        textcoords="offset points",
        rotation=float(np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1]))),
        rotation_mode="anchor",
        ha="center",
        va="bottom",
    )


def _finish(axes: Axes) -> None:
    axes.set_xlabel("arithmetic intensity (FLOP per byte of DRAM traffic)")
    axes.set_ylabel("throughput (TFLOP/s)")
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    between_decades(axes.yaxis)
    axes.tick_params(axis="y", which="minor", labelsize=8.5)
    axes.grid(which="minor", linewidth=0.35)


def _label(level: Level, steps: int) -> EdgeLabel:
    text = f"{level.label} (stale)" if level.stale else level.label
    return EdgeLabel(level.intensity, level.tflops, text, ramp(level.place, steps), level.place == steps - 1)


def caption(roofline: Roofline) -> str:
    built = f", built by {roofline.toolkit}" if roofline.toolkit else ""
    return (
        f"Throughput of each level against its arithmetic intensity, {roofline.dtype}, M = N = K = {roofline.size}, "
        f"warm cache{built}. {_roof_sentence(roofline)}{_traffic_sentence(roofline)}{roofline.origin}"
        f"{stale_note(roofline.stale)}"
    )


def _roof_sentence(roofline: Roofline) -> str:
    """Which ceilings are drawn, or which are missing."""
    present = {"arithmetic": bool(roofline.arithmetic), "memory": bool(roofline.memory)}
    missing = [name for name, is_present in present.items() if not is_present]
    if len(missing) > 1:
        return f"The {' and '.join(missing)} ceilings of this GPU were not measured. "
    if missing:
        return f"The {missing[0]} ceiling of this GPU was not measured. "
    sentence = (
        f"The roof was measured on this GPU, with a loop of arithmetic alone ({roofline.dtype}) and a copy of 128-bit "
        "words. "
    )
    lower = [f"{ceiling.label} {format_number(ceiling.value)} TFLOP/s" for ceiling in roofline.arithmetic[1:]]
    if lower:
        sentence += f"Dashed: loops with more constraints ({', '.join(lower)}). "
    return sentence


def _traffic_sentence(roofline: Roofline) -> str:
    """Where the traffic comes from."""
    if not roofline.levels:
        return ""
    assumed = [level.name for level in roofline.levels if not level.counted]
    if not assumed:
        return "DRAM traffic is the profiler's count (dram__bytes.sum). "
    if len(assumed) < len(roofline.levels):
        return (
            "DRAM traffic is the profiler's count (dram__bytes.sum), or, where there is none, the compulsory traffic, "
            f"each matrix crossing the bus once: {', '.join(assumed)}. "
        )
    return (
        "No hardware counters were read: all levels are drawn with the compulsory DRAM traffic, each matrix crossing "
        "the bus once, and their true intensity is lower. "
    )


def alt(roofline: Roofline) -> str:
    values = [
        f"{level.name}: {format_number(level.tflops)} TFLOP/s at {format_number(level.intensity)} FLOP per byte"
        for level in roofline.levels
    ]
    return f"Roofline chart. {'; '.join(values)}." if values else "Roofline chart. No measured levels."


def table(roofline: Roofline) -> list[dict[str, Any]]:
    return [
        {
            "level": level.name,
            "FLOP/byte": level.intensity,
            "traffic": "counted" if level.counted else "compulsory",
            "TFLOP/s": level.tflops,
            "stale": level.stale,
        }
        for level in roofline.levels
    ]
