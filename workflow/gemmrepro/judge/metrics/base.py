"""The interface of a metric, and what most metrics share: one value, compared with the published figure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.text import format_number
from gemmrepro.judge.carrying import Carried, unit_factor
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.rules import NOT_TESTABLE, Verdict, difference, judge_value
from gemmrepro.registry.chips import same_gpu


@dataclass(frozen=True)
class Reading:
    """The values that one toolkit's rows give for a claim; one value for most metrics.
    `toolkit` is None if none built what was measured; `exact` counts points where both sides are zero."""

    toolkit: str | None
    values: tuple[Value, ...]
    exact: int = 0

    @property
    def value(self) -> Value:
        return self.values[0]


@dataclass(frozen=True)
class Readings:
    """The reading that a claim is judged on, and those of other toolkits.
    `carried` says how published values carry over by rates of the chips; None where they need not."""

    judged: Reading
    others: tuple[Reading, ...] = ()
    carried: Carried | None = None


class OtherToolkitsOnly(NotMeasured):
    """The toolkit that counts has no reading; `others` have one."""

    def __init__(self, reason: NotMeasured, others: Sequence[Reading]) -> None:
        super().__init__(str(reason))
        self.others = tuple(others)


def exhibit(value: Value, *, judged: bool = True, **origin: Any) -> dict[str, Any]:
    """A value in a claim's entry of verdicts.json; of `origin` the `experiment`, or `static` for what needs no GPU."""
    return {**value.as_json(), "judged": judged, **origin}


