"""An experiment's section of its family's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY, SNAKEMAKE
from gemmrepro.core.text import listed
from gemmrepro.experiments import Column, path_of
from gemmrepro.experiments.results import Results
from gemmrepro.paper.claims import experiment_anchor, experiment_row_anchor
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import NONE, number

NAMED = 4
"""How many kernels are named that were left out for one reason."""


class ExperimentRow(NamedTuple):
    """A row as text; `known` if the report has a page for its kernel."""

    anchor: str
    kernel: str
    known: bool
    stale: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: its `results`, those of its rows that are shown, and what did not run.

    `skipped` has kernels, toolkit and reason; `link` leads to all rows as CSV, `source_link` to the program that runs
    it.
    """

    anchor: str
    results: Results
    rows: tuple[ExperimentRow, ...]
    skipped: Sequence[tuple[str, str, str]]
    link: str | None
    command: str
    source_link: str | None = None

    @property
    def title(self) -> str:
        return self.results.experiment.title

    @property
    def date(self) -> str:
        """The day of its measurement."""
        return str(self.results.run.get("date") or "")[:10]


def experiment_view(family: str, results: Results, inputs: Inputs) -> ExperimentView:
    """An experiment of a family, its rows by the toolkit that represents it."""
    experiment = results.experiment
    shown = results.rows[(results.rows["toolkit"] == results.toolkit) | (results.rows["toolkit"] == LIBRARY)]
    known = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    return ExperimentView(
        anchor=experiment_anchor(family, experiment.name),
        results=results,
        rows=tuple(
            ExperimentRow(
                anchor=experiment_row_anchor(family, experiment.name, place),
                kernel=row["kernel"],
                known=row["kernel"] in known,
                stale=row["status"] == "stale",
                cells=tuple(_cell(row, column) for column in experiment.columns),
            )
            for place, row in shown.iterrows()
        ),
        skipped=_skipped(results.run.get("skipped") or []),
        link=inputs.files.add(results.path, f"data/experiments/{family}/{experiment.name}.csv"),
        command=experiment_command(family, results),
        source_link=inputs.files.add(path_of(family), f"data/sources/{family}/{path_of(family).name}"),
    )


def _skipped(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Kernels, toolkit and reason of what did not run, from run.json; those of one reason together, NAMED by name."""
    kernels: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        kernels.setdefault((entry["toolkit"], entry["reason"]), {})[entry["kernel"]] = None
    return [(_some([*names]), toolkit, reason) for (toolkit, reason), names in kernels.items()]


def _some(names: Sequence[str]) -> str:
    """``a, b and c``; ``a, b, c, d and 3 more``."""
    return listed(names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"])


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row[column.name]
    if pd.isna(value):
        return NONE
    if column.kind == "text":
        return str(value)
    return str(int(value)) if column.kind == "integer" else number(value)


def experiment_command(family: str, results: Results) -> str:
    """The command that runs an experiment again."""
    live = " --config measure=live" if results.experiment.device == "gpu" else ""
    return f"{SNAKEMAKE}{live} --force results/experiments/{family}/{results.experiment.name}.csv"
