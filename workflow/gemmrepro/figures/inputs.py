"""The data that figures are drawn from, and the look-ups of an article's table in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.tables import Mark, Measured, Printed
from gemmrepro.experiments.tables import declared as tables_of
from gemmrepro.judge import carrying
from gemmrepro.judge.carrying import CEILING_FAMILY, measured_ceiling
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, Regimes, counted, row_key, select
from gemmrepro.paper.claims import VerdictsView
from gemmrepro.registry import chips
from gemmrepro.registry.articles import chip_of


def interval(row: pd.Series, low: str | None, high: str | None) -> tuple[float, float]:
    """The ends of a row's 95% interval by their columns, NaN where too few samples are behind it."""
    known = bool(low and high) and counted(row)
    return tuple(float(row[end]) if known and pd.notna(row[end]) else math.nan for end in (low, high))  # type: ignore[return-value]


@dataclass(frozen=True)
class Inputs:
    """The data that figures are drawn from.

    Attributes:
        measured, regimes: rows of the sweep, and of the regimes, by family.
        results: experiments by family and name.
        published: the published figure that each statement is compared with, by its id.
        family: whose figures are drawn; "" of the paper's own.
    """

    measured: Mapping[str, Measurements]
    results: Mapping[str, Mapping[str, Results]] = field(default_factory=dict)
    regimes: Mapping[str, Regimes] = field(default_factory=dict)
    verdicts: VerdictsView = field(default_factory=lambda: VerdictsView((), None, "none", {}))
    published: Mapping[str, float | None] = field(default_factory=dict)
    family: str = ""

    @property
    def own(self) -> Measurements:
        """The rows of the family whose figures are drawn."""
        return self.measured[self.family]

    @property
    def ceilings(self) -> Measurements | None:
        return self.measured.get(CEILING_FAMILY)

    @property
    def gpu(self) -> str:
        """The GPU of the measurements, without its maker."""
        own = self.measured[self.family].gpu if self.family in self.measured else None
        return (self.verdicts.gpu or own or "this GPU").removeprefix("NVIDIA ")

    def experiment(self, family: str, name: str) -> Results | None:
        """An experiment's rows; None where it was not run."""
        results = self.results.get(family, {}).get(name)
        return None if results is None or results.rows.empty else results

    def marks(self, family: str, table: str) -> list[Mark]:
        """The marks of an article's table that have a number; none where the family was left out."""
        if family not in self.measured:
            return []
        declared = tables_of(family)[table]
        numbers = Numbers(self.measured[family], self.ceilings, self.results.get(family, {}), declared.article)
        return [mark for mark in declared.marks(numbers) if mark.printed or mark.measured]


_INTERVALS = {"ratio": ("ratio_ci_low", "ratio_ci_high"), "median_us": ("ci_low_us", "ci_high_us")}
"""The columns of the ends of an interval, by column of the sweep's rows."""


@dataclass(frozen=True)
class Numbers:
    """The look-ups of a family and an article; see `gemmrepro.experiments.tables.Numbers`."""

    measured: Measurements
    ceilings: Measurements | None
    results: Mapping[str, Results]
    article: str

    def printed(self, system: str, metric: str, **cells: Any) -> Printed | None:
        wanted = {"system": system, "metric": metric, **cells}
        article = wanted.pop("article", self.article)
        rows = [row for row in published_rows(article) if all(row[key] == value for key, value in wanted.items())]
        if len(rows) > 1:
            raise UserError(f"articles/{article}/numbers.csv has {len(rows)} rows with {wanted}; name one.")
        return Printed(rows[0]["value"], rows[0]["hardware"]) if rows else None

    def swept(self, kernel: str, column: str, n: int, cache: str = "warm") -> Measured | None:
        rows = select(self.measured.summary, kernel=kernel, n=n, cache=cache, toolkit=self.measured.toolkit)
        square = (rows["m"] == rows["n"]) & ((rows["k"] == rows["n"]) | (rows["k"] == 1))
        rows = rows[square.fillna(False).astype(bool)]
        rows = rows[rows[column].notna()]
        if rows.empty:
            return None
        return _measured(rows.iloc[0], column, _INTERVALS.get(column, (None, None)), row_key(rows.iloc[0]))

    def found(self, experiment: str, kernel: str, column: str, **cells: Any) -> Measured | None:
        results = self.results.get(experiment)
        if results is None:
            return None
        rows = results.of(kernel, results.toolkit, **cells)
        rows = rows[rows[column].notna()]
        if rows.empty:
            return None
        row, declared = rows.iloc[0], results.experiment.column(column)
        return _measured(row, column, (declared.low, declared.high), results.key(self.measured.family, row))

    def rate(self, hardware: str, name: str) -> float | None:
        chip = chip_of(self.article, hardware) or chips.chips().get(hardware)
        rate = chip.rate(name) if chip else None
        return rate.value if rate else None

    def rate_here(self, name: str, ceiling: str = "") -> float | None:
        if self.ceilings is not None:
            kernels = (ceiling,) if ceiling else carrying.widest(name, self.ceilings.run.get("gpu") or {})
            found = [measured_ceiling(self.ceilings, kernel) for kernel in kernels]
            if values := [ceiling.value for ceiling in found if ceiling]:
                return max(values)
        chip = chips.at_hand(self.measured.gpu)
        rate = chip.rate(name) if chip else None
        return rate.value if rate else None


def _measured(row: pd.Series, column: str, ends: tuple[str | None, str | None], key: str) -> Measured:
    value = float(row[column])
    low, high = (value if math.isnan(end) else end for end in interval(row, *ends))
    return Measured(value, low, high, row["status"] == "stale", (key,))
