"""A row of measurements as a figure draws it: a value at a size, with its interval if enough samples are behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from gemmrepro.measure.rows import counted, row_key


@dataclass(frozen=True)
class Point:
    """One value and the ends of its 95% interval, NaN where none is known.

    `stale` marks a row of another build than today's; `key` names the row.
    """

    size: int
    value: float
    low: float
    high: float
    stale: bool
    key: str

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def throughput_point(row: pd.Series) -> Point:
    """TFLOP/s; the interval is that of the median time, so a longer time is a lower end."""
    work = float(row["tflops"]) * float(row["median_us"])
    low, high = _quotient(work, row["ci_high_us"]), _quotient(work, row["ci_low_us"])
    if not counted(row):
        low = high = math.nan
    return Point(int(row["n"]), float(row["tflops"]), low, high, row["status"] == "stale", row_key(row))


def ratio_point(row: pd.Series) -> Point:
    """Speed relative to the baseline."""
    low, high = (float(row[end]) if counted(row) else math.nan for end in ("ratio_ci_low", "ratio_ci_high"))
    return Point(int(row["n"]), float(row["ratio"]), low, high, row["status"] == "stale", row_key(row))


def _quotient(work: float, time: float) -> float:
    return work / float(time) if time else math.nan
