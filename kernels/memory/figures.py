"""The notes' gains from memory and PyTorch, published and measured."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import dots, marks, pair
from gemmrepro.figures.style import Drawing, finding, origin

PAPER = {"gains": ("pytorch",)}

PANELS = {
    ("memory", "histogram_versions", "speed"): Panel("histogram", "speed over version 1", log=True, line=1.0),
    ("pytorch", "gelu_scripted", "gain"): Panel("GELU in one kernel", "speed over eager", line=1.0),
    ("pytorch", "compiled_training", "gain"): Panel("torch.compile", "speed over eager", line=1.0, low=0.8),
}
"""Family, table and panel of the gains, and how they are drawn."""


def _called(panel: Panel, name: str) -> str:
    return f"version {name}" if panel.title == "histogram" else name


def gains(inputs: Inputs) -> Drawing:
    """A panel per kind of gain, a line per gain that was measured, but for those that are 1 by definition."""
    rows = [
        (panel.title, _called(panel, str(mark.x).partition(", ")[0]), mark.printed[0].value, mark.measured)
        for (family, table, key), panel in PANELS.items()
        for mark in inputs.marks(family, table)
        if mark.panel == key
        and mark.printed
        and mark.measured
        and (mark.printed[0].value, mark.measured.value) != (1, 1)
    ]
    table = [{"gain": f"{of}, {name}", "published": there, "measured": here.value} for of, name, there, here in rows]
    lines = [{"panel": of, "name": name, "kind": "print", "x": there} for of, name, there, _ in rows]
    lines += [{"panel": of, "name": name, "x": here.value, "stale": here.stale} for of, name, _, here in rows]
    texts = pd.DataFrame(
        [(of, name, format_number(there), format_number(here.value)) for of, name, there, here in rows],
        columns=["panel", "name", "print", "here"],
    )
    caption = (
        "Gains that the notes print for an A100, T4 or V100, each over its own baseline on the same GPU: a histogram "
        f"over its first version, and compiled forms over eager PyTorch. {origin(inputs.measured['memory'])}"
    )
    title = "Gains of the notes, in print and here" + ("" if rows else ": not measured")
    short = [name for of, name, there, here in rows if of == "torch.compile" and here.value < 1 <= there]
    if short:
        title = f"torch.compile slows the training step down here, in mode {short[0]}, and not in print"
    alt = "Pairs of published and measured gains of the notes, of which nothing was measured."
    if rows:
        of, name, there, here = max(rows, key=lambda row: abs(row[3].value / row[2] - 1))
        alt = finding(
            f"{len(rows)} gains of the notes beside those measured here.",
            f"Farthest: {of}, {name}, published {format_number(there)}, measured {format_number(here.value)}.",
        )
    frame, panels = marks(lines), {panel.title: panel for panel in PANELS.values()}
    paint = lambda page: dots(frame, pair("", inputs.gpu), panels, page, texts=texts)  # noqa: E731
    keys = list(dict.fromkeys(key for *_, here in rows for key in here.keys))
    return Drawing(title, caption, alt, table, paint, keys, any(here.stale for *_, here in rows))
