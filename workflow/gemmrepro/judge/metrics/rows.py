"""Quantities of one kernel, read from its summary row or from a hardware counter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.judge.ceilings import CEILING_FAMILY, measured_ceiling
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import (
    FigureMetric,
    Problem,
    Reading,
    kernels_of,
    unit_of,
)
from gemmrepro.judge.wording import duration
from gemmrepro.measure.rows import row_key
from gemmrepro.operations import operation
from gemmrepro.registry.ladders import is_tuned, twins

_RATE_UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s"}
_UNIT_FACTORS = {
    ("TFLOP/s", "GFLOP/s"): 1e3,
    ("GFLOP/s", "TFLOP/s"): 1e-3,
    ("GB/s", "TB/s"): 1e-3,
    ("TB/s", "GB/s"): 1e3,
}
_PER_MICROSECOND = {"s": 1e-6, "ms": 1e-3, "us": 1.0}


def convert_rate(unit: str, to: str) -> float:
    """The factor from `unit` to the unit `to`, both of rates. Raises UserError if they measure different quantities."""
    if unit == to:
        return 1.0
    try:
        return _UNIT_FACTORS[unit, to]
    except KeyError:
        raise UserError(f"claims.yaml: a value in {unit} cannot be compared with a published value in {to}.") from None


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
    value = row[column] * convert_rate(_RATE_UNITS[column], unit)
    work = value * row["median_us"]
    return Value(label, value, work / row["ci_high_us"], work / row["ci_low_us"], unit, (row_key(row),))


@dataclass(frozen=True)
class Duration(KernelMetric):
    """Median time of a launch, in ``s``, ``ms`` or ``us``."""

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        require(row, "median_us", "ci_low_us", "ci_high_us")
        scale = _PER_MICROSECOND[unit]
        median, low, high = (scale * row[column] for column in ("median_us", "ci_low_us", "ci_high_us"))
        return Value(label, median, low, high, unit, (row_key(row),))


@dataclass(frozen=True)
class BaselineThroughput(KernelMetric):
    """Throughput of the baseline that a kernel was timed with; its row keeps no interval of it."""

    def of_row(self, row: pd.Series, unit: str, label: str) -> Value:
        require(row, "tflops", "median_us", "baseline_median_us")
        value = row["tflops"] * row["median_us"] / row["baseline_median_us"] * convert_rate("TFLOP/s", unit)
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
        if ceiling not in kernels_of(CEILING_FAMILY):
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