def not_judged(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """The exhibits of toolkits that the claim is not judged on."""
    return [exhibit(value, judged=False) for reading in readings for value in reading.values]


def unknown_kernels(claim: Claim, libraries: Collection[str] = ()) -> list[Problem]:
    """A problem for each kernel that the claim names and no family has, nor `libraries`."""
    known = {*libraries, *(kernel.id for kernel in registry.kernels())}
    return [("compute", f"there is no kernel '{kernel}'") for kernel in claim.kernels if kernel not in known]


def gate_note(claim: Claim, evidence: Evidence, toolkit: str | None) -> str:
    """A sentence where a kernel behind a claim has no passed numerical gate for this binary."""
    still_open = evidence.open_gates(claim.kernels, toolkit or "")
    named = ", ".join(f"{kernel} ({status})" for kernel, status in still_open)
    return f" The numerical gate has not passed for {named}." if named else ""


@dataclass(frozen=True)
class FigureMetric:
    """A metric whose one value is compared with one published figure, within the claim's tolerance."""

    word: str
    unit: str = ""
    way: ClassVar[str] = "measured"
    of_rows: ClassVar[bool] = False
    any_toolkit: ClassVar[bool] = False
    """Whether it is judged on another toolkit's reading where that which counts has none."""

    @property
    def rule(self) -> str:
        """The rule: the quantity, and when a claim on it holds, in a sentence or two."""
        return str(schemas.load("claims.schema.yaml")["$defs"]["metrics"][self.word]["description"])

    def check(self, claim: Claim) -> list[Problem]:
        return unknown_kernels(claim)

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return evidence.measured.gpu

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        """A reading for each toolkit that has one; the first toolkit with rows of the family is the one that counts.
        Raises NotMeasured with the first's reason if there is none, OtherToolkitsOnly if that which counts has none."""
        readings: list[Reading] = []
        reasons: list[NotMeasured] = []
        toolkits = evidence.toolkits(claim.toolkits)
        for toolkit in toolkits:
            try:
                readings.append(self.measure(claim, evidence, toolkit))
            except NotMeasured as reason:
                reasons.append(reason)
        if not readings:
            raise reasons[0]
        if readings[0].toolkit != toolkits[0] and not self.any_toolkit:
            raise OtherToolkitsOnly(reasons[0], readings)
        return Readings(readings[0], tuple(readings[1:]))

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        """The measured counterpart of the published figure by one toolkit. Raises NotMeasured."""
        raise NotImplementedError

    def untestable(self, claim: Claim, readings: Readings | None, machine: str | None) -> str | None:
        if claim.transfer["kind"] != "none" or (claim.hardware and same_gpu(claim.hardware, machine)):
            return None
        return f"Only {claim.hardware} can confirm the figure." if claim.published else claim.transfer["why"]

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        wanted, tolerance = expected(claim, readings), claim.tolerance or 0.0
        return judge_value(readings.judged.value, wanted, tolerance, claim.within_factor, claim.same_side)

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        measured = self.describe(claim, readings.judged.value, self.machine(claim, evidence) or "this machine")
        one = len(readings.judged.values) == 1
        notes = "".join(f" With {other.toolkit}: {other.value.text()}." for other in readings.others if one)
        notes += self.tuned_note(claim, evidence, readings.judged)
        if verdict.kind == NOT_TESTABLE:
            return f"{measured}.{notes} {verdict.reason}"
        if readings.carried is not None:
            measured += f". {carried_over(claim, readings)}"
        return f"{measured}: {verdict.reason}.{notes}" + gate_note(claim, evidence, readings.judged.toolkit)

    def describe(self, claim: Claim, value: Value, machine: str) -> str:
        """The published and the measured figure, as a sentence without its full stop."""
        measured = f"{value.text()} on {machine}, {value.name} ({value.conditions})"
        if value.took:
            took = f"{claim.compute['kernel']} takes {value.took}"
            measured = f"{took} on {machine} ({value.conditions}): ratio {value.text()}"
        if not claim.published:
            return measured if value.took else f"Measured {measured}"
        figure, off = f"{claim.figure_with_unit}{on_hardware(claim)}", difference(value.value, published(claim))
        if value.took:
            return f"{measured}; published {figure}, {off}"
        return f"Published {figure}; measured {measured}, {off}"

    def tuned_note(self, claim: Claim, evidence: Evidence, judged: Reading) -> str:
        """A sentence on the claim's kernel with tuned constants; '' for a metric that tuning does not affect."""
        return ""

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[dict[str, Any]]:
        return [exhibit(value) for value in readings.judged.values] + not_judged(readings.others)


@dataclass(frozen=True)
class Untestable(FigureMetric):
    """Nothing is measured; the claim's transfer says why."""

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        raise NotMeasured(claim.transfer["why"])

    def untestable(self, claim: Claim, readings: Readings | None, machine: str | None) -> str | None:
        return claim.transfer["why"]


def published(claim: Claim) -> float:
    """The published figure of a claim whose schema requires one. Raises ValueError without one."""
    if claim.value is None:
        raise ValueError(f"{claim.id} has no published figure")
    return claim.value


def expected(claim: Claim, readings: Readings) -> float:
    """The published figure as it is expected here, in the measured unit: carried over by rates where it has to be."""
    figure = published(claim) * unit_factor(claim.unit, readings.judged.value.unit)
    return figure if readings.carried is None else figure * readings.carried.factor(claim.unit)


def carried_over(claim: Claim, readings: Readings) -> str:
    """The published figure carried over, and the distance of the measured one, as a sentence without full stop."""
    if readings.carried is None:
        raise ValueError(f"{claim.id} carries nothing over")
    measured, wanted = readings.judged.value, expected(claim, readings)
    text = readings.carried.sentence(claim, measured.value * unit_factor(measured.unit, claim.unit))
    unit = "" if measured.unit in ("ratio", "") else f" {measured.unit}"
    return (
        f"{text[0].upper()}{text[1:]}; so {format_number(wanted, 4)}{unit} is expected here, and the measured value is "
        f"{difference(measured.value, wanted)}"
    )


def on_hardware(claim: Claim) -> str:
    """`` on NVIDIA A6000``; '' for a figure that belongs to no GPU."""
    return f" on {claim.hardware}" if claim.hardware else ""
