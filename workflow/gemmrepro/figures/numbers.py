"""Looks up the numbers of a `Table`: rows of published.csv, of the sweep and of experiments, and rates of the chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.results import row_key as experiment_key
from gemmrepro.experiments.tables import Measured, Printed
from gemmrepro.judge import carrying
from gemmrepro.judge.ceilings import measured_ceiling
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, counted, row_key, select
from gemmrepro.registry import chips

_INTERVALS: Mapping[str, tuple[str, str]] = {
    "ratio": ("ratio_ci_low", "ratio_ci_high"),
    "median_us": ("ci_low_us", "ci_high_us"),
}
"""The columns of the ends of an interval, by column of the sweep's rows."""


@dataclass(frozen=True)
class Numbers:
    """The look-ups of one family; see `gemmrepro.experiments.tables.Numbers`."""

    measured: Measurements
    ceilings: Measurements | None
    results: Mapping[str, Results]

    def printed(self, system: str, metric: str, **cells: Any) -> Printed | None:
        wanted = {"article": registry.family(self.measured.family).article, "system": system, "metric": metric, **cells}
        rows = [row for row in published_rows() if all(row[key] == value for key, value in wanted.items())]
        if len(rows) > 1:
            raise UserError(f"published.csv has {len(rows)} rows with {wanted}; name one.")
        return Printed(rows[0]["value"], rows[0]["hardware"]) if rows else None

    def swept(self, kernel: str, column: str, n: int, cache: str = "warm") -> Measured | None:
        rows = select(self.measured.summary, kernel=kernel, n=n, cache=cache, toolkit=self.measured.toolkit)
        square = (rows["m"] == rows["n"]) & ((rows["k"] == rows["n"]) | (rows["k"] == 1))
        rows = rows[square.fillna(False).astype(bool)]
        rows = rows[rows[column].notna()]
        if rows.empty:
            return None
        row = rows.iloc[0]
        low, high = _INTERVALS.get(column, (None, None))
        return _measured(row, column, low, high, row_key(row))

    def found(self, experiment: str, kernel: str, column: str, **cells: Any) -> Measured | None:
        results = self.results.get(experiment)
        if results is None:
            return None
        rows = results.of(kernel, results.toolkit, **cells)
        rows = rows[rows[column].notna()]
        if rows.empty:
            return None
        row, declared = rows.iloc[0], results.experiment.column(column)
        key = experiment_key(self.measured.family, experiment, row, *cells)
        return _measured(row, column, declared.low, declared.high, key)

    def rate(self, hardware: str, name: str) -> float | None:
        chip = chips.of_article(hardware) or chips.chips().get(hardware)
        rate = chip.rate(name) if chip else None
        return rate.value if rate else None

    def rate_here(self, name: str, ceiling: str = "") -> float | None:
        if self.ceilings is not None and len(self.ceilings.summary):
            kernels = (ceiling,) if ceiling else carrying.widest(name, self.ceilings.run.get("gpu") or {})
            found = [measured_ceiling(self.ceilings, kernel) for kernel in kernels]
            if values := [ceiling.value for ceiling in found if ceiling]:
                return max(values)
        chip = chips.at_hand(self.measured.gpu)
        rate = chip.rate(name) if chip else None
        return rate.value if rate else None


def _measured(row: pd.Series, column: str, low: str | None, high: str | None, key: str) -> Measured:
    value = float(row[column])
    ends = [float(row[end]) if end and counted(row) and pd.notna(row[end]) else value for end in (low, high)]
    return Measured(value, ends[0], ends[1], row["status"] == "stale", (key,))
