"""Figures that families declare: `Lines` and `Dots` of experiments, and the articles' tables beside measured values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments import Dots, Lines
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.tables import Mark, Panel, Table
from gemmrepro.figures.inputs import Inputs, interval
from gemmrepro.figures.kit import Look, curves, dots, empty, heat, marks, printed
from gemmrepro.figures.style import (
    DASHES,
    INK,
    MARKERS,
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


def titled(subject: str, says: Callable[[Any], str] | None, values: pd.DataFrame, known: bool = True) -> str:
    """The finding where the values bear it out, else the subject."""
    try:
        said = says(values) if says and len(values) else ""
    except (KeyError, IndexError, ValueError):  # of what it is about something was not measured
        said = ""
    return said or (subject if known else f"{subject}: not measured")


def draw(family: str, figure: Lines | Dots, results: Results) -> Drawing:
    """One figure of an experiment. A line with a stale point supports no finding."""
    if isinstance(figure, Lines):
        frame, about, by = _points(family, figure, results), figure.y_label, ["panel", "series"]
        index, columns, values = ["panel", "x"], "series", "y"
        table, paint = _lines_table(figure, frame), partial(_paint_lines, figure, frame)
        over = f"Cells: over {figure.reference}'s; red: above it." if figure.reference else ""
        told = (figure.caption, over, f"Kernels built by {results.toolkit}." if results.toolkit else "")
    else:
        frame, about, by = _dots(family, figure, results), figure.x_label, ["panel", "name"]
        index, columns, values = ["name"], "panel", "x"
        table, paint = _dots_table(figure, frame, results), partial(_paint_dots, figure, frame)
        told = (figure.caption, "", "")
    current = frame[~frame.groupby(by)["stale"].transform("any").astype(bool)] if len(frame) else frame
    wide = current.pivot_table(index=index, columns=columns, values=values, aggfunc="first", sort=False)
    stale = bool(frame["stale"].any())
    caption = " ".join(filter(None, (*told, origin(results)))) + stale_note(stale)
    title = titled(figure.title, figure.says, wide, len(wide) > 0)
    return Drawing(title, caption, _alt(about, wide), table, paint, stale, results)


def _alt(about: str, wide: pd.DataFrame) -> str:
    """The subject drawn, and the values of the last line of a frame."""
    if wide.empty:
        return f"Figure of {about}, without data: nothing was measured."
    at, last = wide.index[-1], wide.iloc[-1].dropna()
    where = f"{at[0]}, {plain(at[1])}" if isinstance(at, tuple) else at
    sentences = [f"{name} {written(float(value))}" for name, value in last.items()]
    while len(sentences) > 1 and len(f"{about}{where}{listed(sentences)}") > 250:
        sentences.pop(-2)  # the first ones and the last
    return finding(f"Figure of {about}. At {where}: {listed(sentences)}.")


def _cells(row: pd.Series, column: Any, value: str) -> dict[str, Any]:
    """A row's value with its interval, NaN where the experiment gives none."""
    low, high = interval(row, column.low, column.high)
    return {value: float(row[column.name]), "low": low, "high": high, "stale": row["status"] == "stale"}


def _points(family: str, lines: Lines, results: Results) -> pd.DataFrame:
    """The rows of one toolkit, and of libraries, by panel and series."""
    found, rows, column = [], results.rows, results.experiment.column(lines.y)
    if len(lines.series) > len(SERIES) and not lines.reference:
        raise UserError(f"a figure shows at most {len(SERIES)} series; declare fewer, or two figures.")
    rows = rows[rows[lines.y].notna() & rows[lines.x].notna()]
    x = rows[lines.x].map(lines.places) if lines.places else rows[lines.x]
    rows = rows.assign(_x=x.astype(float))[x.notna() & (x.astype(float) >= lines.low)].sort_values("_x", kind="stable")
    for value, title in lines.panels.items():
        at = select(rows, **{lines.panel: value})
        at = at[at["toolkit"].isin((results.toolkit, LIBRARY))]
        for kernels, name in lines.series.items():
            for _, row in at[at["kernel"].isin(kernels.split(","))].iterrows():
                cells = {"panel": title, "series": name, "x": row["_x"], "keys": (results.key(family, row),)}
                found.append({**cells, **_cells(row, column, "y")})
    return marks(found)


