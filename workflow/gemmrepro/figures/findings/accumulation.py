"""F10, `accumulation`: the error of a dot product by where its sum is kept, for two kinds of operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import row_key
from gemmrepro.figures.ends import End, label
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.lines import size
from gemmrepro.figures.style import (
    MARKERS,
    SERIES,
    Drawing,
    between_decades,
    despine,
    empty,
    finding,
    origin,
    plain,
)
from gemmrepro.figures.widths import Page, both

FAMILY, EXPERIMENT = "ada", "accumulation"
LAWS = {"normal": "N(0, 1)", "uniform": "uniform in [0, 1)"}
INSIDE, LIBRARY = "ada.accumulate_inside", "cublas.gemm"
KEPT = {
    INSIDE: "inside mma",
    LIBRARY: "cuBLAS",
    "ada.accumulate_ffma": "fp32 FMA",
    "ada.accumulate_outside": "after each mma",
    "ada.accumulate_outside4": "after four mma",
    "ada.accumulate_compensated": "compensated",
}
"""Where the sum is kept, by kernel: in the tensor core, or in fp32 registers outside of it."""


@dataclass(frozen=True)
class Line:
    """Errors in units of 2^-24 by K; `stale` if any row is."""

    errors: Mapping[int, float]
    stale: bool
    keys: tuple[str, ...]


Panels = Mapping[str, Mapping[str, Line]]


def draw(inputs: Inputs) -> Drawing:
    """A panel per kind of operands."""
    shown = {law: merged(_lines(inputs, law)) for law in LAWS}
    wide, narrow = both(lambda page: _paint(shown, page))
    results = inputs.results.get(FAMILY, {}).get(EXPERIMENT)
    caption = (
        "Root mean square of an output's error over the sum of its products' magnitudes, in units of fp32's 2⁻²⁴; "
        "2048 by 2048 outputs, fp16 operands, against float64. Outside: each mma.sync begins at zero, and fp32 "
        f"additions collect its results. {origin(results) if results else 'Nothing was measured.'}"
    )
    lines = [line for panel in shown.values() for line in panel.values()]
    table: list[dict[str, object]] = [
        {"operands": LAWS[law], "sum kept": name, "K": k, "RMS error in 2^-24": error}
        for law, panel in shown.items()
        for name, line in panel.items()
        for k, error in line.errors.items()
    ]
    keys = [key for line in lines for key in line.keys]
    return Drawing(wide, _title(shown), caption, _alt(shown), keys, table, any(line.stale for line in lines), narrow)


def _lines(inputs: Inputs, law: str) -> dict[str, Line]:
    """The lines of one kind of operands, by where the sum is kept."""
    results = inputs.results.get(FAMILY, {}).get(EXPERIMENT)
    found: dict[str, Line] = {}
    for kernel, name in KEPT.items() if results is not None else ():
        assert results is not None
        rows = results.of(kernel, results.toolkit, law=law)
        rows = rows[rows["rms_u"].notna() & (rows["rms_u"] > 0)].sort_values("k")
        if len(rows):
            keys = tuple(row_key(FAMILY, EXPERIMENT, row, "law", "k") for _, row in rows.iterrows())
            errors = {int(row["k"]): float(row["rms_u"]) for _, row in rows.iterrows()}
            found[name] = Line(errors, bool((rows["status"] == "stale").any()), keys)
    return found


def merged(lines: Mapping[str, Line]) -> dict[str, Line]:
    """cuBLAS and sums inside mma as one line where they agree within 1% everywhere."""
    inside, library = lines.get(KEPT[INSIDE]), lines.get(KEPT[LIBRARY])
    if not inside or not library or inside.errors.keys() != library.errors.keys():
        return dict(lines)
    if any(abs(library.errors[k] / error - 1) > 0.01 for k, error in inside.errors.items()):
        return dict(lines)
    both_keys = Line(inside.errors, inside.stale or library.stale, (*inside.keys, *library.keys))
    rest = {name: line for name, line in lines.items() if name not in (KEPT[INSIDE], KEPT[LIBRARY])}
    return {f"{KEPT[INSIDE]}, {KEPT[LIBRARY]}": both_keys, **rest}


def _paint(shown: Panels, page: Page) -> Figure:
    shape = (2, 1) if page.narrow else (1, 2)
    figure, grid = plt.subplots(*shape, figsize=(page.width, page.pick(3.2, 5.4)), squeeze=False)
    for axes, (law, panel) in zip(grid.flat, shown.items(), strict=True):
        axes.set_title(LAWS[law], loc="left")
        if not panel:
            empty(axes, "not measured")
            continue
        for place, line in enumerate(panel.values()):
            x, y = list(line.errors), list(line.errors.values())
            axes.plot(x, y, f"{MARKERS[place]}-", color=SERIES[place], linewidth=1.4, markersize=4.2)
        _scales(axes, sorted({k for line in panel.values() for k in line.errors}))
    grid[0, 0].set_ylabel("RMS error in 2⁻²⁴")
    grid[-1, 0].set_xlabel("K")
    if not page.narrow:
        grid[0, 1].set_xlabel("K")
    despine(figure.axes)
    figure.tight_layout(rect=(0, 0, page.pick(0.84, 0.68), 1), w_pad=page.pick(10, 1), h_pad=1.2)
    for axes, panel in zip(grid.flat, shown.values(), strict=True):
        ends = [
            End(max(line.errors), line.errors[max(line.errors)], name.replace("inside mma, ", "mma = "), SERIES[place])
            for place, (name, line) in enumerate(panel.items())
        ]
        label(axes, ends, page)
    return figure


def _scales(axes: Axes, ks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ks[:: max(1, len(ks) // 3)]))
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlim(ks[0] / 1.3, ks[-1] * 1.2)
    between_decades(axes.yaxis)


def gain(panel: Mapping[str, Line]) -> tuple[int, float, float] | None:
    """The largest K at which sums inside and after each mma are known, and both errors there."""
    inside = next((line for name, line in panel.items() if name.startswith(KEPT[INSIDE])), None)
    outside = panel.get(KEPT["ada.accumulate_outside"])
    if not inside or not outside or not (common := inside.errors.keys() & outside.errors.keys()):
        return None
    k = max(common)
    return k, inside.errors[k], outside.errors[k]


def _title(shown: Panels) -> str:
    gains = [found for panel in shown.values() if (found := gain(panel))]
    if not gains:
        return "The error of a dot product by where its sum is kept: not measured"
    factors = sorted(inside / outside for _, inside, outside in gains)
    between = " to ".join(format_number(factor, 2) for factor in dict.fromkeys((factors[0], factors[-1])))
    return f"Sums kept inside the tensor core err {between} times as much as sums kept outside"


def _alt(shown: Panels) -> str:
    parts = [
        f"{LAWS[law]}, K = {size(k)}: {format_number(inside)} inside the tensor core, {format_number(outside)} outside"
        for law, panel in shown.items()
        if (found := gain(panel))
        for k, inside, outside in [found]
    ]
    if not parts:
        return "Lines of the error of a dot product by where its sum is kept, of which nothing was measured."
    return finding(
        f"RMS error in 2⁻²⁴ of a dot product. {'; '.join(parts)}.",
        "cuBLAS errs as sums inside do."
        if any(len(name.split(", ")) > 1 for p in shown.values() for name in p)
        else "",
    )
