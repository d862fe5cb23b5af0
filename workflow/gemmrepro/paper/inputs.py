"""The inputs of the report, read once: figures as the pages show them, and the row behind a key or a number."""

from __future__ import annotations

import base64
import re
import zlib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from gemmrepro import registry
from gemmrepro.build.record import Build, find_build
from gemmrepro.core.files import read_json
from gemmrepro.core.names import LIBRARY, SNAKEMAKE
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.experiments import figure_names, paper_figures, results
from gemmrepro.experiments.results import Results
from gemmrepro.judge.evidence import load_gates
from gemmrepro.measure.recording import SANITIZERS, check_manifest, read_sanitizers
from gemmrepro.measure.rows import Measurements, Regimes, load, load_regimes
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.claims import read_verdicts
from gemmrepro.paper.gpus import highest, read_others
from gemmrepro.paper.text import View, anchor, counter_anchor, experiment_row_anchor, row_anchor

TEMPLATES = ROOT / "reports" / "template"

_BUILD = re.compile(r"results/build/\w+/(?P<kernel>[\w.]+)\.json")


_DARK_ALONE = re.compile(r"@media\(prefers-color-scheme:dark\)\{.*?\}\}\n", re.DOTALL)
"""The colours that a figure has in dark mode where it is opened by itself."""

_DRAWN = frozenset("svg title desc style defs g path clipPath rect pattern use text tspan".split())
"""The elements of a figure. None runs anything or loads anything but what it refers to."""

_RULE = re.compile(r"^(svg|\.\w+)(?=\{)", re.MULTILINE)


