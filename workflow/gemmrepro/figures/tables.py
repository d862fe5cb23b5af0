"""Figures of the articles' tables: what was published beside what was measured, a panel for each column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Mark, Printed, Table
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, dots, marks
from gemmrepro.figures.style import (
    MARKERS,
    PUBLISHED,
    SERIES,
    Drawing,
    Page,
    finding,
    origin,
    plain,
    stale_note,
    written,
)

PRINTED_MARKERS = ("D", "s", "^", "v")
"""Of the chips of an article, in the order of its rows, where names stand down the side."""

NEAR = 0.1
"""Within this share of the published value a measured one agrees with it."""


def draw(inputs: Inputs, table: Table) -> Drawing:
    """The figure of one table."""
    shown = inputs.marks(inputs.family, table.name)
    results = inputs.results.get(inputs.family, {}).get(table.experiment)
    hardware = list(dict.fromkeys(each.hardware for mark in shown for each in mark.printed))
    measured = [mark.measured for mark in shown if mark.measured]
    stale = any(each.stale for each in measured)
    there = f"Hollow grey marks: as published for {listed(hardware)}. " if hardware else ""
    rows = inputs.own if results is None else results
    caption = f"{table.caption} {there}{origin(rows)}{stale_note(stale)}".strip()
    keys = list(dict.fromkeys(key for each in measured for key in each.keys))
    paint = _down_the_side if not table.x_label else _along_the_axis
    lines = [_cells(mark, table, hardware) for mark in shown]
    words = _title(table, shown), caption, alt(table, shown)
    return Drawing(*words, lines, lambda page: paint(table, shown, page), keys, stale, results)


def _along_the_axis(table: Table, shown: Sequence[Mark], page: Page) -> Figure:
    """Panels of curves against size: as published, hollow and grey, and as measured."""
    series = list(dict.fromkeys(mark.series for mark in shown))
    looks = {}
    for place, name in enumerate(series):
        colour, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        there = f"{name}, published"
        looks[there] = Look(there, PUBLISHED, marker, hollow=True, size=6.5, dash=(0, (4, 2)))
        looks[name] = Look(f"{name}, measured", colour, marker, dash="-")
    lines: list[dict[str, Any]] = []
    for mark in sorted(shown, key=lambda mark: float(mark.x)):
        at = {"panel": mark.panel, "x": float(mark.x)}
        lines += [{**at, "series": f"{mark.series}, published", "y": each.value} for each in mark.printed]
        if found := mark.measured:
            ends = {"low": found.low, "high": found.high, "stale": found.stale}
            lines.append({**at, "series": mark.series, "y": found.value, **ends})
    return curves(marks(lines), looks, table.panels, page, handles=True, x_label=table.x_label, x_scale=table.ticks)


def _down_the_side(table: Table, shown: Sequence[Mark], page: Page) -> Figure:
    """A line for each name and series: hollow marks as published, filled ones as measured, and the numbers."""
    series = list(dict.fromkeys(mark.series for mark in shown))
    hardware = list(dict.fromkeys(each.hardware for mark in shown for each in mark.printed))
    looks = {
        name: Look(f"published, {name}", PUBLISHED, PRINTED_MARKERS[place % 4], hollow=True, size=6.5)
        for place, name in enumerate(hardware)
    }
    looks |= {name: Look(f"{name}, measured", SERIES[place % len(SERIES)]) for place, name in enumerate(series)}
    lines: list[dict[str, Any]] = []
    texts = []
    for mark in shown:
        name = str(mark.x) if len(series) == 1 else f"{mark.x}, {mark.series}"
        at = {"panel": mark.panel, "name": name}
        lines += [{**at, "kind": each.hardware, "x": each.value} for each in mark.printed]
        cells = {}
        for chip in hardware:
            values = [each.value for each in mark.printed if each.hardware == chip]
            digits = 2 if len(values) > 1 else 3
            cells[chip.removeprefix("NVIDIA ")] = " to ".join(format_number(value, digits) for value in values)
        if found := mark.measured:
            ends = {"low": found.low, "high": found.high, "stale": found.stale}
            lines.append({**at, "kind": mark.series, "x": found.value, **ends})
        texts.append({**at, **cells, "here": format_number(found.value) if found else page.pick("", "not measured")})
    columns = pd.DataFrame(
        texts, columns=["panel", "name", *(chip.removeprefix("NVIDIA ") for chip in hardware), "here"]
    )
    return dots(marks(lines), looks, table.panels, page, texts=columns)


def compared(shown: Sequence[Mark]) -> list[tuple[Mark, Printed, float]]:
    """The marks with both sides, and measured over published for each published number."""
    return [
        (mark, each, mark.measured.value / each.value)
        for mark in shown
        for each in mark.printed
        if mark.measured and not mark.measured.stale and each.value
    ]


def _title(table: Table, shown: Sequence[Mark]) -> str:
    """The subject, and how many of its values agree."""
    if not (pairs := compared(shown)):
        return table.title if any(mark.measured for mark in shown) else f"{table.title}: not measured"
    near = sum(abs(over - 1) <= NEAR for _, _, over in pairs)
    return f"{table.title}: {near} of {len(pairs)} values within {NEAR:.0%}"


def alt(table: Table, shown: Sequence[Mark]) -> str:
    """How many published values are met, and the farthest."""
    if not (pairs := compared(shown)):
        return f"Chart of {table.title}, published and measured, of which no value has both."
    near, above = sum(abs(over - 1) <= NEAR for *_, over in pairs), sum(over > 1 + NEAR for *_, over in pairs)
    mark, there, _ = max(pairs, key=lambda pair: abs(math.log(pair[2])))
    where = mark.x if isinstance(mark.x, str) else plain(mark.x)
    assert mark.measured
    return finding(
        f"Of {len(pairs)} published values {near} are met within {NEAR:.0%}, {above} are exceeded and "
        f"{len(pairs) - near - above} not reached.",
        f"Farthest: {mark.series}, {where}, published {written(there.value)}, measured {written(mark.measured.value)}.",
    )


def _cells(mark: Mark, table: Table, hardware: Sequence[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {"": table.panels[mark.panel].title, "of": mark.series}
    cells["at"] = mark.x if isinstance(mark.x, str) or mark.x != int(mark.x) else int(mark.x)
    for name in hardware:
        values = [each.value for each in mark.printed if each.hardware == name]
        cells[f"published, {name}"] = values if len(values) > 1 else next(iter(values), None)
    found = mark.measured
    return {**cells, "measured": found.value if found else None, "stale": bool(found and found.stale)}
