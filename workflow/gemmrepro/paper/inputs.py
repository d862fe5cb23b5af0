"""The inputs of the report, read once, and the row that the pages show for a key or a number of a figure."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import Build, find_build
from gemmrepro.core.files import read_json
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import results
from gemmrepro.experiments.results import Results
from gemmrepro.judge.evidence import load_gates
from gemmrepro.measure.rows import Measurements, Regimes, load, load_regimes
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.claims import VerdictsView, read_verdicts
from gemmrepro.paper.figure_views import FigureView, read_figures, read_findings
from gemmrepro.paper.gates import load_sanitizers
from gemmrepro.paper.gpus import Gpu, highest, read_others
from gemmrepro.paper.text import anchor, counter_anchor, experiment_row_anchor, row_anchor

_BUILD = re.compile(r"results/build/\w+/(?P<kernel>[\w.]+)\.json")


@dataclass(frozen=True)
class ShownRows:
    """The rows that the pages show, `by_id`: of sweeps, counters, regimes and experiments.

    `kernels` are those with a page, which has their machine code.
    """

    by_id: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, Mapping[str, Results]]
    kernels: set[str]

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Measurements],
        experiments: Mapping[str, Mapping[str, Results]],
        regimes: Mapping[str, Regimes],
        kernels: set[str],
    ) -> ShownRows:
        """Of everything measured, what the pages show: of libraries no counters and no regimes."""
        rows: dict[str, Mapping[str, Any]] = {}
        for table in (sweep.summary for sweep in measured.values()):
            rows |= {row_anchor(row): row for row in table.to_dict("records")}
        for table in (alone.summary for alone in regimes.values()):
            rows |= {row_anchor(row): row for row in table[table["kernel"].isin(kernels)].to_dict("records")}
        for table in (sweep.counters for sweep in measured.values()):
            rows |= {counter_anchor(row): row for row in table[table["kernel"].isin(kernels)].to_dict("records")}
        for family, by_name in experiments.items():
            for name, of in by_name.items():
                # An experiment's section shows the rows of one toolkit, and libraries'.
                shown = of.rows[of.rows["toolkit"].isin((of.toolkit, LIBRARY))]
                for place, row in zip(shown.index, shown.to_dict("records"), strict=True):
                    rows[experiment_row_anchor(family, name, place)] = row
        return cls(rows, experiments, kernels)

    def __call__(self, family: str, key: str) -> str | None:
        """The id of the row that a claim or figure of `family` names; None where the pages show no such row."""
        if built := _BUILD.match(key):
            return f"code-{anchor(built['kernel'])}" if built["kernel"] in self.kernels else None
        # A baseline's row is one of several families.
        ids = (anchor(f"row {key}"), anchor(f"row {family}/{key}"))
        return next((place for place in ids if place in self.by_id), None) or self._of_experiment(key)

    def _of_experiment(self, key: str) -> str | None:
        """The row of an experiment: `key` names family, experiment, kernel, toolkit and some of its cells."""
        family, name, kernel, toolkit, *cells = [*key.split("/"), "", "", "", ""]
        results = self.experiments.get(family, {}).get(name)
        for row_toolkit, row_cells, place in self._rows_of_experiments.get((family, name, kernel), ()):
            beside = row_toolkit == LIBRARY and results is not None and toolkit == results.toolkit
            if (row_toolkit == toolkit or beside) and row_cells.issuperset(filter(None, cells)):
                return place
        return None

    @cached_property
    def _rows_of_experiments(self) -> Mapping[tuple[str, str, str], list[tuple[str, frozenset[str], str]]]:
        """Toolkit, cells as text, and id of each row of the experiments, by family, experiment and kernel."""
        rows: dict[tuple[str, str, str], list[tuple[str, frozenset[str], str]]] = {}
        for family, by_name in self.experiments.items():
            for name, of in by_name.items():
                for place in of.rows.index:
                    if row := self.by_id.get(key := experiment_row_anchor(family, name, place)):
                        cells = frozenset(map(str, row.values()))
                        rows.setdefault((family, name, row["kernel"]), []).append((row["toolkit"], cells, key))
        return rows

    def linked(self, figure: FigureView, family: str) -> FigureView:
        """The figure with the ids of its rows, and for each number of its table the id of the row that holds it."""
        ids = tuple(dict.fromkeys(place for key in figure.keys if (place := self(family, key))))
        home: dict[float, str] = {}
        for place in ids:
            for cell in self.by_id.get(place, {}).values():
                if _is_measured(cell):
                    home.setdefault(cell, place)
        links = tuple(
            {column: home[cell] for column, cell in line.items() if _is_measured(cell) and cell in home}
            for line in figure.table
        )
        return replace(figure, rows=ids, links=links)


def _is_measured(cell: object) -> bool:
    """Whether a cell is a number with a fraction: whole ones, such as sizes, are in many rows."""
    return isinstance(cell, float) and math.isfinite(cell) and not cell.is_integer()


TEMPLATES = ROOT / "reports" / "template"


@dataclass(frozen=True)
class Inputs:
    """The inputs of the report.

    Attributes:
        measured, figures, experiments, regimes: by family; `experiments` then by name.
        gates: gate verdicts by kernel id.
        builds: build records by kernel id and toolkit.
        findings: the paper's own figures by name.
        sanitized: what compute-sanitizer said, by kernel id.
        locks: the lock files of the images, empty without containers.
        others: other GPUs whose recordings were judged by themselves.
        files: what the pages link to.
    """

    verdicts: VerdictsView
    measured: Mapping[str, Measurements]
    gates: Mapping[str, Mapping[str, Any]]
    builds: Mapping[str, Mapping[str, Build]]
    figures: Mapping[str, Sequence[FigureView]]
    findings: Mapping[str, FigureView]
    locks: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    families: Sequence[str]
    rows: ShownRows
    files: Files
    measure_dir: Path
    build_dir: Path
    gates_dir: Path
    experiments: Mapping[str, Mapping[str, Results]] = field(default_factory=dict)
    regimes: Mapping[str, Regimes] = field(default_factory=dict)
    regimes_dir: Path | None = None
    sanitized: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    others: Sequence[Gpu] = ()

    @cached_property
    def ceilings(self) -> dict[str, float]:
        """TFLOP/s of the GPU's fastest loops by type, which no row may exceed."""
        return highest(self.measured)


