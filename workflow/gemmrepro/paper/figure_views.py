"""The figures of a family as the page shows them: inline SVG, caption, and the numbers drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gemmrepro.core.files import read_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.paper.figures import findings
from gemmrepro.paper.figures.catalogue import figure_names
from gemmrepro.paper.inline_svg import inline_svg
from gemmrepro.paper.text import anchor, relative


@dataclass(frozen=True)
class FigureView:
    """A figure; one that was not drawn has no `svg`.

    Attributes:
        title: the finding, where one follows from the data.
        svg: for wide screens, and for all where there is no `narrow`.
        narrow: the same for containers of fewer than 480 pixels; show one of the two by the container's width.
        alt: the finding in 40 to 300 characters, which both hold as their description.
        link, csv: the files with all of its facts and with its numbers, relative to the page.
        table: the numbers drawn, by `columns`.
        number: its place among the figures of the page; 0 before they are counted.
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


def read_figures(folder: Path, family: str, out: Path) -> list[FigureView]:
    """The family's figures, drawn in `folder`, for a page at `out`."""
    return [_read_figure(folder / family, family, name, out) for name in figure_names(family)]


def read_findings(folder: Path, families: Sequence[str], out: Path) -> dict[str, FigureView]:
    """The paper's own figures by name, in the order of `findings.FINDINGS`: those that these families allow."""
    return {
        name: _read_figure(folder / findings.FOLDER, findings.FOLDER, name, out) for name in findings.names(families)
    }


def _read_figure(folder: Path, family: str, name: str, out: Path) -> FigureView:
    svg, sidecar = folder / f"{name}.svg", folder / f"{name}.json"
    link = relative(sidecar, out) if sidecar.is_file() else None
    place = f"figure-{anchor(family)}-{name}"
    if not (svg.is_file() and sidecar.is_file()):
        command = f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg"
        return FigureView(name, place, name, "This figure was not drawn.", command, link=link)
    about = read_json(sidecar, "the figure's sidecar", "draw the figures again")
    narrow, table = folder / f"{name}.narrow.svg", folder / f"{name}.csv"
    within = f"{anchor(family)}-{name}"
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
        csv=relative(table, out) if table.is_file() else None,
        columns=tuple(about["columns"]),
        table=tuple(about["table"]),
    )
