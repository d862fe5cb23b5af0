"""Which row each number of a figure's table was read from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.places import Places
from gemmrepro.paper.rows import row_anchor


@dataclass(frozen=True)
class Cells:
    """The values of every row of the report, by the row's id, and where a key's row is."""

    places: Places
    values: Mapping[str, frozenset[float]]

    @classmethod
    def of(
        cls, measured: Mapping[str, Measurements], experiments: Mapping[str, Mapping[str, Results]], places: Places
    ) -> Cells:
        """From everything measured."""
        return cls(places, dict([*_of_sweeps(measured), *_of_experiments(experiments)]))

    def linked(self, figure: FigureView, family: str) -> FigureView:
        """The figure with the ids of its rows, and for each number of its table that of the row that holds it."""
        found = [self.places(family, key) for key in figure.keys]
        rows = tuple(dict.fromkeys(place for place in found if place))
        home: dict[float, str] = {}
        for place in rows:
            for value in self.values.get(place, ()):
                home.setdefault(value, place)
        links = tuple(
            {column: home[number] for column, cell in line.items() if (number := _number(cell)) in home}
            for line in figure.table
        )
        return replace(figure, rows=rows, links=links)


def _number(cell: Any) -> float | None:
    """A number with a fraction: whole ones, such as sizes, are in many rows."""
    if isinstance(cell, bool) or not isinstance(cell, float) or not math.isfinite(cell) or cell.is_integer():
        return None
    return cell


def _of_sweeps(measured: Mapping[str, Measurements]) -> Iterator[tuple[str, frozenset[float]]]:
    for family in measured.values():
        for row in family.summary.to_dict("records"):
            yield row_anchor(row), _values(row.values())


def _of_experiments(
    experiments: Mapping[str, Mapping[str, Results]],
) -> Iterator[tuple[str, frozenset[float]]]:
    for family, by_name in experiments.items():
        for name, results in by_name.items():
            for place, row in zip(results.rows.index, results.rows.to_dict("records"), strict=True):
                yield experiment_row_anchor(family, name, place), _values(row.values())


def _values(cells: Any) -> frozenset[float]:
    return frozenset(number for cell in cells if (number := _number(cell)) is not None)


def link_figures(
    figures: Mapping[str, Sequence[FigureView]], findings: Mapping[str, FigureView], cells: Cells
) -> tuple[dict[str, list[FigureView]], dict[str, FigureView]]:
    """All figures with their rows: each family's, and the paper's own."""
    own = {family: [cells.linked(figure, family) for figure in drawn] for family, drawn in figures.items()}
    return own, {name: cells.linked(figure, "") for name, figure in findings.items()}