def read_inputs(arguments: argparse.Namespace) -> Inputs:
    """Read every input. Raises UserError if a required one is missing or corrupt."""
    config = read_json(arguments.config, "the configuration", "write it, or let the workflow do so")
    families = [name for name in config.get("families") or registry.family_names()]
    kernels = [kernel for name in families for kernel in registry.kernels(name)]
    builds: dict[str, dict[str, Build]] = {}
    for kernel in kernels:
        for toolkit in kernel.platform.toolkits:
            if record := find_build(kernel.id, arguments.build, toolkit):
                builds.setdefault(kernel.id, {})[toolkit] = record
    measured = {name: load(arguments.measure, name) for name in families}
    found = {name: results.load(arguments.experiments, name) for name in families}
    files = Files()
    files.add(arguments.verdicts, "data/verdicts.json")
    regimes = {name: load_regimes(arguments.regimes, name) for name in families}
    rows = ShownRows.of(measured, found, regimes, {kernel.id for kernel in kernels})
    figures = {name: read_figures(arguments.figures, name, files) for name in families}
    findings = read_findings(arguments.figures, families, files)
    locks = sorted(arguments.images.glob("*.lock.json"))
    return Inputs(
        verdicts=read_verdicts(arguments.verdicts, rows),
        measured=measured,
        gates=load_gates(arguments.gates, [kernel.id for kernel in kernels]),
        builds=builds,
        figures={name: [rows.linked(figure, name) for figure in drawn] for name, drawn in figures.items()},
        findings={name: rows.linked(figure, "") for name, figure in findings.items()},
        locks=[read_json(path, "the image's lock file", "build the image again") for path in locks],
        rows=rows,
        config=config,
        families=families,
        files=files,
        measure_dir=arguments.measure,
        build_dir=arguments.build,
        gates_dir=arguments.gates,
        experiments=found,
        regimes=regimes,
        regimes_dir=arguments.regimes,
        sanitized=load_sanitizers(arguments.recorded, families),
        others=read_others(arguments.gpus, families),
    )