def _read_figure(figures: Path, family: str, name: str, files: Files) -> View:
    """A figure, whose SVG and CSV go to `files`; one that was not drawn has no `svg`.
    `title` is the finding, where one follows from the data; `narrow` the SVG for fewer than 480 pixels; `link` and
    `csv` the places of the files, `table` the numbers drawn, by `columns`. `rows` are the ids of the rows that it
    draws, `links` by line of `table` the ids by column."""
    folder = figures / family
    svg, sidecar = folder / f"{name}.svg", folder / f"{name}.json"
    is_drawn = svg.is_file() and sidecar.is_file()
    about: dict[str, Any] = {
        "title": name,
        "caption": "This figure was not drawn.",
        "command": f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg",
        "columns": (),
        "table": (),
    }
    if is_drawn:
        about = read_json(sidecar, "the figure's sidecar", "draw the figures again")
    narrow, within = folder / f"{name}.narrow.svg", f"{anchor(family)}-{name}"
    columns, table = about["columns"], about["table"]
    return View(
        **{key: about[key] for key in ("title", "caption", "command", "columns", "table")},
        anchor=f"figure-{anchor(family)}-{name}",
        svg=inline_svg(svg.read_text(), within) if is_drawn else None,
        narrow=inline_svg(narrow.read_text(), f"{within}-narrow") if is_drawn and narrow.is_file() else None,
        link=files.add(svg, f"data/figures/{family}/{name}.svg"),
        csv=files.text(_csv(columns, table), f"data/figures/{family}/{name}.csv") if columns else None,
        rows=(),
        links=(),
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
    Ids get a prefix, short since hundreds of marks refer to one, and styles hold within this figure alone. The page
    sets the colours of dark mode; screen readers read the title and description. Raises UserError if `svg` holds no
    SVG, or one that could run a script."""
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    if not element:
        raise UserError(f"figure {name} is not an SVG; draw the figures again.")
    # Scripts and handlers are refused, too, by `bundle.secured`.
    if foreign := set(re.findall(r"<(?!/)([^\s/>]*)", element[0])) - _DRAWN:
        raise UserError(f"figure {name} has <{min(foreign)}>, which no figure of this project has; draw it again.")
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


class ShownRows:
    """The rows that the pages show, `by_id`: of sweeps, counters, regimes and experiments.
    Of libraries no counters and no regimes are shown, of experiments one toolkit's rows and libraries'. `kernels` are
    those with a page, which has their machine code."""

    def __init__(
        self,
        measured: Mapping[str, Measurements],
        experiments: Mapping[str, Mapping[str, Results]],
        regimes: Mapping[str, Regimes],
        kernels: set[str],
    ) -> None:
        self.kernels = kernels
        self.by_id: dict[str, Mapping[str, Any]] = {}
        self._experiments: dict[tuple[str, ...], list[tuple[frozenset[str], str]]] = {}
        for table in (sweep.summary for sweep in measured.values()):
            self.by_id |= {row_anchor(row): row for row in table.to_dict("records")}
        for table in (alone.summary for alone in regimes.values()):
            self.by_id |= {row_anchor(row): row for row in table[table["kernel"].isin(kernels)].to_dict("records")}
        for table in (sweep.counters for sweep in measured.values()):
            self.by_id |= {counter_anchor(row): row for row in table[table["kernel"].isin(kernels)].to_dict("records")}
        every = {(family, name): of for family, by_name in experiments.items() for name, of in by_name.items()}
        for (family, name), of in every.items():
            shown = of.rows[of.rows["toolkit"].isin((of.toolkit, LIBRARY))]
            for place, row in zip(shown.index, shown.to_dict("records"), strict=True):
                key = experiment_row_anchor(family, name, place)
                self.by_id[key] = row
                found = self._experiments.setdefault((family, name, row["kernel"], row["toolkit"]), [])
                found.append((frozenset(map(str, row.values())), key))

    def __call__(self, family: str, key: str) -> str | None:
        """The id of the row that a claim or figure of `family` names; None where the pages show no such row.
        The key of an experiment's names family, experiment, kernel, toolkit and some of its cells."""
        if built := _BUILD.match(key):
            return f"code-{anchor(built['kernel'])}" if built["kernel"] in self.kernels else None
        # A baseline's row is one of several families.
        for place in (key, anchor(f"row {key}"), anchor(f"row {family}/{key}")):
            if place in self.by_id:
                return place
        names, asked = tuple(key.split("/")[:4]), set(filter(None, key.split("/")[4:]))
        return next((place for cells, place in self._experiments.get(names, ()) if asked <= cells), None)

    def linked(self, figure: View, family: str) -> View:
        """The figure with the ids of its rows, and of the row that a number of its table comes from, if it is one."""
        found = [
            {column: [self(family, key) for key in keys] for column, keys in line.get("keys", {}).items()}
            for line in figure.table
        ]
        every = (place for cells in found for places in cells.values() for place in places if place)
        figure.rows = tuple(dict.fromkeys(every))
        figure.links = tuple(
            {column: places[0] for column, places in cells.items() if len(places) == 1} for cells in found
        )
        return figure


class Inputs:
    """The inputs of the report, by the arguments of its command; most are mappings by family, `builds` by kernel.
    `findings` are the paper's own figures by name, `picture` the file of the one that is a picture as well, if it is
    there; `files` is what the pages link to. Raises UserError if a required one is missing, or one is corrupt."""

    def __init__(self, arguments: Namespace) -> None:
        self.config = read_json(arguments.config, "the configuration", "write it, or let the workflow do so")
        self.families: list[str] = list(self.config.get("families") or registry.family_names())
        names, self.files = self.families, Files()
        kernels = [kernel for name in names for kernel in registry.kernels(name)]
        self.files.add(arguments.verdicts, "data/verdicts.json")
        self.measure_dir, self.build_dir, self.regimes_dir = arguments.measure, arguments.build, arguments.regimes
        self.measured = {name: load(arguments.measure, name) for name in names}
        self.experiments = {name: results.load(arguments.experiments, name) for name in names}
        self.regimes = {name: load_regimes(arguments.regimes, name) for name in names}
        self.rows = ShownRows(self.measured, self.experiments, self.regimes, {kernel.id for kernel in kernels})
        self.verdicts = read_verdicts(arguments.verdicts, self.rows)
        self.gates = load_gates(arguments.gates, [kernel.id for kernel in kernels])
        self.builds: dict[str, dict[str, Build]] = {}
        for kernel in kernels:
            for toolkit in kernel.platform.toolkits:
                if record := find_build(kernel.id, arguments.build, toolkit):
                    self.builds.setdefault(kernel.id, {})[toolkit] = record
        self.picture = arguments.figures / f"{paper_figures.PICTURE}.png"
        # On a family's page those of statements and regimes come first.
        drawn = {
            family: [
                *((paper_figures.FOLDER, figure) for figure in paper_figures.on_page_of(family)),
                *((family, figure) for figure in figure_names(family)),
            ]
            for family in names
        }
        self.figures = {
            family: [self.rows.linked(_read_figure(arguments.figures, *of, self.files), family) for of in figures]
            for family, figures in drawn.items()
        }
        self.findings = {
            name: self.rows.linked(_read_figure(arguments.figures, paper_figures.FOLDER, name, self.files), "")
            for name in paper_figures.names(names)
        }
        locks = sorted(arguments.images.glob("*.lock.json"))
        self.locks = [read_json(path, "the image's lock file", "build the image again") for path in locks]
        self.sanitized = load_sanitizers(arguments.recorded, names)
        self.others = read_others(arguments.gpus, names)
        self.own = [read_json(path, "the result", "run the target 'own' again") for path in arguments.own]
        self.own_figure = _read_figure(arguments.figures, "own", "ratio", self.files) if self.own else None
        self.ceilings = highest(self.measured)


def load_sanitizers(recorded: Path | None, families: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The outcomes in a GPU's recordings, by kernel; none without recordings, or for families that have none.
    Raises UserError if a file of them is corrupt."""
    outcomes: dict[str, Mapping[str, Any]] = {}
    for family in families if recorded else ():
        folder = Path(recorded or "") / family
        check_manifest(folder, SANITIZERS)
        outcomes |= read_sanitizers(folder / SANITIZERS)
    return outcomes
