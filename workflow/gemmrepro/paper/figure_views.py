"""The figures as the pages show them: inline SVG in the page's colours, caption, and the numbers drawn."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from gemmrepro.core.files import read_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.errors import UserError
from gemmrepro.experiments import figure_names, paper_figures
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.text import anchor

_DARK_ALONE = re.compile(r"@media\(prefers-color-scheme:dark\)\{.*?\}\}\n", re.DOTALL)
"""The colours that a figure has in dark mode where it is opened by itself."""

_DRAWN = frozenset("svg title desc style defs g path clipPath rect pattern use text tspan".split())
"""The elements that `figures.slim` writes. None runs anything or loads anything but what it refers to."""

_RULE = re.compile(r"^(svg|\.\w+)(?=\{)", re.MULTILINE)


@dataclass(frozen=True)
class FigureView:
    """A figure; one that was not drawn has no `svg`.

    Attributes:
        title: the finding, where one follows from the data.
        svg: for wide screens, and for all where there is no `narrow`.
        narrow: the same for containers of fewer than 480 pixels; show one of the two by the container's width.
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
    link: str | None = None
    csv: str | None = None
    columns: Sequence[str] = ()
    table: Sequence[Mapping[str, Any]] = ()
    number: int = 0
    keys: Sequence[str] = ()
    rows: Sequence[str] = ()
    links: Sequence[Mapping[str, str]] = ()

    def link_of(self, line: int, column: str) -> str:
        """The id of the row that holds the number in this cell of `table`; empty if no single row does."""
        return self.links[line].get(column, "") if self.links else ""


def read_figures(folder: Path, family: str, files: Files) -> list[FigureView]:
    """The family's figures in `folder`, those of statements and regimes first; their SVG and CSV go to `files`."""
    first = [_read_figure(folder, paper_figures.FOLDER, name, files) for name in paper_figures.on_page_of(family)]
    return [*first, *(_read_figure(folder, family, name, files) for name in figure_names(family))]


def read_findings(folder: Path, families: Sequence[str], files: Files) -> dict[str, FigureView]:
    """The paper's own figures by name, in the order of `paper_figures.names`: those that these families allow."""
    return {name: _read_figure(folder, paper_figures.FOLDER, name, files) for name in paper_figures.names(families)}


def _read_figure(figures: Path, family: str, name: str, files: Files) -> FigureView:
    folder = figures / family
    svg, sidecar = folder / f"{name}.svg", folder / f"{name}.json"
    link = files.add(svg, f"data/figures/{family}/{name}.svg")
    place = f"figure-{anchor(family)}-{name}"
    if not (svg.is_file() and sidecar.is_file()):
        command = f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg"
        return FigureView(name, place, name, "This figure was not drawn.", command, link=link)
    about = read_json(sidecar, "the figure's sidecar", "draw the figures again")
    narrow, within = folder / f"{name}.narrow.svg", f"{anchor(family)}-{name}"
    columns, table = about["columns"], about["table"]
    return FigureView(
        name=name,
        anchor=place,
        title=about["title"],
        caption=about["caption"],
        command=about["command"],
        svg=inline_svg(svg.read_text(), within),
        narrow=inline_svg(narrow.read_text(), f"{within}-narrow") if narrow.is_file() else None,
        link=link,
        csv=files.text(_csv(columns, table), f"data/figures/{family}/{name}.csv") if columns else None,
        columns=columns,
        keys=about["rows"],
        table=table,
    )


def _csv(columns: Sequence[str], table: Sequence[Mapping[str, Any]]) -> str:
    """The numbers of a figure as CSV; an interval becomes two cells, low and high."""
    frame = pd.DataFrame(index=range(len(table)))
    for column in columns:
        cells = [line.get(column) for line in table]
        if any(isinstance(cell, list) for cell in cells):
            pairs = [[*cell, None, None] if isinstance(cell, list) else [cell, None] for cell in cells]
            for place, end in enumerate(("low", "high")):
                frame[f"{column} {end}"] = pd.Series([pair[place] for pair in pairs], dtype=object)
        else:
            frame[column] = pd.Series(cells, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def inline_svg(svg: str, name: str) -> Markup:
    """An SVG file's text as an element of a page.

    Ids get a prefix, and rules of style hold within this figure alone, so that no two figures share any; the prefix is
    short, since hundreds of marks refer to an id. The colours of dark mode are left to the page. The figure's title and
    description are those that screen readers read.

    Raises:
        UserError: `svg` holds no SVG, or one that could run a script.
    """
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    if not element:
        raise UserError(f"figure {name} is not an SVG; draw the figures again.")
    _check(element[0], name)
    text = _DARK_ALONE.sub("", element[0])
    text = re.sub(r"var\((--[\w-]+),#[0-9a-f]{6}\)", r"var(\1)", text)
    prefix = "s" + base64.urlsafe_b64encode(zlib.crc32(name.encode()).to_bytes(4)).decode()[:4]
    text = re.sub(r' id="([^"]*)"', rf' id="{prefix}\1"', text)
    text = re.sub(r'href="#([^"]*)"', rf'href="#{prefix}\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}\1)", text)
    text = _RULE.sub(lambda match: f"#{name}" + ("" if match[1] == "svg" else f" {match[1]}"), text)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<title>", f'<title id="{name}-title">', 1).replace("<desc>", f'<desc id="{name}-desc">', 1)
    labelled = f'<svg id="{name}" role="img" aria-labelledby="{name}-title {name}-desc"'
    return Markup(text.replace("<svg", labelled, 1))


def _check(svg: str, name: str) -> None:
    """Raises UserError unless the text, in XML as in HTML, is a drawing alone."""
    why = "has a comment, a CDATA section or an instruction" if re.search("<[!?]", svg) else ""
    try:
        for element in ElementTree.fromstring(svg).iter() if not why else ():
            tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
            if tag not in _DRAWN:
                why = f"has an element {tag!r}"
            for attribute, value in element.attrib.items():
                if attribute.lower().startswith("on") or (attribute.endswith("href") and not value.startswith("#")):
                    why = f"has an attribute {attribute}={value!r}"
    except ElementTree.ParseError as error:
        why = f"is no XML ({error})"
    if why:
        raise UserError(f"figure {name} {why}, which no figure of this project has; draw the figures again.")
