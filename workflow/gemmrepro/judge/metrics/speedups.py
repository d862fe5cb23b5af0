"""One kernel against another: quotients of times, and which of two is the faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pandas as pd

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import FigureMetric, Readings
from gemmrepro.judge.metrics.rows import require
from gemmrepro.judge.rules import Verdict, judge_faster
from gemmrepro.judge.wording import duration
from gemmrepro.measure.rows import row_key


@dataclass(frozen=True)
class Speedup(FigureMetric):
    """Time of `over` divided by time of `kernel`."""

    of_rows: ClassVar[bool] = True

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        compute = claim.compute
        fast, slow = (evidence.row(compute[key], compute["n"], claim.cache, toolkit) for key in ("kernel", "over"))
        label = f"{compute['kernel']} over {compute['over']}, {compute['n']}, {claim.cache}, {toolkit}"
        if "through" in compute:
            return (speedup_through_baseline(fast, slow, label),)
        took = f"{duration(fast['median_us'])} where {compute['over']} takes {duration(slow['median_us'])}"
        return (replace(speedup(fast, slow, label), took=took),)


@dataclass(frozen=True)
class Faster(Speedup):
    """Whether `kernel` takes less time than `over`, whatever the figure."""

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        return judge_faster(readings.judged.value, claim.compute.get("least"), claim.compute.get("most"))

    def describe(self, claim: Claim, values: Sequence[Value], machine: str) -> str:
        (value,) = values
        kernel, over, value_text = claim.compute["kernel"], claim.compute["over"], value.text()
        if value.took:
            return f"{kernel} takes {value.took} on {machine} ({value.conditions}): {value_text} times as fast"
        return f"{kernel} is {value_text} times as fast as {over} on {machine} ({value.conditions})"


def speedup(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Median time of `over` divided by that of `row`.

    The interval combines opposite ends of the two intervals, so it is conservative. Raises NotMeasured.
    """
    for side in (row, over):
        require(side, "median_us", "ci_low_us", "ci_high_us")
    return Value(
        label,
        over["median_us"] / row["median_us"],
        over["ci_low_us"] / row["ci_high_us"],
        over["ci_high_us"] / row["ci_low_us"],
        "ratio",
        (row_key(row), row_key(over)),
    )


def speedup_through_baseline(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Ratio of `row` divided by that of `over`, to the same baseline; the interval is conservative, as in `speedup`.

    Each was timed in alternation with the baseline, so a change of clock between the two cancels; in times it does not.
    Raises NotMeasured.
    """
    for side in (row, over):
        require(side, "ratio", "ratio_ci_low", "ratio_ci_high")
    if row["baseline"] != over["baseline"]:
        raise NotMeasured(f"{row_key(row)} and {row_key(over)} were timed beside different baselines")
    return Value(
        f"{label}, through the baseline",
        row["ratio"] / over["ratio"],
        row["ratio_ci_low"] / over["ratio_ci_high"],
        row["ratio_ci_high"] / over["ratio_ci_low"],
        "ratio",
        (row_key(row), row_key(over)),
    )
