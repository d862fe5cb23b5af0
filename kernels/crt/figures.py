"""FP64 from INT8 residues against DGEMM by size and number of moduli."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, marks
from gemmrepro.figures.ladder import made_here
from gemmrepro.figures.style import DASHES, INK, MARKERS, SERIES, Drawing, finding, origin
from gemmrepro.measure.rows import cubes, select
from gemmrepro.paper.regimes import bounds_elements
from gemmrepro.registry import ladders

PAPER = {"residues": ()}
COUNTS = {"_14": "14 moduli", "": "15 moduli", "_16": "16 moduli"}
CERTIFIED = "every element bounded"
PANEL = {"": Panel("", "speed relative to DGEMM", line=1.0)}


def residues(inputs: Inputs) -> Drawing:
    """Of each number of moduli the fastest kernel by size."""
    measured = inputs.measured["crt"]
    frame = _speeds(inputs)
    caption = (
        "Against DGEMM timed in turn, warm: at each size the fastest kernel of each number of moduli, and of those "
        f"whose bound holds for every element. {origin(measured)}"
    )
    columns = {"series": "scheme", "x": "size", "y": "speed over DGEMM", "level": "kernel"}
    table = frame.reindex(columns=columns).rename(columns=columns).to_dict("records")
    table = [line | {"keys": {columns["y"]: keys}} for line, keys in zip(table, frame["keys"], strict=True)]
    names = [*COUNTS.values(), CERTIFIED]
    looks = {name: Look(name, SERIES[i], MARKERS[i], size=5, dash=DASHES[i]) for i, name in enumerate(names[:3])}
    looks[CERTIFIED] = Look(CERTIFIED, INK, "D", size=5, dash="-")
    title, alt = _words(frame)
    options: dict[str, Any] = {"x_label": "M = N = K", "columns": 1}
    stale = bool(frame["stale"].any())
    return Drawing(title, caption, alt, table, lambda page: curves(frame, looks, PANEL, page, **options), stale)


def _speeds(inputs: Inputs) -> pd.DataFrame:
    """The fastest kernel of each kind at each size."""
    measured, kernels = inputs.measured["crt"], ladders.compared("crt")
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit or ""))
    found = pd.DataFrame(made_here(kernels, rows[rows["ratio"].notna()]))
    if found.empty:
        return marks([])
    bounded = {kernel.id for kernel in kernels if bounds_elements(kernel)}
    ends = {
        name: next((words for end, words in COUNTS.items() if end and name.endswith(end)), COUNTS[""])
        for name in found["kernel"]
    }
    found["series"] = [CERTIFIED if name in bounded else ends[name] for name in found["kernel"]]
    best = found.loc[found.groupby(["series", "n"], sort=False)["ratio"].idxmax()].sort_values("n")
    return marks(best.assign(x=best["n"], y=best["ratio"]).to_dict("records"))


def _words(frame: pd.DataFrame) -> tuple[str, str]:
    speed = frame[~frame["stale"]]
    if speed.empty:
        alt = "Speed of FP64 from residues relative to DGEMM by size, of which nothing was measured."
        return "FP64 from residues against DGEMM: not measured", alt
    title, last = "FP64 from INT8 residues against DGEMM, by size and moduli", speed[speed["x"] == speed["x"].max()]
    ratios = last.set_index("series")["y"]
    if CERTIFIED in ratios and ratios[CERTIFIED] > 1:
        most, bounded = format_number(ratios.max()), format_number(ratios[CERTIFIED])
        title = f"At {last['x'].max():.0f} residues run at up to {most} times DGEMM's speed"
        title += f", with every element bounded at {bounded}"
    ends = ", ".join(f"{format_number(y)} ({name})" for name, y in ratios.items())
    return title, finding(f"At {last['x'].max():.0f} the speed relative to DGEMM is {ends}.")
