"""Finds the row of the report that a verdict's evidence names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmrepro.core.names import LIBRARY
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements, Regimes
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.rows import counter_anchor, row_anchor
from gemmrepro.paper.text import anchor

_BUILD = re.compile(r"results/build/\w+/(?P<kernel>[\w.]+)\.json")


@dataclass(frozen=True)
class Places:
    """The ids of all rows of the report: of sweeps, of the regimes, of counters, and of experiments."""

    measured: Mapping[str, Measurements]
    experiments: Mapping[str, Mapping[str, Results]]
    ids: frozenset[str]

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Measurements],
        experiments: Mapping[str, Mapping[str, Results]],
        regimes: Mapping[str, Regimes],
        kernels: set[str],
    ) -> Places:
        """From everything measured; `kernels` are those with a page, which has their rows of the regimes, too."""
        ids = {f"code-{anchor(kernel)}" for kernel in kernels}
        for family in measured.values():
            ids |= {row_anchor(row) for row in family.summary.to_dict("records")}
            counters = family.counters[family.counters["kernel"].isin(kernels)]
            ids |= {counter_anchor(row) for row in counters.to_dict("records")}
        for alone in regimes.values():
            own = alone.summary[alone.summary["kernel"].isin(kernels)]
            ids |= {row_anchor(row) for row in own.to_dict("records")}
        return cls(measured, experiments, frozenset(ids))

    def __call__(self, family: str, key: str) -> str | None:
        """The id of the row that a claim's evidence names; None where the report shows no such row."""
        built = _BUILD.match(key)
        found = f"code-{anchor(built['kernel'])}" if built else anchor(f"row {key}")
        own = anchor(f"row {family}/{key}")  # a baseline's row is one of several families
        if found in self.ids or own in self.ids:
            return found if found in self.ids else own
        return self._of_experiment(key)

    def _of_experiment(self, key: str) -> str | None:
        """The row of an experiment: key names family, experiment, kernel, toolkit and some of its cells."""
        family, _, rest = key.partition("/")
        name, _, rest = rest.partition("/")
        kernel, _, rest = rest.partition("/")
        toolkit, _, rest = rest.partition("/")
        results = self.experiments.get(family, {}).get(name)
        if results is None:
            return None
        wanted = rest.split("/") if rest else []
        for row in self._rows.get((family, name, kernel), ()):
            named = row.toolkit == toolkit or (row.toolkit == LIBRARY and toolkit == results.toolkit)
            if named and row.cells.issuperset(wanted):
                return experiment_row_anchor(family, name, row.place) if _shown(results, row) else None
        return None

    @cached_property
    def _rows(self) -> Mapping[tuple[str, str, str], list[_Row]]:
        """The rows of all experiments by family, experiment and kernel, in the order of the tables."""
        found: dict[tuple[str, str, str], list[_Row]] = {}
        for family, by_name in self.experiments.items():
            for name, results in by_name.items():
                for place, cells in results.rows.iterrows():
                    row = _Row(place, cells["toolkit"], frozenset(map(str, cells)))
                    found.setdefault((family, name, cells["kernel"]), []).append(row)
        return found


@dataclass(frozen=True)
class _Row:
    """A row of an experiment: its place in the table, its toolkit, and all its cells as text."""

    place: Any
    toolkit: str
    cells: frozenset[str]


def _shown(results: Results, row: _Row) -> bool:
    """Whether the report shows a row: those by the toolkit that represents the experiment, and libraries'."""
    return row.toolkit in (results.toolkit, LIBRARY)
