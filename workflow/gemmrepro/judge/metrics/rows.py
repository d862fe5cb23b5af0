"""Quantities of kernels, read from their summary rows: rates, times, ratios, speed-ups and orders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import convert, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge.carrying import CEILING_FAMILY, measured_ceiling
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import FigureMetric, Reading, Readings, gate_note
from gemmrepro.judge.rules import Verdict, judge_faster, judge_order
from gemmrepro.judge.wording import duration, sentence
from gemmrepro.measure.rows import row_key
from gemmrepro.operations import operation
from gemmrepro.registry.ladders import is_tuned, twins

_RATE_UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s"}


def factor(unit: str, to: str) -> float:
    """The factor from `unit` to the unit `to`. Raises UserError if they measure different quantities."""
    found = convert(1.0, unit, to)
    if found is None:
        raise UserError(f"claims.yaml: a value in {unit} cannot be compared with a published value in {to}.")
    return found


def require(row: pd.Series, *columns: str) -> None:
    """Raises NotMeasured where a row lacks one of the cells."""
    empty = [column for column in columns if pd.isna(row[column])]
    if empty:
        raise NotMeasured(f"the row {row_key(row)} has no {', '.join(empty)}")


Quantity = Callable[[pd.Series, Claim, Evidence, str, str], Value]
"""The quantity in a unit, of a summary row, with a label: (row, claim, evidence, unit, label). Raises NotMeasured."""


def rate(row: pd.Series, column: str, unit: str, label: str) -> Value:
    """`column` of a row (``tflops`` or ``gbps``) in `unit`; its interval follows from that of the median time."""
    require(row, column, "median_us", "ci_low_us", "ci_high_us")
    value = row[column] * factor(_RATE_UNITS[column], unit)
    work = value * row["median_us"]
    return Value(label, value, work / row["ci_high_us"], work / row["ci_low_us"], unit, (row_key(row),))


def throughput(row: pd.Series, claim: Claim, evidence: Evidence, unit: str, label: str) -> Value:
    """Operations or bytes per second of a launch, by the unit."""
    return rate(row, "gbps" if "B/s" in unit else "tflops", unit, label)


def time(row: pd.Series, claim: Claim, evidence: Evidence, unit: str, label: str) -> Value:
    """Median time of a launch, in ``s``, ``ms`` or ``us``."""
    require(row, "median_us", "ci_low_us", "ci_high_us")
    scale = factor("us", unit)
    median, low, high = (scale * row[column] for column in ("median_us", "ci_low_us", "ci_high_us"))
    return Value(label, median, low, high, unit, (row_key(row),))


def baseline_throughput(row: pd.Series, claim: Claim, evidence: Evidence, unit: str, label: str) -> Value:
    """Throughput of the baseline that a kernel was timed with; its row keeps no interval of it."""
    require(row, "tflops", "median_us", "baseline_median_us")
    value = row["tflops"] * row["median_us"] / row["baseline_median_us"] * factor("TFLOP/s", unit)
    return Value(f"baseline of {label}", value, value, value, unit, (row_key(row),))


def ratio(row: pd.Series, claim: Claim, evidence: Evidence, unit: str, label: str) -> Value:
    """Time of the baseline over time of the kernel, from their paired samples."""
    require(row, "median_us", "baseline_median_us", "ratio", "ratio_ci_low", "ratio_ci_high")
    took = f"{duration(row['median_us'])} where {evidence.library(row['baseline'])} takes "
    took += duration(row["baseline_median_us"])
    ends = row["ratio_ci_low"], row["ratio_ci_high"]
    return Value(label, row["ratio"], *ends, "ratio", (row_key(row),), took=took)


def ceiling_share(row: pd.Series, claim: Claim, evidence: Evidence, unit: str, label: str) -> Value:
    """Throughput of a kernel, in FLOP/s or B/s as the ceiling is, over a measured ceiling; the interval is its own."""
    name = claim.compute["ceiling"]
    ceiling = measured_ceiling(evidence.ceilings, name) if evidence.ceilings is not None else None
    if ceiling is None:
        raise NotMeasured(f"the ceiling {name} was not measured")
    reached = rate(row, operation(registry.kernel(name).compute.op).ceiling, ceiling.unit, label)
    value, low, high = (part / ceiling.value for part in (reached.value, reached.ci_low, reached.ci_high))
    label = f"{label}, of {format_number(ceiling.value)} {ceiling.unit}"
    return Value(label, value, low, high, "ratio", (*reached.sources, ceiling.key))


@dataclass(frozen=True)
class RowMetric(FigureMetric):
    """A quantity that one kernel has at one size; `tunable` where the report also gives it for its tuned twin."""

    quantity: Quantity = throughput
    tunable: bool = False
    of_rows: ClassVar[bool] = True

    def check(self, claim: Claim) -> list[Problem]:
        ceiling = claim.compute.get("ceiling")
        if ceiling is None or ceiling in {kernel.id for kernel in registry.kernels(CEILING_FAMILY)}:
            return super().check(claim)
        wrong = ("compute", f"there is no kernel '{ceiling}' in family {CEILING_FAMILY}")
        return [*super().check(claim), wrong]

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        return Reading(toolkit, (self.of_kernel(claim.compute["kernel"], claim, evidence, toolkit),))

    def of_kernel(self, kernel: str, claim: Claim, evidence: Evidence, toolkit: str) -> Value:
        """The quantity of `kernel` at the claim's size and cache state, in the published unit. Raises NotMeasured."""
        n = claim.compute["n"]
        unit = str(claim.published[0]["unit"]) if claim.published else self.unit
        row = evidence.row(kernel, n, claim.cache, toolkit)
        return self.quantity(row, claim, evidence, unit, f"{kernel}, {n}, {claim.cache}, {toolkit}")

    def tuned_note(self, claim: Claim, evidence: Evidence, judged: Reading) -> str:
        """The value of the kernel's tuned twin, if it was measured warm on this GPU."""
        if claim.cache != "warm" or not self.tunable:
            return ""
        kernel, note = registry.kernel(claim.compute["kernel"]), ""
        for twin in twins(kernel):
            if not is_tuned(twin) or twin.compute.dtype_in != kernel.compute.dtype_in:
                continue
            try:
                value = self.of_kernel(twin.id, claim, evidence, judged.toolkit or "")
            except NotMeasured:
                continue
            note += f" Tuned for this GPU ({twin.id}), which the verdict leaves out: {value.text()}."
        return note


