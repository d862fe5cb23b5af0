"""Orders: which of several kernels has more of a quantity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, Value
from gemmrepro.judge.metrics.base import FigureMetric, Problem, Readings, gate_note
from gemmrepro.judge.metrics.rows import KernelMetric
from gemmrepro.judge.rules import Verdict, judge_order
from gemmrepro.judge.wording import sentence


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
