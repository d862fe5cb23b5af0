"""The figures of a family as the page shows them: inline SVG, caption, and the numbers drawn."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gemmrepro.core.files import read_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.experiments import figure_names, paper_figures
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.inline_svg import inline_svg
from gemmrepro.paper.text import anchor


@dataclass(frozen=True)
class FigureView:
    """A figure; one that was not drawn has no `svg`.

    Attributes:
        title: the finding, where one follows from the data.
        svg: for wide screens, and for all where there is no `narrow`.
        narrow: the same for containers of fewer than 480 pixels; show one of the two by the container's width.
        alt: the finding in 40 to 300 characters, which both hold as their description.
        link, csv: the files with its SVG and with its numbers, by their places in the report.
        table: the numbers drawn, by `columns`.
        number: its place among the figures of the report; 0 before they are counted.
        keys, rows: the rows that it draws, by their keys and by their ids on the pages.
        links: for each line of `table` the ids of the rows that hold its numbers, by column.
    """

    name: str
    anchor: str
    title: str
    caption: str
    command: str
    svg: Markup | None = None
    narrow: Markup | None = None
    alt: str = ""
    link: str | None = None
    csv: str | None = None
    columns: tuple[str, ...] = ()
    table: tuple[Mapping[str, Any], ...] = ()
    number: int = 0
    keys: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    links: tuple[Mapping[str, str], ...] = ()

    def link_of(self, line: int, column: str) -> str:
        """The id of the row that holds the number in this cell of `table`; empty if no single row does."""
        return self.links[line].get(column, "") if self.links else ""


def read_figures(folder: Path, family: str, files: Files) -> list[FigureView]:
    """The family's figures in `folder`, those of statements and regimes first; their SVG and CSV go to `files`."""
    place = paper_figures.FOLDER
    first = [_read_figure(folder / place, place, name, files) for name in paper_figures.on_page_of(family)]
    return [*first, *(_read_figure(folder / family, family, name, files) for name in figure_names(family))]


def read_findings(folder: Path, families: Sequence[str], files: Files) -> dict[str, FigureView]:
    """The paper's own figures by name, in the order of `paper_figures.names`: those that these families allow."""
    return {
        name: _read_figure(folder / paper_figures.FOLDER, paper_figures.FOLDER, name, files)
        for name in paper_figures.names(families)
    }


def _read_figure(folder: Path, family: str, name: str, files: Files) -> FigureView:
    svg, sidecar = folder / f"{name}.svg", folder / f"{name}.json"
    link = files.add(svg, f"data/figures/{family}/{name}.svg")
    place = f"figure-{anchor(family)}-{name}"
    if not (svg.is_file() and sidecar.is_file()):
        command = f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg"
        return FigureView(name, place, name, "This figure was not drawn.", command, link=link)
    about = read_json(sidecar, "the figure's sidecar", "draw the figures again")
    narrow, within = folder / f"{name}.narrow.svg", f"{anchor(family)}-{name}"
    return FigureView(
        name=name,
        anchor=place,
        title=about["title"],
        caption=about["caption"],
        command=about["command"],
        svg=inline_svg(svg.read_text(), within),
        narrow=inline_svg(narrow.read_text(), f"{within}-narrow") if narrow.is_file() else None,
        alt=about["alt"],
        link=link,
        csv=_csv(about["columns"], about["table"], files, f"data/figures/{family}/{name}.csv"),
        columns=tuple(about["columns"]),
        keys=tuple(about["rows"]),
        table=tuple(about["table"]),
    )


def _csv(columns: Sequence[str], table: Sequence[Mapping[str, Any]], files: Files, place: str) -> str | None:
    """Where the numbers of a figure are as CSV, if it has any; an interval becomes two cells, low and high."""
    if not columns:
        return None
    pairs = {column for column in columns if any(isinstance(row.get(column), list) for row in table)}
    header = [
        name for column in columns for name in ([f"{column} low", f"{column} high"] if column in pairs else [column])
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in table:
        cells = [(column in pairs, row.get(column)) for column in columns]
        writer.writerow(
            [
                part
                for pair, cell in cells
                for part in (cell if isinstance(cell, list) else [cell, None] if pair else [cell])
            ]
        )
    return files.text(text.getvalue(), place)
