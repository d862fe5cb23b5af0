"""F6, `shares`: why a ratio to cuBLAS falls: the share of the chip that the kernel and cuBLAS take, there and here."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from gemmrepro.figures import ratio
from gemmrepro.figures.ends import End, label
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.style import FIRST, INK, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both

FAMILY = "ladder"


def draw(inputs: Inputs) -> Drawing:
    """Two slopes."""
    found, keys, stale = _shares(inputs)
    name, hardware = next(iter(found), "the kernel"), _hardware(inputs)
    wide, narrow = both(lambda page: _paint(found, page, hardware, inputs.gpu))
    caption = (
        f"Throughput at 4096 as a share of the chip's fp32 rate: by the data sheet as published for {hardware}, by the "
        f"suite's loop of multiply-adds as measured. cuBLAS's share is that of {name} over its ratio, so that both are "
        f"of the same moment. {origin(inputs.measured[FAMILY])}"
    )
    table: list[dict[str, object]] = [
        {"of": label, f"share, {hardware}": there, f"share, {inputs.gpu}": here}
        for label, (there, here) in found.items()
    ]
    return Drawing(wide, _title(found), caption, _alt(found, inputs.gpu, hardware), keys, table, stale, narrow)


def _hardware(inputs: Inputs) -> str:
    marks = inputs.marks(FAMILY, "roadmap")
    return next((one.hardware.removeprefix("NVIDIA ") for mark in marks for one in mark.printed), "the article's GPU")


def _shares(inputs: Inputs) -> tuple[Mapping[str, tuple[float, float]], list[str], bool]:
    """The shares there and here of the last level with both, and of cuBLAS beside it; the rows and whether stale."""
    groups = {group.label: group for group in ratio.selection(inputs.measured[FAMILY]).groups if group.published}
    marks = [
        mark for mark in inputs.marks(FAMILY, "roadmap") if mark.panel == "share" and mark.printed and mark.measured
    ]
    for mark in reversed(marks):
        rung = str(mark.x).partition(" ")[0]
        group = next((group for label, group in groups.items() if label.partition(" ")[0] == rung), None)
        if group and group.published and group.bars[0].drawn and mark.measured:
            own = group.bars[0].drawn[-1]
            there, here = mark.printed[0].value, mark.measured.value
            pairs = {group.label: (there, here), "cuBLAS": (there / group.published, here / own.value)}
            return pairs, [*mark.measured.keys, own.key], mark.measured.stale or own.stale
    return {}, [], False


def _paint(found: Mapping[str, tuple[float, float]], page: Page, hardware: str, gpu: str) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 2.9))
    axes.set_xticks([0, 1], [hardware, gpu])
    axes.set_xlim(-page.pick(0.12, 0.3), 1.06)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("share of the chip's fp32 rate")
    if not found:
        empty(axes, "not measured")
        return figure
    looks = (FIRST, INK)
    for colour, (there, here) in zip(looks, found.values(), strict=True):
        axes.plot([0, 1], [there, here], "o-", color=colour, linewidth=2, markersize=6)
        above = there == max(value for value, _ in found.values())
        # Left of the upper line, which rises.
        place, side = ((-4, 4), "right") if above else ((0, -14), "center")
        axes.annotate(f"{there:.0%}", (0, there), place, textcoords="offset points", ha=side, color=colour)
    values = [value for both_ends in found.values() for value in both_ends]
    axes.set_ylim(min(values) - 0.08, max(values) + 0.06)
    despine(figure.axes)
    figure.tight_layout(rect=(0, 0, page.pick(0.78, 0.68), 1))
    ends = [
        End(1, here, f"{here:.0%} {name}", colour)
        for colour, (name, (_, here)) in zip(looks, found.items(), strict=True)
    ]
    label(axes, ends, page)
    return figure


def _title(found: Mapping[str, tuple[float, float]]) -> str:
    if not found:
        return "Shares of the chip, there and here: not measured"
    kernel, library = (here - there for there, here in found.values())
    if library <= kernel + 0.02:
        return "The kernel kept up with cuBLAS in its share of the chip"
    if kernel >= 0:
        return "cuBLAS gained more of the chip than the kernel"
    gained = library > -kernel
    return "cuBLAS gained more of the chip than the kernel lost" if gained else "The kernel lost a share of the chip"


def _alt(found: Mapping[str, tuple[float, float]], gpu: str, hardware: str) -> str:
    if not found:
        return "Slopes of the shares of the chip that kernel and cuBLAS take, of which nothing was measured."
    words = [
        f"{label} takes {there:.0%} of the {hardware} and {here:.0%} of the {gpu}"
        for label, (there, here) in found.items()
    ]
    return finding(f"{'; '.join(words)}.")
