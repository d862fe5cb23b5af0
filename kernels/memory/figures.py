"""The notes' gains from memory and PyTorch, published and measured."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Mark, Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import dots, marks, pair
from gemmrepro.figures.style import Drawing, finding

PAPER = {"gains": ("pytorch",)}

TABLES = {
    ("memory", "histogram_versions", "speed"): "histogram v{}",
    ("memory", "histogram_versions", "window"): "L2 window, v{}",
    ("pytorch", "gelu_scripted", "gain"): "GELU, jit.script, {}",
    ("pytorch", "compiled_training", "gain"): "ResNet18, {}",
    ("pytorch", "ways_to_time", "time"): "timed by {}",
}
"""Family, table and panel of the gains, and what a row is called."""
NEAR = 0.1


def gains(inputs: Inputs) -> Drawing:
    """A row per gain that was measured, but for those that are 1 by definition."""
    rows: list[tuple[str, Mark]] = []
    for (family, table, panel), words in TABLES.items():
        for mark in inputs.marks(family, table):
            head, _, rest = str(mark.x).partition(", ")
            called = words.format(f"{head}, {rest}" if "M bins" in rest else head)
            unit = mark.measured and mark.measured.value == 1 and all(each.value == 1 for each in mark.printed)
            if mark.panel == panel and mark.measured and not unit:
                rows.append((called, mark))
    caption = (
        "Gains that the notes print for an A100, T4 or V100, each over its own baseline on the same GPU. They are of a "
        "histogram over its first version, a kernel over the same without an L2 window, a compiled form over eager "
        "PyTorch, and the time that a method reports over the synchronised clock."
    )
    lines, texts, lines_of_table = [], [], []
    for name, mark in rows:
        there, here = [each.value for each in mark.printed], mark.measured.value if mark.measured else None
        lines_of_table.append({"gain": name, "published": there or None, "measured": here})
        lines += [*({"name": name, "kind": "print", "x": x} for x in there), {"name": name, "kind": "here", "x": here}]
        first = " ".join(format_number(x) for x in there[:1])
        texts.append({"panel": "", "name": name, "print": first, "here": format_number(here or 0)})
    found = [mark.measured for _, mark in rows if mark.measured]
    frame, columns = marks(lines), pd.DataFrame(texts, columns=["panel", "name", "print", "here"])
    looks, panel = pair("", inputs.gpu), Panel("", "gain over its own baseline", log=True, line=1.0)
    paint = lambda page: dots(frame, looks, {"": panel}, page, texts=columns)  # noqa: E731
    title, alt = _words(rows)
    keys = [key for each in found for key in each.keys]
    return Drawing(title, caption, alt, lines_of_table, paint, keys, any(each.stale for each in found))


def _words(rows: Sequence[tuple[str, Mark]]) -> tuple[str, str]:
    both = [(name, [each.value for each in mark.printed], mark.measured.value) for name, mark in rows if mark.measured]
    both = [one for one in both if one[1]]
    if not both:
        alt = "Pairs of published and measured gains of the notes, of which nothing was measured."
        return "Gains of the notes: not measured", alt
    near = sum(any(abs(here / there - 1) <= NEAR for there in printed) for _, printed, here in both)
    name, printed, here = max(both, key=lambda one: abs(one[2] / one[1][0] - 1))
    alt = finding(
        f"Of {len(both)} published gains from memory and PyTorch {near} return within {NEAR:.0%}.",
        f"Farthest: {name}, published {format_number(printed[0])}, measured {format_number(here)}.",
    )
    return f"{near} of {len(both)} gains of the notes return within {NEAR:.0%}", alt