def _paint_lines(lines: Lines, frame: pd.DataFrame, page: Page) -> Figure:
    if lines.reference:
        wide = frame.pivot_table(index="x", columns="series", values="y", sort=False).sort_index()
        over = wide.div(wide.get(lines.reference), axis=0).T if lines.reference in wide else wide.T
        names = [name for name in lines.series.values() if name in over.index and name != lines.reference]
        over = over.reindex(names).rename(columns=size)
        return heat(over, page, (0, 1), lines.x_label)
    looks = {
        name: Look(name, SERIES[place], MARKERS[place], size=4.5 + 0.6 * place, dash=DASHES[place])
        for place, name in enumerate(lines.series.values())
    }

    def zeros(axes: Axes, title: str) -> None:
        """Say where values are zero, which the axis cannot show."""
        part = frame[frame["panel"] == title]
        if part.empty or lines.is_linear:
            return
        if not (part["y"] > 0).any():
            return empty(axes, lines.zero)
        leading = part.groupby("x")["y"].max().eq(0).cumprod().astype(bool)
        if leading.any():
            text = f"{lines.zero}\nup to {lines.x_label} = {plain(float(leading[leading].index[-1]))}"
            axes.text(0.04, 0.5, text, transform=axes.transAxes, va="center", color=INK)

    panels = {title: Panel(title, lines.y_label, log=not lines.is_linear) for title in lines.panels.values()}
    return curves(frame, looks, panels, page, finish=zeros, x_label=lines.x_label, x_scale=lines.x_scale)