@dataclass(frozen=True)
class Speedup(FigureMetric):
    """Time of `over` divided by time of `kernel`; without a tolerance, whether that is above 1 or within bounds."""

    of_rows: ClassVar[bool] = True

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        compute = claim.compute
        fast, slow = (evidence.row(compute[key], compute["n"], claim.cache, toolkit) for key in ("kernel", "over"))
        label = f"{compute['kernel']} over {compute['over']}, {compute['n']}, {claim.cache}, {toolkit}"
        if "through" in compute:
            return Reading(toolkit, (speedup_through_baseline(fast, slow, label),))
        took = f"{duration(fast['median_us'])} where {compute['over']} takes {duration(slow['median_us'])}"
        return Reading(toolkit, (replace(speedup(fast, slow, label), took=took),))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        if claim.metric == "speedup":
            return super().judge(claim, readings)
        return judge_faster(readings.judged.value, claim.compute.get("least"), claim.compute.get("most"))

    def describe(self, claim: Claim, value: Value, machine: str) -> str:
        if claim.metric == "speedup":
            return super().describe(claim, value, machine)
        kernel, over, value_text = claim.compute["kernel"], claim.compute["over"], value.text()
        if value.took:
            return f"{kernel} takes {value.took} on {machine} ({value.conditions}): {value_text} times as fast"
        return f"{kernel} is {value_text} times as fast as {over} on {machine} ({value.conditions})"


def _quotient(above: pd.Series, below: pd.Series, columns: tuple[str, str, str], label: str, *rows: pd.Series) -> Value:
    """A column of one row over that of another; the interval combines opposite ends, so it is conservative."""
    for side in (above, below):
        require(side, *columns)
    value, low, high = columns
    ends = above[low] / below[high], above[high] / below[low]
    return Value(label, above[value] / below[value], *ends, "ratio", tuple(map(row_key, rows)))


def speedup(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Median time of `over` divided by that of `row`. Raises NotMeasured."""
    return _quotient(over, row, ("median_us", "ci_low_us", "ci_high_us"), label, row, over)


def speedup_through_baseline(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Ratio of `row` divided by that of `over`, to the same baseline.
    Each was timed in alternation with the baseline, so a change of clock between the two cancels; in times it does not.
    Raises NotMeasured."""
    if row["baseline"] != over["baseline"]:
        raise NotMeasured(f"{row_key(row)} and {row_key(over)} were timed beside different baselines")
    columns = ("ratio", "ratio_ci_low", "ratio_ci_high")
    return _quotient(row, over, columns, f"{label}, through the baseline", row, over)


@dataclass(frozen=True)
class Order(FigureMetric):
    """The published order of `kernels` by one of `quantities`."""

    quantities: Mapping[str, RowMetric] = field(default_factory=dict)

    def check(self, claim: Claim) -> list[Problem]:
        if len(claim.compute["kernels"]) == len(claim.published):
            return super().check(claim)
        return [*super().check(claim), ("compute.kernels", "one kernel for each published row is needed")]

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        quantity = self.quantities[claim.compute["of"]]
        kernels = claim.compute["kernels"]
        return Reading(toolkit, tuple(quantity.of_kernel(kernel, claim, evidence, toolkit) for kernel in kernels))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        return judge_order(readings.judged.values, [row["value"] for row in claim.published])

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        values = ", ".join(f"{value.name} {value.text()}" for value in readings.judged.values)
        where = self.machine(claim, evidence) or "this machine"
        note = gate_note(claim, evidence, readings.judged.toolkit)
        return f"Measured on {where}: {values}. {sentence(verdict.reason)}.{note}"


_THROUGHPUT, _RATIO = RowMetric("tflops", "TFLOP/s", throughput, True), RowMetric("ratio", "ratio", ratio, True)
ROW_METRICS = (
    _THROUGHPUT,
    RowMetric("time", "ms", time),
    RowMetric("baseline_tflops", "TFLOP/s", baseline_throughput),
    _RATIO,
    RowMetric("ceiling_share", "ratio", ceiling_share),
    Speedup("speedup", "ratio"),
    Speedup("faster", "ratio"),
    Order("order", "", {"tflops": _THROUGHPUT, "ratio": _RATIO}),
)
