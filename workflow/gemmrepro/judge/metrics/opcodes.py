"""Statements about machine code: how often an instruction occurs in every build."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import (
    Exhibit,
    FigureMetric,
    Problem,
    Readings,
    read_toolkits,
    unknown_kernels,
)
from gemmrepro.judge.rules import Verdict, judge_counts
from gemmrepro.judge.wording import opcodes, sentence


@dataclass(frozen=True)
class Opcodes(FigureMetric):
    """Instructions whose whole opcode matches `pattern`, counted for each target. Builds by any toolkit count."""

    way = "count"

    def check(self, claim: Claim) -> list[Problem]:
        # Any family's: a build record needs no measurement.
        problems = unknown_kernels(claim)
        try:
            re.compile(claim.compute["pattern"])
        except re.error as error:
            problems.append(Problem("compute.pattern", str(error)))
        return problems

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        return read_toolkits(self, claim, evidence, any_toolkit=True)

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        kernel, pattern = claim.compute["kernel"], claim.compute["pattern"]
        evidence.check_gate(kernel)
        record = evidence.build(kernel, toolkit)
        if record is None or not record.archs:
            raise NotMeasured(f"there is no build record of {kernel} by {toolkit}")
        values = []
        for arch, code in sorted(record.archs.items()):
            count = float(sum(number for opcode, number in code.instructions.items() if re.fullmatch(pattern, opcode)))
            source = (f"results/build/{toolkit}/{kernel}.json#archs.{arch}.instructions",)
            values.append(Value(f"{kernel}, {toolkit}, {arch}", count, count, count, self.unit, source))
        return tuple(values)

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        counts = [value for reading in (readings.judged, *readings.others) for value in reading.values]
        compute = claim.compute
        return judge_counts(counts, opcodes(compute["pattern"]), compute.get("least", 1), compute.get("most"))

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        return f"{sentence(verdict.reason)}."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[Exhibit]:
        """One count stands for all targets: that of the GPU at hand, or else the smallest."""
        values = readings.judged.values
        at_hand = [value for value in values if value.label.endswith(str(evidence.measured.arch))]
        return [Exhibit(at_hand[0] if at_hand else min(values, key=lambda value: value.value))]
