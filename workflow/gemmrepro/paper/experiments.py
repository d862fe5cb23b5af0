"""An experiment's entry in its family's section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class ColumnView:
    """A column of an experiment's rows."""

    name: str
    meaning: str
    numeric: bool


@dataclass(frozen=True)
class ExperimentRow:
    """A row as text; `known` if the page has a section for its kernel."""

    anchor: str
    kernel: str
    known: bool
    stale: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class SkippedView:
    """What did not run, one kernel or several, and why."""

    kernel: str
    toolkit: str
    reason: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> SkippedView:
        """From an entry of run.json."""
        return cls(str(entry.get("kernel")), str(entry.get("toolkit")), str(entry.get("reason")))

    @classmethod
    def grouped(cls, entries: Iterable[Mapping[str, Any]]) -> tuple[SkippedView, ...]:
        """From entries of run.json, those of one reason as one; of more than NAMED kernels it names the first."""
        kernels: dict[tuple[str, str], dict[str, None]] = {}
        for one in map(cls.of, entries):
            kernels.setdefault((one.toolkit, one.reason), {})[one.kernel] = None
        return tuple(cls(_some([*names]), toolkit, reason) for (toolkit, reason), names in kernels.items())


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: its question, where it ran, and its rows by one toolkit, out of `total`.

    `link` leads to all rows as CSV, `source_link` to the program that runs it.
    """

    name: str
    anchor: str
    title: str
    question: str
    columns: tuple[ColumnView, ...]
    rows: tuple[ExperimentRow, ...]
    total: int
    stale: int
    toolkit: str | None
    source: str
    machine: str | None
    on_cpu: bool
    date: str
    skipped: tuple[SkippedView, ...]
    link: str | None
    command: str
    source_link: str | None = None


def experiment_view(family: str, results: Results, inputs: Inputs) -> ExperimentView:
    """An experiment of a family."""
    experiment = results.experiment
    shown = results.rows[(results.rows["toolkit"] == results.toolkit) | (results.rows["toolkit"] == LIBRARY)]
    known = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    return ExperimentView(
        name=experiment.name,
        anchor=experiment_anchor(family, experiment.name),
        title=experiment.title,
        question=experiment.question,
        columns=tuple(ColumnView(column.name, column.meaning, column.kind != "text") for column in experiment.columns),
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
        total=len(results.rows),
        stale=results.stale,
        toolkit=results.toolkit,
        source=results.source,
        machine=results.machine,
        on_cpu=experiment.device == "cpu",
        date=str(results.run.get("date") or "")[:10],
        skipped=SkippedView.grouped(results.run.get("skipped") or []),
        link=inputs.files.add(results.path, f"data/experiments/{family}/{experiment.name}.csv"),
        command=experiment_command(family, results),
        source_link=inputs.files.add(path_of(family), f"data/sources/{family}/{path_of(family).name}"),
    )


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
