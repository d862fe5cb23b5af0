"""Figures that experiments declare: `Lines`, curves of one quantity against another, and `Dots`, a dot per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments import Dots, Lines
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.experiments.tables import Mark, Panel, Printed, Table
from gemmrepro.figures.inputs import Inputs, interval
from gemmrepro.figures.kit import Look, curves, dots, empty, marks
from gemmrepro.figures.style import (
    DASHES,
    INK,
    MARKERS,
    PUBLISHED,
    SERIES,
    Drawing,
    Page,
    finding,
    origin,
    plain,
    size,
    stale_note,
    written,
)
from gemmrepro.measure.rows import select


def draw(family: str, figure: Lines | Dots, results: Results) -> Drawing:
    """One figure of an experiment."""
    frame = _points(family, figure, results) if isinstance(figure, Lines) else _dots(family, figure, results)
    stale = bool(frame["stale"].any())
    built = f" Kernels built by {results.toolkit}." if isinstance(figure, Lines) and results.toolkit else ""
    caption = f"{figure.caption}{built} {origin(results)}{stale_note(stale)}".strip()
    if isinstance(figure, Lines):
        words = _lines_title(figure, frame), caption, _lines_alt(figure, frame)
        table, paint = _lines_table(figure, frame), lambda page: _paint_lines(figure, frame, results, page)
    else:
        words = _dots_title(figure, frame), caption, _dots_alt(figure, frame)
        table, paint = _dots_table(figure, frame, results), lambda page: _paint_dots(figure, frame, page)
    return Drawing(*words, table, paint, list(frame["key"]), stale, results)


def _cells(row: pd.Series, column: Any, value: str) -> dict[str, Any]:
    """A row's value with its interval, which is the value itself where the experiment gives none."""
    low, high = interval(row, column.low, column.high)
    return {value: float(row[column.name]), "low": low, "high": high, "stale": row["status"] == "stale"}


def _points(family: str, lines: Lines, results: Results) -> pd.DataFrame:
    """The rows of one toolkit, and of libraries, by panel and series."""
    found, rows, column = [], results.rows, results.experiment.column(lines.y)
    if len(lines.series) > len(SERIES):
        raise UserError(f"a figure shows at most {len(SERIES)} series; declare fewer, or two figures.")
    for value, title in lines.panels.items():
        at = rows[(rows[lines.panel] == value).fillna(False).astype(bool)]
        at = at[at["toolkit"].isin((results.toolkit, LIBRARY)) & at[lines.y].notna() & at[lines.x].notna()]
        for kernels, name in lines.series.items():
            for _, row in at[at["kernel"].isin(kernels.split(","))].sort_values(lines.x).iterrows():
                key = row_key(family, results.experiment.name, row, lines.panel, lines.x)
                cells = {"panel": title, "series": name, "x": float(row[lines.x]), "key": key}
                found.append({**cells, **_cells(row, column, "y")})
    return marks(found)


def _paint_lines(lines: Lines, frame: pd.DataFrame, results: Results, page: Page) -> Figure:
    looks = {
        name: Look(name, SERIES[place], MARKERS[place], size=4.5 + 0.6 * place, dash=DASHES[place])
        for place, name in enumerate(lines.series.values())
    }

    def zeros(axes: Axes, title: str) -> None:
        """Say where values are zero, which the axis cannot show."""
        part = frame[frame["panel"] == title]
        if part.empty:
            return
        if not (part["y"] > 0).any():
            return empty(axes, lines.zero)
        value = next(value for value, words in lines.panels.items() if words == title)
        all_rows = results.rows[(results.rows[lines.panel] == value).fillna(False).astype(bool)]
        largest = all_rows[all_rows[lines.y].notna()].groupby(lines.x)[lines.y].apply(lambda y: (y == 0).all())
        if len(leading := largest[largest.cumprod().astype(bool)]):
            text = f"{lines.zero}\nup to {lines.x_label} = {plain(float(leading.index[-1]))}"
            axes.text(0.04, 0.5, text, transform=axes.transAxes, va="center", color=INK)

    panels = {title: Panel(title, lines.y_label, log=True) for title in lines.panels.values()}
    return curves(frame, looks, panels, page, finish=zeros, x_label=lines.x_label, x_scale=lines.x_scale)


