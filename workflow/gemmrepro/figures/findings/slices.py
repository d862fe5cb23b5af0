"""F12, `slices`: what a shorter product of bf16 slices gains and loses, published and measured."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Mark
from gemmrepro.figures.findings.parts import Inputs, legend_above, pair_handles
from gemmrepro.figures.style import FIRST, INK, PAPER, PUBLISHED, Drawing, despine, empty, finding, plain
from gemmrepro.figures.widths import Page, both

PANELS = {
    "speed": ("speed relative to cuBLAS FP64", False),
    "gain": ("speed relative to d = 9", False),
    "error": ("relative error", True),
}


def draw(inputs: Inputs) -> Drawing:
    """Speed, gain and error against the cut-off d."""
    marks = inputs.marks("ozaki", "sweep_d")
    hardware = next((printed.hardware for mark in marks for printed in mark.printed), "")
    wide, narrow = both(lambda page: _paint(marks, page, hardware, inputs.gpu))
    caption = (
        "The sweep of the cut-off d at 16384, bf16 slices: speed relative to cuBLAS FP64 of the same GPU, speed "
        f"relative to d = 9, and the error against cuBLAS. Hollow: as published for {hardware or 'no GPU'}."
    )
    table: list[dict[str, object]] = [
        {
            "panel": mark.panel,
            "d": int(float(mark.x)),
            "published": mark.printed[0].value if mark.printed else None,
            "measured": mark.measured.value if mark.measured else None,
        }
        for mark in marks
        if mark.panel in PANELS
    ]
    keys = [key for mark in marks if mark.measured for key in mark.measured.keys]
    stale = any(mark.measured.stale for mark in marks if mark.measured)
    return Drawing(wide, _title(marks), caption, _alt(marks, inputs.gpu), keys, table, stale, narrow)


def _paint(marks: Sequence[Mark], page: Page, hardware: str, gpu: str) -> Figure:
    shape = (3, 1) if page.narrow else (1, 3)
    figure, grid = plt.subplots(*shape, figsize=(page.width, page.pick(2.9, 5.6)), squeeze=False)
    for axes, (name, (label, log)) in zip(grid.flat, PANELS.items(), strict=True):
        own = sorted((mark for mark in marks if mark.panel == name), key=lambda mark: float(mark.x))
        there = [(float(mark.x), mark.printed[0].value) for mark in own if mark.printed]
        here = [(float(mark.x), mark.measured.value) for mark in own if mark.measured]
        look = {"markeredgecolor": PUBLISHED, "markeredgewidth": 1.5, "markersize": 8, "markerfacecolor": PAPER}
        axes.plot([x for x, _ in there], [y for _, y in there], "D--", color=PUBLISHED, linewidth=1.2, **look)
        axes.plot([x for x, _ in here], [y for _, y in here], "o-", color=FIRST, linewidth=1.5, markersize=5)
        if log and (there or here):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(plain))
        else:
            axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
            axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.set_title(label, loc="left")
        axes.set_xticks(range(5, 10))
        axes.set_xlabel("cut-off d")
        if not own:
            empty(axes, "not measured")
    despine(figure.axes)
    top = legend_above(figure, pair_handles(hardware, gpu), int(page.pick(2, 2)))
    figure.tight_layout(rect=(0, 0, 1, top), w_pad=1.5)
    return figure


def _ends(marks: Sequence[Mark], panel: str) -> tuple[Mark, Mark] | None:
    """The marks at the smallest and the largest d that have both sides."""
    own = sorted((m for m in marks if m.panel == panel and m.printed and m.measured), key=lambda mark: float(mark.x))
    return (own[0], own[-1]) if own else None


def _title(marks: Sequence[Mark]) -> str:
    ends = _ends(marks, "speed")
    if not ends or not ends[0].measured:
        return "Slices and their cut-off d: not measured"
    there, here = ends[0].printed[0].value, ends[0].measured.value
    if here < 1 <= there:
        return f"Slices pass cuBLAS in print ({format_number(there)}) and not here ({format_number(here)})"
    return f"At the shortest cut-off slices reach {format_number(here)} of cuBLAS here, {format_number(there)} in print"


def _alt(marks: Sequence[Mark], gpu: str) -> str:
    ends, errors = _ends(marks, "speed"), [m for m in marks if m.panel == "error" and m.printed and m.measured]
    if not ends or not ends[0].measured:
        return "Speed and error of bf16 slices against their cut-off d, of which nothing was measured."
    near = sum(abs(m.measured.value / m.printed[0].value - 1) <= 0.1 for m in errors if m.measured)
    return finding(
        f"At d = {float(ends[0].x):.0f} slices run at {format_number(ends[0].measured.value)} of cuBLAS FP64 on {gpu}, "
        f"published {format_number(ends[0].printed[0].value)}.",
        f"Of {len(errors)} errors {near} agree within 10%.",
    )
