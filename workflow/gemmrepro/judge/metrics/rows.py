"""Quantities of kernels, read from their summary rows: rates, times, ratios, speed-ups and orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import convert, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge.ceilings import CEILING_FAMILY, measured_ceiling
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import (
    FigureMetric,
    Problem,
    Reading,
    Readings,
    gate_note,
    unit_of,
)
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


@dataclass(frozen=True)
class KernelMetric(FigureMetric):
    """A quantity that one kernel has at one size."""

    of_rows: ClassVar[bool] = True

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        return (self.of_kernel(claim.compute["kernel"], claim, evidence, toolkit),)

    def of_kernel(self, kernel: str, claim: Claim, evidence: Evidence, toolkit: str) -> Value:
        """The quantity of `kernel` at the claim's size and cache state. Raises NotMeasured."""
        row = evidence.row(kernel, claim.compute["n"], claim.cache, toolkit)
        label = f"{kernel}, {claim.compute['n']}, {claim.cache}, {toolkit}"
        return self.of_row(row, unit_of(claim, self.unit), label)

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        """The quantity in `unit`, of a summary row. Raises NotMeasured."""
        raise NotImplementedError


@dataclass(frozen=True)
class TunableMetric(KernelMetric):
    """A quantity that the report also gives for the kernel's tuned twin."""

    def tuned_note(self, claim: Claim, evidence: Evidence, judged: Reading) -> str:
        """The value of the kernel's tuned twin, if it was measured warm on this GPU."""
        if claim.cache != "warm":
            return ""
        kernel = registry.kernel(claim.compute["kernel"])
        note = ""
        for twin in twins(kernel):
            if not is_tuned(twin) or twin.compute.dtype_in != kernel.compute.dtype_in:
                continue
            of_twin = replace(claim, compute={**claim.compute, "kernel": twin.id})
            try:
                value = self.measure(of_twin, evidence, judged.toolkit or "").value
            except NotMeasured:
                continue
            note += f" Tuned for this GPU ({twin.id}), which the verdict leaves out: {value.text()}."
        return note


@dataclass(frozen=True)
class Throughput(TunableMetric):
    """Operations or bytes per second of a launch, by the unit."""

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        return rate(row, "gbps" if "B/s" in unit else "tflops", unit, label)


def rate(row: pd.Series, column: str, unit: str, label: str) -> Value:
    """`column` of a row (``tflops`` or ``gbps``) in `unit`; its interval follows from that of the median time."""
    require(row, column, "median_us", "ci_low_us", "ci_high_us")
    value = row[column] * factor(_RATE_UNITS[column], unit)
    work = value * row["median_us"]
    return Value(label, value, work / row["ci_high_us"], work / row["ci_low_us"], unit, (row_key(row),))


@dataclass(frozen=True)
class Duration(KernelMetric):
    """Median time of a launch, in ``s``, ``ms`` or ``us``."""

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        require(row, "median_us", "ci_low_us", "ci_high_us")
        scale = factor("us", unit)
        median, low, high = (scale * row[column] for column in ("median_us", "ci_low_us", "ci_high_us"))
        return Value(label, median, low, high, unit, (row_key(row),))


@dataclass(frozen=True)
class BaselineThroughput(KernelMetric):
    """Throughput of the baseline that a kernel was timed with; its row keeps no interval of it."""

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        require(row, "tflops", "median_us", "baseline_median_us")
        value = row["tflops"] * row["median_us"] / row["baseline_median_us"] * factor("TFLOP/s", unit)
        return Value(f"baseline of {label}", value, value, value, unit, (row_key(row),))


@dataclass(frozen=True)
class BaselineRatio(TunableMetric):
    """Time of the baseline over time of the kernel, from their paired samples."""

    def of_kernel(self, kernel: str, claim: Claim, evidence: Evidence, toolkit: str) -> Value:
        row = evidence.row(kernel, claim.compute["n"], claim.cache, toolkit)
        require(row, "median_us", "baseline_median_us")
        took, library = duration(row["median_us"]), evidence.library(row["baseline"])
        took += f" where {library} takes {duration(row['baseline_median_us'])}"
        return replace(super().of_kernel(kernel, claim, evidence, toolkit), took=took)

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        require(row, "ratio", "ratio_ci_low", "ratio_ci_high")
        return Value(label, row["ratio"], row["ratio_ci_low"], row["ratio_ci_high"], "ratio", (row_key(row),))


@dataclass(frozen=True)
class CeilingShare(KernelMetric):
    """Throughput of a kernel, in FLOP/s or B/s as the ceiling is, over a measured ceiling; the interval is its own."""

    def check(self, claim: Claim) -> list[Problem]:
        problems = super().check(claim)
        ceiling = claim.compute["ceiling"]
        if ceiling not in {kernel.id for kernel in registry.kernels(CEILING_FAMILY)}:
            problems.append(Problem("compute", f"there is no kernel '{ceiling}' in family {CEILING_FAMILY}"))
        return problems

    def of_kernel(self, kernel: str, claim: Claim, evidence: Evidence, toolkit: str) -> Value:
        row = evidence.row(kernel, claim.compute["n"], claim.cache, toolkit)
        name = claim.compute["ceiling"]
        ceiling = measured_ceiling(evidence.ceilings, name) if evidence.ceilings is not None else None
        if ceiling is None:
            raise NotMeasured(f"the ceiling {name} was not measured")
        label = f"{kernel}, {claim.compute['n']}, {claim.cache}, {toolkit}"
        column = operation(registry.kernel(name).compute.op).ceiling
        reached = rate(row, column, ceiling.unit, label)
        value, low, high = (part / ceiling.value for part in (reached.value, reached.ci_low, reached.ci_high))
        label = f"{label}, of {format_number(ceiling.value)} {ceiling.unit}"
        return Value(label, value, low, high, "ratio", (*reached.sources, ceiling.key))


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


@dataclass(frozen=True)
class Order(FigureMetric):
    """The published order of `kernels` by one of `quantities`."""

    quantities: Mapping[str, KernelMetric] = field(default_factory=dict)

    def check(self, claim: Claim) -> list[Problem]:
        problems = super().check(claim)
        if len(claim.compute["kernels"]) != len(claim.published):
            problems.append(Problem("compute.kernels", "one kernel for each published row is needed"))
        return problems

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        quantity = self.quantities[claim.compute["of"]]
        return tuple(quantity.of_kernel(kernel, claim, evidence, toolkit) for kernel in claim.compute["kernels"])

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        return judge_order(readings.judged.values, [row["value"] for row in claim.published])

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        values = ", ".join(f"{value.name} {value.text()}" for value in readings.judged.values)
        where = self.machine(claim, evidence) or "this machine"
        note = gate_note(claim, evidence, readings.judged.toolkit)
        return f"Measured on {where}: {values}. {sentence(verdict.reason)}.{note}"