def _fresh(frame: pd.DataFrame, panel: str) -> pd.DataFrame:
    """The series of a panel without stale rows: a row for each x, a column for each series."""
    part = frame[frame["panel"] == panel]
    stale = set(part.loc[part["stale"].astype(bool), "series"])
    return part[~part["series"].isin(stale)].pivot_table(
        index="x", columns="series", values="y", aggfunc="first", sort=False
    )


def _ends(lines: Lines, frame: pd.DataFrame) -> tuple[str, float, pd.Series] | None:
    """Of a panel with two series or more: the largest x that all have, and the values there, the lowest first.

    It is the last panel in which these differ; the last of all if they differ in none.
    """
    found = []
    for panel in reversed([*lines.panels.values()]):
        wide = _fresh(frame, panel)
        common = wide.dropna()
        if len(wide.columns) > 1 and len(common):
            x = max(common.index)
            found.append((panel, x, common.loc[x].sort_values(kind="stable")))
    differing = (each for each in found if each[2].iloc[-1] > each[2].iloc[0])
    return next(differing, found[0] if found else None)


def _lines_title(lines: Lines, frame: pd.DataFrame) -> str:
    """The finding, or the subject and by how much the series differ where a factor can say it."""
    if said := _said(lines, frame):
        return said
    if not (ends := _ends(lines, frame)):
        return lines.title if len(frame) else f"{lines.title}: not measured"
    low, high = ends[2].iloc[0], ends[2].iloc[-1]
    if low <= 0 or high < 1.05 * low:
        return lines.title
    return f"{lines.title}: {ends[2].index[-1]} highest, {written(high / low)} times {ends[2].index[0]}"


def _said(lines: Lines, frame: pd.DataFrame) -> str | None:
    """What the figure was declared to say, if the last panel with current rows bears it out."""
    for panel in reversed([*lines.panels.values()]):
        wide = _fresh(frame, panel)
        if not lines.says or wide.empty:
            continue
        part = frame[(frame["panel"] == panel) & frame["series"].isin(wide.columns)]
        if lines.reference:
            found = _beyond(part, lines.reference)
            return (
                lines.says.format(name=found[0]["series"], factor=written(found[0]["x"] / found[1]["x"]))
                if found
                else None
            )
        own = part[part["series"] == part["series"].iloc[0]]
        first, last = own.iloc[0], own.iloc[-1]
        if max(first["y"], last["y"]) < 1.05 * min(first["y"], last["y"]):
            return None
        texts = {"first": written(first["y"]), "last": written(last["y"])}
        return lines.says.format(**texts, start=size(first["x"]), end=size(last["x"]))
    return None


def _beyond(part: pd.DataFrame, reference: str) -> tuple[pd.Series, pd.Series] | None:
    """The point with the largest x among other series whose y is no larger than the reference's, and its point."""
    own, others = part[part["series"] == reference], part[part["series"] != reference]
    if own.empty:
        return None
    base = own.iloc[-1]
    better = others[(others["x"] > base["x"]) & (others["y"] <= base["y"])]
    return None if better.empty else (better.loc[better["x"].idxmax()], base)


def _lines_alt(lines: Lines, frame: pd.DataFrame) -> str:
    if frame.empty:
        return f"Line chart of {lines.y_label} against {lines.x_label}, without data: nothing was measured."
    if ends := _ends(lines, frame):
        panel, x, at = ends
        count = frame.loc[frame["panel"] == panel, "series"].nunique()
        where = f"{panel}, where {lines.x_label} is {size(x)}: {lines.y_label} is"
        if at.iloc[0] == at.iloc[-1]:
            return finding(f"{where} {written(at.iloc[-1])} in all {count} series.")
        return finding(
            f"{where} highest for {at.index[-1]} ({written(at.iloc[-1])}) and lowest for {at.index[0]} "
            f"({written(at.iloc[0])}), of {count} series."
        )
    panel = frame["panel"].iloc[-1]
    if lines.reference and (found := _beyond(frame[frame["panel"] == panel], lines.reference)):
        best, own = found
        return finding(
            f"{panel}: {best['series']} reaches a {lines.x_label} of {written(best['x'])} with {lines.y_label} "
            f"{written(best['y'])}; {lines.reference} has {written(own['x'])} and {written(own['y'])}."
        )
    points = frame.sort_values("x", kind="stable")
    first, last = points.iloc[0], points.iloc[-1]
    return finding(
        f"Line chart of {lines.y_label}: {written(first['y'])} where {lines.x_label} is {size(first['x'])}, and "
        f"{written(last['y'])} where it is {size(last['x'])}."
    )