def _lines_table(lines: Lines, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A line per panel and x, a column per series."""
    table = []
    for panel in lines.panels.values():
        for x, group in frame[frame["panel"] == panel].groupby("x"):
            number = int(x) if float(x).is_integer() else float(f"{x:.3g}")
            cells: dict[str, Any] = {lines.panel: panel, lines.x_label: number}
            values, keys = (dict(zip(group["series"], group[name], strict=True)) for name in ("y", "keys"))
            table.append({**cells, **values, "stale": bool(group["stale"].any()), "keys": keys})
    return table


def _dots(family: str, figure: Dots, results: Results) -> pd.DataFrame:
    """The first row of each category in each panel: of one toolkit where it is of a kernel."""
    found, column = [], results.experiment.column(figure.x)

    def of(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
        ours = rows[rows["toolkit"].isin((results.toolkit, LIBRARY))] if name == "kernel" else rows
        return select(ours, **{name: value})

    rows = select(results.rows, **figure.where)
    rows = rows[rows[figure.x].notna()]
    for value, title in figure.panels.items():
        part = of(rows, figure.panel, value)
        for category, label in figure.categories.items():
            if len(chosen := of(part, figure.category, category)):
                row = chosen.iloc[0]
                of_row = {"panel": title, "name": label, "keys": (results.key(family, row),)}
                found.append({**of_row, **_cells(row, column, "x")})
    return marks(found)


def _paint_dots(figure: Dots, frame: pd.DataFrame, page: Page) -> Figure:
    cells = frame[~frame["stale"]].pivot_table(index="name", columns="panel", values="x", sort=False)
    names = [name for name in figure.categories.values() if name in cells.index]
    return heat(cells.reindex(names), page, figure.fair)


def _dots_table(figure: Dots, frame: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    of_kernels = figure.category == "kernel"
    category = "kernel" if of_kernels else results.experiment.column(figure.category).meaning
    return [
        {"": dot["panel"], category: dot["name"], figure.x_label: dot["x"], "stale": dot["stale"]}
        | {"keys": {figure.x_label: dot["keys"]}}
        for dot in frame.to_dict("records")
    ]


PRINTED_MARKERS = ("D", "s", "^", "v")
"""Of the chips of an article, in the order of its rows, where names stand down the side."""


def of_table(inputs: Inputs, table: Table) -> Drawing:
    """The figure of one table."""
    every = inputs.marks(inputs.family, table.name)
    shown = [mark for mark in every if mark.panel in table.panels]
    results = inputs.results.get(inputs.family, {}).get(table.experiment)
    hardware = list(dict.fromkeys(each.hardware for mark in shown for each in mark.printed))
    measured = [mark.measured for mark in every if mark.measured]
    stale = any(each.stale for each in measured)
    there = f"Hollow grey marks: as published for {listed(hardware)}. " if hardware else ""
    caption = f"{table.caption} {there}{origin(results or inputs.own)}{stale_note(stale)}".strip()
    pairs = pd.DataFrame(
        [
            (mark.panel, mark.series, mark.x, each.value, mark.measured.value)
            for mark in shown
            for each in mark.printed
            if mark.measured and not mark.measured.stale
        ],
        columns=["panel", "series", "x", "published", "measured"],
    )
    title = titled(table.title, table.says, pairs, bool(measured))
    lines = [_row_of(mark, table, hardware) for mark in every]
    paint = _along_the_axis if table.x_label else _down_the_side
    alt = _table_alt(table, pairs)
    return Drawing(title, caption, alt, lines, lambda page: paint(table, shown, page), stale, results)


def _measured(mark: Mark, value: str) -> dict[str, Any]:
    found = mark.measured
    return {value: found.value, "low": found.low, "high": found.high, "stale": found.stale} if found else {}


def _along_the_axis(table: Table, shown: Sequence[Mark], page: Page) -> Figure:
    """Panels of curves against size: as published, hollow and grey, and as measured."""
    series = list(dict.fromkeys(mark.series for mark in shown))
    looks = {}
    for place, name in enumerate(series):
        said = f"{name}, " if len(series) > 1 else ""
        marker = MARKERS[place % len(MARKERS)]
        looks[f"{name}, published"] = printed(f"{said}in print", marker=marker)
        looks[name] = Look(f"{said}here", SERIES[place % len(SERIES)], marker, dash="-")
    lines: list[dict[str, Any]] = []
    for mark in sorted(shown, key=lambda mark: float(mark.x)):
        at = {"panel": mark.panel, "x": float(mark.x)}
        lines += [{**at, "series": f"{mark.series}, published", "y": each.value} for each in mark.printed]
        lines += [{**at, "series": mark.series, **own} for own in [_measured(mark, "y")] if own]
    options: dict[str, Any] = {"x_label": table.x_label, "x_scale": table.ticks, "columns": 2 + len(table.panels) % 2}
    return curves(marks(lines), looks, table.panels, page, **options)


def _down_the_side(table: Table, shown: Sequence[Mark], page: Page) -> Figure:
    """A line for each name: hollow marks as published, by chip, a filled one as measured, and the numbers."""
    chips = list(dict.fromkeys(each.hardware for mark in shown for each in mark.printed))
    looks = {
        chip: printed(f"published, {chip}", chip.removeprefix("NVIDIA "), marker)
        for chip, marker in zip(chips, PRINTED_MARKERS, strict=False)
    }
    looks["here"] = Look("measured", head="here")
    lines: list[dict[str, Any]] = []
    texts = []
    for mark in shown:
        at = {"panel": mark.panel, "name": str(mark.x)}
        lines += [{**at, "kind": each.hardware, "x": each.value} for each in mark.printed]
        lines += [{**at, **own} for own in [_measured(mark, "x")] if own]
        cells = {}
        for chip in chips:
            values = [each.value for each in mark.printed if each.hardware == chip]
            cells[chip] = " to ".join(format_number(value, 2 if len(values) > 1 else 3) for value in values)
        texts.append({**at, **cells, "here": format_number(mark.measured.value) if mark.measured else "not measured"})
    columns = pd.DataFrame(texts, columns=["panel", "name", *chips, "here"])
    return dots(marks(lines), looks, table.panels, page, texts=columns)


def _table_alt(table: Table, pairs: pd.DataFrame) -> str:
    """The subject drawn, and the value that is farthest from print."""
    if not len(pairs := pairs[(pairs["published"] > 0) & (pairs["measured"] > 0)]):
        return f"Chart of {table.title}, published and measured, of which no value has both."
    over = (pairs["measured"] / pairs["published"]).map(lambda quotient: abs(math.log(quotient)))
    far = pairs.loc[over.idxmax()]
    where = far["x"] if isinstance(far["x"], str) else plain(far["x"])
    return finding(
        f"Chart of {table.title}: {len(pairs)} published values, each beside the measured one.",
        f"Farthest: {far['series']}, {where}, published {written(far['published'])}, measured "
        f"{written(far['measured'])}.",
    )


def _row_of(mark: Mark, table: Table, hardware: Sequence[str]) -> dict[str, Any]:
    of: Mapping[str, str] = {name: panel.title for name, panel in table.panels.items()} | dict(table.counts)
    cells: dict[str, Any] = {"": of[mark.panel], "of": mark.series}
    cells["at"] = mark.x if isinstance(mark.x, str) or mark.x != int(mark.x) else int(mark.x)
    for name in hardware:
        values = [each.value for each in mark.printed if each.hardware == name]
        cells[f"published, {name}"] = values if len(values) > 1 else next(iter(values), None)
    found = mark.measured
    cells |= {"measured": found.value if found else None, "stale": bool(found and found.stale)}
    return cells | {"keys": {"measured": found.keys if found else ()}}
