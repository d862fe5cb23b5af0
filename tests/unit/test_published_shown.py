"""Of the published numbers with a measured counterpart 95% are drawn beside it; the others are listed with a reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gemmrepro import registry
from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import results, tables
from gemmrepro.experiments.tables import Printed
from gemmrepro.figures import ladder, paper
from gemmrepro.figures.inputs import Inputs, Numbers
from gemmrepro.judge import claims
from gemmrepro.judge.judging import judge_all
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import load
from gemmrepro.paper.claims import read_verdicts

RECORDED = ROOT / "reports" / "recorded" / "h200"
ROWS = published_rows()
DRAWN = 0.95
"""Least share of the published numbers with a counterpart that a figure shows beside it."""

IN_WORDS = "printed as a trend or sign, not as a number: there is no value to draw"
NO_TOLERANCE = "compared exactly or as a bound, so that a quotient says nothing; the table of claims shows both"
TIMED_APART = "parts and whole come from different runs, so that a share of one exceeds 1, which is not drawn"
REASONS: Mapping[tuple[str, str], str] = {
    ("ada", "numerics"): IN_WORDS,
    ("cute", "negative_result"): IN_WORDS,
    ("ladder", "trend"): IN_WORDS,
    ("gpu-notes", "trend"): IN_WORDS,
    ("gpu-notes", "capacity"): NO_TOLERANCE,
    ("gpu-notes", "speedup"): NO_TOLERANCE,
    ("ladder", "capacity"): NO_TOLERANCE,
    ("ozaki", "gemms"): NO_TOLERANCE,
    ("ozaki", "synchronisations"): NO_TOLERANCE,
    **dict.fromkeys([("ozaki", part) for part in ("split_time", "kernel_time", "total_time")], TIMED_APART),
}
"""Why numbers are not drawn, by article and metric."""


def ident(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a row of numbers.csv from the others."""
    return tuple(row[key] for key in ("article", "table", "system", "dtype", "n", "d", "metric", "hardware", "value"))


@dataclass(frozen=True)
class Traced(Printed):
    """A published number that knows its rows."""

    rows: frozenset[tuple[Any, ...]] = frozenset()

    def __truediv__(self, other: Printed | float) -> Traced:
        quotient = super().__truediv__(other)
        return Traced(quotient.value, quotient.hardware, self.rows | getattr(other, "rows", frozenset()))

    def inverse(self) -> Traced:
        return Traced(1 / self.value, self.hardware, self.rows)


class TracedNumbers(Numbers):
    """Look-ups that remember the rows of what they find."""

    def printed(self, system: str, metric: str, **cells: Any) -> Traced | None:
        found = super().printed(system, metric, **cells)
        wanted = {"article": registry.family(self.measured.family).article, "system": system, "metric": metric, **cells}
        rows = (ident(row) for row in ROWS if all(row[key] == value for key, value in wanted.items()))
        return Traced(found.value, found.hardware, frozenset(rows)) if found else None


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    """The recordings as they are, judged without builds: statements that count machine code are not judged here."""
    folder = tmp_path_factory.mktemp("published")
    names = registry.family_names()
    for name in names:
        if (recorded := RECORDED / name / "experiments").is_dir():
            shutil.copytree(recorded, folder / "experiments" / name)
    judged = judge_all(RECORDED, folder, folder, tuple(names), experiments_dir=folder / "experiments")
    write_json(folder / "verdicts.json", judged.as_json())
    return Inputs(
        {name: load(RECORDED, name) for name in names},
        {name: results.load(folder / "experiments", name) for name in names},
        verdicts=read_verdicts(folder / "verdicts.json"),
        published={claim.id: claim.value for claim in claims.load()},
    )


def _in_tables(inputs: Inputs) -> Iterator[tuple[Any, ...]]:
    """Rows that a figure of an article's table draws beside a measured value."""
    for family, measured in inputs.measured.items():
        numbers = TracedNumbers(measured, inputs.measured["ceilings"], inputs.results[family])
        for table in tables.declared(family).values():
            for mark in table.marks(numbers):
                if mark.measured:
                    yield from (row for printed in mark.printed for row in printed.rows)  # type: ignore[attr-defined]


def _in_ratios(inputs: Inputs) -> Iterator[tuple[Any, ...]]:
    """Rows that the figure of ratios draws beside a measured bar."""
    for family, measured in inputs.measured.items():
        if "ratio" not in registry.family(family).figures:
            continue
        shown = ladder.ratios(measured)
        drawn = set(shown.steps["published"].dropna())
        for row in ROWS:
            of_article = row["article"] == registry.family(family).article and row["metric"] == "ratio_to_cublas"
            if of_article and row["n"] == shown.published_size and row["value"] in drawn:
                yield ident(row)


def _in_statements(inputs: Inputs) -> Iterator[tuple[Any, ...]]:
    """Rows of the statements whose figure compares one number."""
    declared = {claim.id: claim for claim in claims.load()}
    for claim, _ in paper.compared(inputs):
        yield from map(ident, declared[claim.id].published)


def test_published_numbers_are_drawn_beside_the_measured_ones(inputs):
    declared = {claim.id: claim for claim in claims.load()}
    judged = {ident(row) for claim in paper.judged(inputs) if claim.judged for row in declared[claim.id].published}
    drawn = {*_in_tables(inputs), *_in_ratios(inputs), *_in_statements(inputs)}
    wanted = {row for row in judged | drawn if REASONS.get((row[0], row[6])) != IN_WORDS}
    left = wanted - drawn
    assert len(wanted) > 250
    assert len(wanted & drawn) >= DRAWN * len(wanted), (len(wanted), sorted(map(str, left)))
    assert sorted(str(row) for row in left if (row[0], row[6]) not in REASONS) == []
