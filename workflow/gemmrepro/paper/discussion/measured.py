"""Numbers from the rows of sweeps and experiments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gemmrepro import experiments
from gemmrepro.core.names import LIBRARY, SIZE
from gemmrepro.core.text import format_number, in_words
from gemmrepro.errors import UserError
from gemmrepro.measure.rows import is_current, select
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.discussion.live import UNKNOWN, Live, quotient
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.rows import counter_anchor, row_anchor
from gemmrepro.registry.ladders import compared, dtypes


@dataclass(frozen=True)
class Measured:
    """What was measured, of kernels by id; with the cache that represents the family unless one is given."""

    sources: Sources

    def tflops(self, kernel: str, n: int = SIZE, cache: str | None = None, dtype: str | None = None) -> Live:
        """Throughput of a kernel, or of the family's baseline (in `dtype`)."""
        return self._cell("tflops", lambda x: f"{format_number(x)} TFLOP/s", kernel, n, cache, dtype)

    def beside(self, kernel: str, n: int = SIZE, cache: str | None = None) -> Live:
        """Throughput of the baseline that was timed in alternation with a kernel, in TFLOP/s."""
        own, ratio = self.tflops(kernel, n, cache), self.ratio(kernel, n, cache)
        return quotient(own, ratio, "TFLOP/s")

    def ratio(self, kernel: str, n: int = SIZE, cache: str | None = None) -> Live:
        """Speed relative to the baseline."""
        return self._cell("ratio", format_number, kernel, n, cache)

    def clock(self, kernel: str, n: int = SIZE, cache: str | None = None, dtype: str | None = None) -> Live:
        """SM clock while it ran, in MHz."""
        return self._cell("clock_mhz", lambda x: f"{x:,.0f} MHz", kernel, n, cache, dtype)

    def power(self, kernel: str, n: int = SIZE, cache: str | None = None, dtype: str | None = None) -> Live:
        """Power while it ran, in W."""
        return self._cell("power_w", lambda x: f"{x:,.0f} W", kernel, n, cache, dtype)

    def speedup(self, kernel: str, base: str, n: int = SIZE, cache: str | None = None) -> Live:
        """How many times as fast as `base` a kernel is.

        If both solve the same problem against the same baseline, it is the quotient of their ratios to it: each was
        timed in alternation with the baseline, so a clock that changes between the two cancels; in times it would not.
        """
        first, second = self.sources.kernel(kernel), self.sources.kernel(base)
        common = (
            first
            and second
            and first.timing.baseline
            and (first.problem, first.timing.baseline) == (second.problem, second.timing.baseline)
        )
        speed = self.ratio if common else self.tflops
        times = quotient(speed(kernel, n, cache), speed(base, n, cache))
        return replace(times, text=f"{times.text} times") if times.value else times

    def ahead(self, kernel: str, base: str, n: int = SIZE, cache: str | None = None) -> int:
        """1 if the 95% interval of a kernel's ratio to their baseline is above that of `base`, -1 if below, else 0."""
        first, second = (self._row(name, n, cache, None)[0] for name in (kernel, base))
        if first is None or second is None or first["baseline"] != second["baseline"]:
            return 0
        if any(row["status"] == "stale" or pd.isna(row["ratio_ci_low"]) for row in (first, second)):
            return 0
        above = first["ratio_ci_low"] > second["ratio_ci_high"]
        below = first["ratio_ci_high"] < second["ratio_ci_low"]
        return int(above) - int(below)

    def counter(self, kernel: str, metric: str, n: int = SIZE) -> Live:
        """A hardware counter of one launch."""
        measured = self.sources.measured.get(self.sources.home(kernel))
        if measured is None:
            return UNKNOWN
        rows = select(measured.counters, kernel=kernel, toolkit=measured.toolkit, metric=metric, m=n, n=n, k=n)
        rows = rows[rows["value"].notna()]
        if rows.empty:
            return UNKNOWN
        current = rows[is_current(rows)]
        row = (current if len(current) else rows).iloc[-1]
        value = float(row["value"])
        link = counter_anchor(row) if self.sources.link(kernel) else None
        return Live(in_words(value, row["unit"]), value, link, row["status"] == "stale")

    def experiment(self, name: str, column: str, kernel: str, unit: str = "", digits: int = 2, **where: Any) -> Live:
        """A cell of one of the family's experiments: the row of a kernel or library whose columns are as in `where`.

        Raises:
            UserError: there is no such experiment or column, or several rows match.
        """
        family, results = self.sources.family, self.sources.results.get(name)
        if results is None:
            experiments.experiment(family, name)  # a name that is not declared is an error
            return UNKNOWN
        columns = {name: results.experiment.column(name) for name in (column, *where)}
        rows = results.of(kernel, results.toolkit, **where)
        rows = rows[rows[column].notna()]
        if rows.empty:
            return UNKNOWN
        if len(rows) > 1:
            raise UserError(f"the experiment {name} has {len(rows)} rows of {kernel} where {where}; name one.")
        row = rows.iloc[0]
        link, stale = experiment_row_anchor(family, name, row.name), row["status"] == "stale"
        if columns[column].kind == "text":
            return Live(str(row[column]), math.nan, link, stale)
        value = float(row[column])
        text = f"{value:.0f}" if value == round(value) and abs(value) < 1e4 else format_number(value, digits)
        return Live(f"{text}{f' {unit}' if unit else ''}", value, link, stale)

    def _cell(
        self,
        column: str,
        write: Callable[[float], str],
        kernel: str,
        n: int,
        cache: str | None,
        dtype: str | None = None,
    ) -> Live:
        row, link = self._row(kernel, n, cache, dtype)
        if row is None or pd.isna(row[column]):
            return UNKNOWN
        value = float(row[column])
        return Live(write(value), value, link, row["status"] == "stale")

    def _row(self, kernel: str, n: int, cache: str | None, dtype: str | None) -> tuple[pd.Series | None, str | None]:
        """The row of a kernel, or of a baseline in a type, and its id in the report."""
        sources = self.sources
        is_baseline = kernel in {level.timing.baseline for level in compared(sources.family)}
        measured = sources.measured.get(sources.family if is_baseline else sources.home(kernel))
        if measured is None:
            return None, None
        if is_baseline:
            toolkit: str | None = LIBRARY
            dtype = dtype or next(iter(dtypes(sources.family)))
        else:
            known = sources.kernel(kernel)
            toolkit = measured.toolkit
            dtype = known.compute.dtype_in if known else None
        cache = cache or measured.cache
        rows = select(measured.summary, kernel=kernel, toolkit=toolkit, cache=cache, m=n, n=n, k=n)
        rows = select(rows, dtype=dtype) if dtype else rows
        if rows.empty:
            return None, None
        row = rows.iloc[-1]
        return row, row_anchor(row) if is_baseline or sources.link(kernel) else None
