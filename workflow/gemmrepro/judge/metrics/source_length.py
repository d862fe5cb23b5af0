"""Statements about the length of sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.text import format_number
from gemmrepro.judge import source_lines
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, Value
from gemmrepro.judge.metrics.base import STATIC, TEXT, Exhibit, FigureMetric, Reading, Readings
from gemmrepro.judge.rules import Verdict, judge_range


@dataclass(frozen=True)
class SourceLength(FigureMetric):
    """Lines of code of the source of `kernel` over those of `over`. Needs no measurement."""

    claim_schema = STATIC
    way = "count"

    @property
    def compute_schema(self) -> Mapping[str, Any]:
        positive = {"type": "number", "exclusiveMinimum": 0}
        keys = {"kernel": TEXT, "over": TEXT, "least": positive, "most": positive}
        return {"required": list(keys), "properties": keys}

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        lines, over = (source_lines.of_file(path) for path in _files(claim))
        sources = tuple(path.relative_to(paths.KERNELS_DIR.parent).as_posix() for path in _files(claim))
        label = f"{claim.compute['kernel']} over {claim.compute['over']}"
        value = lines / over
        return Readings(Reading(None, (Value(label, value, value, value, self.unit, sources),)))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        return judge_range(readings.judged.value.value, claim.compute["least"], claim.compute["most"])

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        lines, over = (source_lines.of_file(path) for path in _files(claim))
        counted = f"{claim.compute['kernel']} has {lines} lines of code, {claim.compute['over']} {over}"
        return f"{counted}: {format_number(readings.judged.value.value)} times as many, {verdict.reason}."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[Exhibit]:
        return [Exhibit(readings.judged.value, static=True)]


def _files(claim: Claim) -> list[Path]:
    return [registry.kernel(claim.compute[key]).source_path for key in ("kernel", "over")]
