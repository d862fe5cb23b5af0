"""F11, `types`: cuTile against cuBLAS by type and size, published and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Mark
from gemmrepro.figures.findings.parts import Inputs, legend_above, pair_handles
from gemmrepro.figures.style import FIRST, INK, PAPER, PUBLISHED, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both

FAMILY = "cutile"
TYPES = ("fp16", "tf32", "fp64")
"""The types of which the article prints cuBLAS too."""
NEAR = 0.1


def draw(inputs: Inputs) -> Drawing:
    """A panel per type."""
    found = {dtype: _ratios(inputs.marks(FAMILY, "shares"), dtype) for dtype in TYPES}
    wide, narrow = both(lambda page: _paint(found, page, inputs.gpu))
    caption = (
        "Speed of the article's cuTile program relative to cuBLAS in the same type, warm: the quotient of the two that "
        f"the article prints for a B200, and the ratio timed in turn here. {origin(inputs.measured[FAMILY])}"
    )
    table: list[dict[str, object]] = [
        {"type": dtype, "size": size, "published": there, "measured": here}
        for dtype, values in found.items()
        for size, (there, here) in values.items()
    ]
    own = [mark for mark in inputs.marks(FAMILY, "shares") if mark.panel in TYPES and mark.measured]
    keys = list(dict.fromkeys(key for mark in own if mark.measured for key in mark.measured.keys))
    stale = any(mark.measured.stale for mark in own if mark.measured)
    return Drawing(wide, _title(found), caption, _alt(found), keys, table, stale, narrow)


def _ratios(marks: Sequence[Mark], dtype: str) -> dict[int, tuple[float | None, float | None]]:
    """Published and measured ratio by size; measured ones are of one row, whose cuBLAS was timed in turn."""
    found: dict[int, dict[str, Mark]] = {}
    for mark in marks:
        if mark.panel == dtype:
            found.setdefault(int(float(mark.x)), {})[mark.series] = mark
    ratios = {}
    for size, by in sorted(found.items()):
        own, library = by.get("cuTile"), by.get("cuBLAS")
        if own and library:
            there = own.printed[0].value / library.printed[0].value if own.printed and library.printed else None
            here = own.measured.value / library.measured.value if own.measured and library.measured else None
            if there is not None or here is not None:
                ratios[size] = (there, here)
    return ratios


def _paint(found: Mapping[str, Mapping[int, tuple[float | None, float | None]]], page: Page, gpu: str) -> Figure:
    shape = (len(TYPES), 1) if page.narrow else (1, len(TYPES))
    figure, grid = plt.subplots(*shape, figsize=(page.width, page.pick(2.8, 5.4)), squeeze=False)
    for axes, (dtype, values) in zip(grid.flat, found.items(), strict=True):
        there = [(size, one) for size, (one, _) in values.items() if one is not None]
        here = [(size, one) for size, (_, one) in values.items() if one is not None]
        look = {"markeredgecolor": PUBLISHED, "markeredgewidth": 1.5, "markersize": 8, "markerfacecolor": PAPER}
        axes.plot([x for x, _ in there], [y for _, y in there], "D--", color=PUBLISHED, linewidth=1.2, **look)
        axes.plot([x for x, _ in here], [y for _, y in here], "o-", color=FIRST, linewidth=1.5, markersize=5)
        axes.set_title(dtype, loc="left")
        if not values:
            empty(axes, "not measured")
            continue
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(values), [f"{size // 1024}k" for size in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.set_ylim(0, 1.05 * max([1.0, *(y for _, y in (*there, *here))]))
    grid[0, 0].set_ylabel("speed relative to cuBLAS")
    grid[-1, 0].set_xlabel("M = N = K")
    despine(figure.axes)
    top = legend_above(figure, pair_handles("B200", gpu), 2)
    figure.tight_layout(rect=(0, 0, 1, top), w_pad=1.5)
    return figure


def _pairs(found: Mapping[str, Mapping[int, tuple[float | None, float | None]]]) -> list[tuple[str, int, float, float]]:
    return [
        (dtype, size, there, here)
        for dtype, values in found.items()
        for size, (there, here) in values.items()
        if there is not None and here is not None
    ]


def _title(found: Mapping[str, Mapping[int, tuple[float | None, float | None]]]) -> str:
    pairs = _pairs(found)
    if not pairs:
        return "cuTile against cuBLAS by type and size: not measured"
    near = sum(abs(here / there - 1) <= NEAR for *_, there, here in pairs)
    return f"{near} of {len(pairs)} of cuTile's ratios to cuBLAS return within {NEAR:.0%}"


def _alt(found: Mapping[str, Mapping[int, tuple[float | None, float | None]]]) -> str:
    pairs = _pairs(found)
    if not pairs:
        return "Ratios of cuTile to cuBLAS by type and size, of which no pair of published and measured is known."
    best = max(pairs, key=lambda pair: pair[3])
    above = sum(there > 1 for *_, there, _ in pairs), sum(here > 1 for *_, here in pairs)
    return finding(
        f"Of {len(pairs)} published ratios of cuTile to cuBLAS {above[0]} exceed 1; here {above[1]} do.",
        f"The best here is {format_number(best[3])} in {best[0]} at {best[1]}, published {format_number(best[2])}.",
    )