def _lines_table(lines: Lines, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A line per panel and x, a column per series."""
    table = []
    for panel in lines.panels.values():
        for x, group in frame[frame["panel"] == panel].groupby("x"):
            number = int(x) if float(x).is_integer() else float(f"{x:.3g}")
            cells: dict[str, Any] = {lines.panel: panel, lines.x_label: number}
            for place, (series, y) in enumerate(zip(group["series"], group["y"], strict=True)):
                cells[series] = y
                cells |= {} if place else {"stale": bool(group["stale"].any())}
            table.append(cells)
    return table


def _dots(family: str, figure: Dots, results: Results) -> pd.DataFrame:
    """The first row of each category in each panel: of one toolkit where it is of a kernel."""
    found, column = [], results.experiment.column(figure.x)
    keyed = {figure.panel, figure.category} - {"kernel"}

    def of(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
        ours = rows[rows["toolkit"].isin((results.toolkit, LIBRARY))] if name == "kernel" else rows
        return select(ours, **{name: value})

    rows = select(results.rows, **figure.where)
    rows = rows[rows[figure.x].notna() & (rows[figure.x] > 0)]
    for value, title in figure.panels.items():
        part = of(rows, figure.panel, value)
        for category, label in figure.categories.items():
            if len(chosen := of(part, figure.category, category)):
                row = chosen.iloc[0]
                key = row_key(family, results.experiment.name, row, *keyed)
                found.append({"panel": title, "name": label, "key": key, **_cells(row, column, "x")})
    return marks(found)


def _paint_dots(figure: Dots, frame: pd.DataFrame, page: Page) -> Figure:
    panels = {title: Panel(title, figure.x_label, log=True, line=figure.line) for title in figure.panels.values()}
    texts = frame[["panel", "name"]].assign(**{"": [written(x) for x in frame["x"]]})
    names = list(figure.categories.values())
    return dots(frame, {"here": Look("")}, panels, page, names=names, texts=texts)


def _dots_title(figure: Dots, frame: pd.DataFrame) -> str:
    """The subject, and how far apart the dots lie."""
    current = frame.loc[~frame["stale"].astype(bool), "x"]
    if current.empty:
        return f"{figure.title}: not measured"
    return f"{figure.title}: from {written(current.min())} to {written(current.max())}"


def _dots_alt(figure: Dots, frame: pd.DataFrame) -> str:
    if frame.empty:
        return f"Dot chart of {figure.x_label}, without data: nothing was measured."
    low, high = frame.loc[frame["x"].idxmin()], frame.loc[frame["x"].idxmax()]
    return finding(
        f"Of {len(frame)} dots the lowest is {low['name']}, {low['panel']} ({written(low['x'])}), and the highest "
        f"{high['name']}, {high['panel']} ({written(high['x'])}).",
        f"The axis is {figure.x_label}.",
    )


def _dots_table(figure: Dots, frame: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    """A line per dot."""
    of_kernels = figure.category == "kernel"
    category = "kernel" if of_kernels else results.experiment.column(figure.category).meaning
    return [
        {"": dot["panel"], category: dot["name"], figure.x_label: dot["x"], "stale": dot["stale"]}
        for dot in frame.to_dict("records")
    ]


PRINTED_MARKERS = ("D", "s", "^", "v")
"""Of the chips of an article, in the order of its rows, where names stand down the side."""

NEAR = 0.1
"""Within this share of the published value a measured one agrees with it."""


def of_table(inputs: Inputs, table: Table) -> Drawing:
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
    lines = [_row_of(mark, table, hardware) for mark in shown]
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


def _row_of(mark: Mark, table: Table, hardware: Sequence[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {"": table.panels[mark.panel].title, "of": mark.series}
    cells["at"] = mark.x if isinstance(mark.x, str) or mark.x != int(mark.x) else int(mark.x)
    for name in hardware:
        values = [each.value for each in mark.printed if each.hardware == name]
        cells[f"published, {name}"] = values if len(values) > 1 else next(iter(values), None)
    found = mark.measured
    return {**cells, "measured": found.value if found else None, "stale": bool(found and found.stale)}
