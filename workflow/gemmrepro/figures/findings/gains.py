"""F15, `gains`: the notes' gains from memory and PyTorch, published and measured."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Mark
from gemmrepro.figures.findings.parts import Inputs, column, legend_above, names_down, pair, pair_handles, short
from gemmrepro.figures.style import INK, PUBLISHED, Drawing, despine, empty, finding, plain
from gemmrepro.figures.widths import Page, both

TABLES = {
    ("memory", "histogram_versions", "speed"): "histogram v{}",
    ("memory", "histogram_versions", "window"): "L2 window, v{}",
    ("pytorch", "gelu_scripted", "gain"): "GELU, jit.script, {}",
    ("pytorch", "compiled_training", "gain"): "ResNet18, {}",
    ("pytorch", "ways_to_time", "time"): "timed by {}",
}
"""Family, table and panel of the gains, and what a row is called."""
NEAR = 0.1


def draw(inputs: Inputs) -> Drawing:
    """A row per gain."""
    rows = _rows(inputs)
    wide, narrow = both(lambda page: _paint(rows, page, inputs.gpu))
    caption = (
        "Gains that the notes print for an A100, T4 or V100, each over its own baseline on the same GPU: a histogram "
        "over its first version, a kernel over the same without an L2 window, a compiled form over eager PyTorch, and "
        "the time that a method reports over the synchronised clock."
    )
    table: list[dict[str, object]] = [
        {
            "gain": name,
            "published": [printed.value for printed in mark.printed] or None,
            "measured": mark.measured.value if mark.measured else None,
        }
        for name, mark in rows
    ]
    keys = [key for _, mark in rows if mark.measured for key in mark.measured.keys]
    stale = any(mark.measured.stale for _, mark in rows if mark.measured)
    return Drawing(wide, _title(rows), caption, _alt(rows), keys, table, stale, narrow)


def _rows(inputs: Inputs) -> list[tuple[str, Mark]]:
    """The gains that were measured, but for those that are 1 by definition."""
    found = []
    for (family, table, panel), name in TABLES.items():
        for mark in inputs.marks(family, table):
            unit = all(printed.value == 1 for printed in mark.printed) and mark.measured and mark.measured.value == 1
            if mark.panel == panel and mark.measured and not unit:
                found.append((name.format(_called(str(mark.x))), mark))
    return found


def _paint(rows: Sequence[tuple[str, Mark]], page: Page, gpu: str) -> Figure:
    names = [name for name, _ in rows]
    figure, axes = plt.subplots(figsize=(page.width, 0.27 * max(2, len(rows)) + 1.1))
    for place, (_, mark) in enumerate(rows):
        pair(axes, place, [printed.value for printed in mark.printed], mark.measured.value if mark.measured else None)
    names_down(axes, names)
    if rows:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.3, high * 1.3)
        axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.xaxis.set_major_locator(FixedLocator([0.01, 0.1, 1, 10, 100]))
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        empty(axes, "not measured")
    axes.set_xlabel("gain over its own baseline")
    despine(figure.axes, "left")
    top = legend_above(figure, pair_handles("", gpu), 2)
    figure.tight_layout(rect=(0, 0, page.pick(0.84, 0.84), top))
    printed = {i: " ".join(short(one.value) for one in mark.printed[:1]) for i, (_, mark) in enumerate(rows)}
    measured = {i: short(mark.measured.value) for i, (_, mark) in enumerate(rows) if mark.measured}
    if not page.narrow:
        column(axes, 1.13, "print", printed, page, PUBLISHED)
    column(axes, page.pick(1.25, 1.45), "here", measured, page)
    return figure


def _called(name: str) -> str:
    """What fits of a mark's name: of a version its number, and its bins if they are many."""
    head, _, rest = name.partition(", ")
    return f"{head}, {rest}" if "M bins" in rest else head


def _near(rows: Sequence[tuple[str, Mark]]) -> tuple[int, int]:
    """How many rows have both sides, and how many of them agree with one published value."""
    both_sides = [(mark, mark.measured.value) for _, mark in rows if mark.measured and mark.printed]
    near = sum(any(abs(value / one.value - 1) <= NEAR for one in mark.printed) for mark, value in both_sides)
    return len(both_sides), near


def _title(rows: Sequence[tuple[str, Mark]]) -> str:
    total, near = _near(rows)
    return (
        f"{near} of {total} gains of the notes return within {NEAR:.0%}"
        if total
        else "Gains of the notes: not measured"
    )


def _alt(rows: Sequence[tuple[str, Mark]]) -> str:
    total, near = _near(rows)
    if not total:
        return "Pairs of published and measured gains of the notes, of which nothing was measured."
    name, mark = max(
        ((name, mark) for name, mark in rows if mark.measured and mark.printed),
        key=lambda row: abs(row[1].measured.value / row[1].printed[0].value - 1) if row[1].measured else 0,
    )
    assert mark.measured
    return finding(
        f"Of {total} published gains from memory and PyTorch {near} return within {NEAR:.0%}.",
        f"Farthest: {name}, published {format_number(mark.printed[0].value)}, measured "
        f"{format_number(mark.measured.value)}.",
    )
