"""Finds the row of the report behind a key of verdicts.json, and behind a number of a figure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gemmrepro.core.names import LIBRARY
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements, Regimes
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.rows import counter_anchor, row_anchor
from gemmrepro.paper.text import anchor

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
            for name, results in by_name.items():
                # An experiment's section shows the rows of one toolkit, and libraries'.
                shown = results.rows[results.rows["toolkit"].isin((results.toolkit, LIBRARY))]
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
            for name, results in by_name.items():
                for place in results.rows.index:
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
