"""Reads what experiments left in ``results/experiments/<family>``, for the verdicts, the figures and the report.

An experiment that was not run reads as an empty table, never as an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import experiments
from gemmrepro.core.files import read_json
from gemmrepro.core.machine import cpu_in_words
from gemmrepro.core.names import LIBRARY, TOOLKITS
from gemmrepro.errors import UserError
from gemmrepro.experiments import AFTER, BEFORE, Experiment
from gemmrepro.measure.rows import is_current, read_cells, select, with_types


@dataclass(frozen=True)
class Results:
    """One experiment's rows, with the columns of its header, and its JSON or {}."""

    experiment: Experiment
    rows: pd.DataFrame
    run: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def source(self) -> str:
        """``live``, ``recorded`` or ``none``."""
        return str(self.run.get("source") or "recorded") if len(self.rows) else "none"

    @property
    def gpu(self) -> str | None:
        return (self.run.get("gpu") or {}).get("name")

    @property
    def machine(self) -> str | None:
        """The machine that it ran on: the GPU's name, or the CPU's with its cores; None where nothing was measured."""
        if self.experiment.device == "cpu":
            return cpu_in_words(self.run["cpu"]) if "cpu" in self.run else None
        return self.gpu

    @property
    def stale(self) -> int:
        return int((~is_current(self.rows)).sum())

    @cached_property
    def toolkit(self) -> str | None:
        """The toolkit that represents it: that of most of its kernels, by current rows if there are any, or None.
        Kernels of another family that join an experiment may be built with a toolkit that its own are not."""
        for rows in (self.rows[is_current(self.rows)], self.rows):
            kernels = rows.groupby("toolkit")["kernel"].nunique()
            found = [toolkit for toolkit in TOOLKITS if toolkit in kernels]
            if found:
                return max(found, key=lambda toolkit: kernels[toolkit])
        return None

    def key(self, family: str, row: pd.Series) -> str:
        """The key of a row, by its place in the file: other rows may have the same cells."""
        return f"{family}/{self.experiment.name}/{row.name}"

    def of(self, kernel: str, toolkit: str | None, **cells: Any) -> pd.DataFrame:
        """The rows of a kernel built by `toolkit`, or of a library; their other cells equal `cells`."""
        rows = select(self.rows, kernel=kernel, **cells)
        return rows[(rows["toolkit"] == toolkit) | (rows["toolkit"] == LIBRARY)]


def row_key(family: str, name: str, row: Mapping[str, Any], *columns: str) -> str:
    """The name of a row: family, experiment, kernel, toolkit and the cells of `columns`."""
    cells = "/".join(str(row[column]) for column in columns)
    return f"{family}/{name}/{row['kernel']}/{row['toolkit']}" + (f"/{cells}" if cells else "")


RESTORED = "run the experiment again, or restore it"


def _read(path: Path, experiment: Experiment) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame(columns=list(experiment.header))
    table = read_cells(path, RESTORED)
    if list(table.columns) != list(experiment.header):
        raise UserError(f"{path} does not have the columns that the experiment declares; {RESTORED}.")
    kinds = dict.fromkeys((*BEFORE, *AFTER), "text") | {column.name: column.kind for column in experiment.columns}
    return with_types(table, kinds, path, RESTORED)


def nothing(experiment: Experiment) -> Results:
    """An experiment that was not run."""
    return Results(experiment, pd.DataFrame(columns=list(experiment.header)))


def load(folder: Path | str | None, family: str) -> dict[str, Results]:
    """A family's experiments by name, read from ``<folder>/<family>``; without a folder they have no rows."""
    results = {}
    for experiment in experiments.declared(family):
        if folder is None:
            results[experiment.name] = nothing(experiment)
            continue
        table, manifest = (Path(folder) / family / f"{experiment.name}.{suffix}" for suffix in ("csv", "json"))
        run = read_json(manifest, "the experiment's JSON", RESTORED) if manifest.is_file() else {}
        results[experiment.name] = Results(
            experiment, _read(table, experiment), run, table if table.is_file() else None
        )
    return results
