"""Claims that rest on an experiment: a statement about every point, or a published figure at one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gemmrepro import experiments
from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.judge.carrying import unit_factor
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured
from gemmrepro.judge.experiments import (
    PointValue,
    combinations,
    describe,
    may_be_within_bounds,
    point_values,
    within_bounds,
)
from gemmrepro.judge.metrics.base import (
    Exhibit,
    FigureMetric,
    Problem,
    Reading,
    Readings,
    carried_over,
    expected,
    gate_note,
    on_hardware,
    unknown_kernels,
)
from gemmrepro.judge.rules import NOT_TESTABLE, UNDECIDED, Verdict, difference, of_many


@dataclass(frozen=True)
class ExperimentColumn(FigureMetric):
    """A column of an experiment: compared with a published figure where the claim has a tolerance, else with bounds."""

    def check(self, claim: Claim) -> list[Problem]:
        compute = claim.compute
        problems = []
        if claim.tolerance is not None and len(combinations(compute.get("where") or {})) > 1:
            problems.append(Problem("compute.where", "a figure is compared at one point"))
        problems += _exact_counts(claim)
        libraries: Collection[str] = ()
        try:
            experiment = experiments.experiment(claim.family, compute["experiment"])
            cells = (*(compute.get("where") or {}), *(compute.get("over_where") or {}), *compute.get("by", ()))
            for column in (compute["value"], *cells):
                experiment.column(column)
            libraries = experiment.libraries
        except UserError as error:
            problems.append(Problem("compute", str(error).rstrip(".")))
        return problems + unknown_kernels(claim, libraries)

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return _results(claim, evidence).machine

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        """The reading of the first toolkit that has every point. Raises NotMeasured with the last toolkit's reason."""
        reason = NotMeasured(f"the experiment {claim.compute['experiment']} was not run")
        for toolkit in claim.toolkits:
            try:
                return Readings(self.measure(claim, evidence, toolkit))
            except NotMeasured as error:
                reason = error
        raise reason

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        results = _results(claim, evidence)
        for kernel in claim.kernels:
            evidence.check_runs(kernel)
        values, exact = point_values(results, claim, toolkit)
        if not values:
            raise NotMeasured(f"at all {exact} points neither errs at all")
        by = toolkit if results.toolkit else None  # libraries have rows by no toolkit
        return Reading(by, tuple(values), exact)

    def untestable(self, claim: Claim, readings: Readings | None, machine: str | None) -> str | None:
        return super().untestable(claim, readings, machine) if readings is not None else None

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        if claim.tolerance is not None:
            return super().judge(claim, readings)
        values = _expected_points(claim, readings)
        inside = sum(within_bounds(value, claim.compute) for value in values)
        unclear = sum(may_be_within_bounds(value, claim.compute) for value in values) - inside
        return Verdict(of_many(inside, unclear, len(values)), f"{inside} of {len(values)} points")

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        machine = self.machine(claim, evidence) or "this machine"
        if claim.tolerance is None:
            values = _expected_points(claim, readings)
            column = _results(claim, evidence).experiment.column(claim.compute["value"])
            text = describe(values, readings.judged.exact, claim.compute, column.meaning, machine)
            carried = f" {_carried(claim, readings)}." if readings.carried is not None else ""
            open_yet = f" {_crossing(values, claim)}" if verdict.kind == UNDECIDED else ""
            return f"{text}.{open_yet}{carried}{gate_note(claim, evidence, readings.judged.toolkit)}"
        value = readings.judged.value
        text = f"Published {claim.figure_with_unit}{on_hardware(claim)}; measured {value.text()} on {machine}"
        text += f" ({value.label})" if value.label else ""
        if verdict.kind == NOT_TESTABLE:
            return f"{text}. {verdict.reason}"
        if readings.carried is not None:
            return f"{text}. {carried_over(claim, readings)}: {verdict.reason}."
        return f"{text}, {difference(value.value, expected(claim, readings))}: {verdict.reason}."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[Exhibit]:
        """The figure; of many points, the one that contradicts the claim most."""
        compute = claim.compute
        from_above = "most" in compute and not {"above", "least"} & set(compute)
        worst = (max if from_above else min)(_points(readings), key=lambda value: value.value)
        shown = readings.judged.value if claim.tolerance is not None else worst
        return [Exhibit(shown, experiment=compute["experiment"])]


def _exact_counts(claim: Claim) -> list[Problem]:
    """A problem where published integer counts are compared with a band."""
    if claim.transfer["kind"] == "none" or not any(row["unit"] == "count" for row in claim.published):
        return []
    return [
        Problem(f"compute.{key}", "integer counts are compared exactly: near: 0")
        for key in ("near", "factor")
        if claim.compute.get(key)
    ]


def _results(claim: Claim, evidence: Evidence) -> Results:
    """The experiment's rows. Raises NotMeasured."""
    name = claim.compute["experiment"]
    if name not in evidence.experiments:
        raise NotMeasured(f"the experiment {name} was not run")
    return evidence.experiments[name]


def _expected_points(claim: Claim, readings: Readings) -> list[PointValue]:
    """The values, with what is expected at each point where published values carry over by rates."""
    values = _points(readings)
    if readings.carried is None:
        return values
    factor = readings.carried.factor(str(claim.published[0]["unit"]))
    return [value if value.published is None else replace(value, expected=value.published * factor) for value in values]


def _crossing(values: Sequence[PointValue], claim: Claim) -> str:
    """The intervals that hold values within the claim's bounds and values outside of them, as a sentence."""
    compute = claim.compute
    parts = [
        f"[{format_number(value.ci_low)}, {format_number(value.ci_high)}]{f' at {value.point}' if value.point else ''}"
        for value in values
        if may_be_within_bounds(value, compute) and not within_bounds(value, compute)
    ]
    return f"The interval crosses the bound: {'; '.join(parts)}."


def _carried(claim: Claim, readings: Readings) -> str:
    """How the published values of many points carry over, by the first of them, as a sentence without full stop."""
    if readings.carried is None:
        raise ValueError(f"{claim.id} carries nothing over")
    first = readings.judged.value
    back = unit_factor(first.unit, str(claim.published[0]["unit"]))
    sentence = readings.carried.sentence(replace(claim, published=claim.published[:1]), first.value * back)
    return f"Of the first point: {sentence}"


def _points(readings: Readings) -> list[PointValue]:
    return [value for value in readings.judged.values if isinstance(value, PointValue)]
