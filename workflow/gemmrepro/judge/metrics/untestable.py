"""Claims that no run here can test."""

from __future__ import annotations

from dataclasses import dataclass

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured
from gemmrepro.judge.metrics.base import FigureMetric, Readings


@dataclass(frozen=True)
class Untestable(FigureMetric):
    """Nothing is measured; the claim's transfer says why."""

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        raise NotMeasured(claim.transfer["why"])

    def untestable(self, claim: Claim, readings: Readings | None, machine: str | None) -> str | None:
        return claim.transfer["why"]
