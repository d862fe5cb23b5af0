"""Judges claims on evidence, and puts the verdicts into sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import COMMAND
from gemmrepro.experiments import results as experiment_results
from gemmrepro.judge import claims
from gemmrepro.judge.ceilings import CEILING_FAMILY
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, load_gates
from gemmrepro.judge.metrics import METRICS, Exhibit, OtherToolkitsOnly, not_judged
from gemmrepro.judge.rules import NOT_MEASURED, NOT_TESTABLE, VERDICTS, Verdict
from gemmrepro.measure.rows import Measurements, load

_PUBLISHED_KEYS = ("system", "metric", "value", "unit", "hardware", "n", "dtype")


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict, explained, with the values that it rests on.

    `toolkit` built the kernels that it was judged on; None where nothing was measured, or no toolkit was needed.
    """

    claim: Claim
    verdict: str
    explanation: str
    exhibits: tuple[Exhibit, ...] = ()
    toolkit: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The claim's entry in verdicts.json. Its command measures what is missing and judges again."""
        claim = self.claim
        return {
            "id": claim.id,
            "family": claim.family,
            "article": claim.article,
            "where": claim.where,
            "statement": claim.statement,
            "kernels": list(claim.kernels),
            "published": [{key: row[key] for key in _PUBLISHED_KEYS} for row in claim.published],
            "transfer": dict(claim.transfer),
            "tolerance": claim.tolerance,
            "partly": dict(claim.partly),
            "judged_on": self.toolkit,
            "verdict": self.verdict,
            "measured": [exhibit.as_json() for exhibit in self.exhibits],
            "explanation": self.explanation,
            "command": COMMAND,
        }


@dataclass(frozen=True)
class Judgements:
    """All claims' verdicts, and the measurements that they rest on."""

    entries: tuple[Judgement, ...]
    measured: tuple[Measurements, ...]

    def as_json(self) -> dict[str, Any]:
        """The content of verdicts.json."""
        sources = {family.source for family in self.measured} - {"none"}
        gpus = {family.gpu for family in self.measured if family.gpu}
        return {
            "claims": [entry.as_json() for entry in self.entries],
            "gpu": ", ".join(sorted(gpus)) or None,
            "source": "none" if not sources else sources.pop() if len(sources) == 1 else "mixed",
            "counts": {kind: sum(entry.verdict == kind for entry in self.entries) for kind in VERDICTS},
        }


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """The verdict on one claim."""
    metric = METRICS[claim.metric]
    try:
        readings = metric.read(claim, evidence)
    except NotMeasured as reason:
        return _judge_unmeasured(claim, evidence, reason)
    untestable = metric.untestable(claim, readings, metric.machine(claim, evidence))
    verdict = Verdict(NOT_TESTABLE, untestable) if untestable else metric.judge(claim, readings)
    explanation = metric.explain(claim, readings, verdict, evidence)
    exhibits = tuple(metric.exhibits(claim, readings, evidence))
    return Judgement(claim, verdict.kind, explanation, exhibits, readings.judged.toolkit)


def _judge_unmeasured(claim: Claim, evidence: Evidence, reason: NotMeasured) -> Judgement:
    """The verdict on a claim without a reading of the toolkit that counts."""
    exhibits = tuple(not_judged(reason.others)) if isinstance(reason, OtherToolkitsOnly) else ()
    untestable = METRICS[claim.metric].untestable(claim, None, evidence.measured.gpu)
    if untestable:
        return Judgement(claim, NOT_TESTABLE, untestable, exhibits)
    sentence = str(reason)
    return Judgement(claim, NOT_MEASURED, f"{sentence[0].upper()}{sentence[1:]}.", exhibits)


def judge_all(
    measure_dir: Path,
    gates_dir: Path,
    build_dir: Path,
    families: tuple[str, ...] | None = None,
    load_claims: Callable[[tuple[str, ...] | None], list[Claim]] = claims.load,
    experiments_dir: Path | None = None,
) -> Judgements:
    """Every claim's verdict, and the measurements behind them. Raises UserError for a corrupt input file."""
    all_claims = load_claims(families)
    ceilings = load(measure_dir, CEILING_FAMILY)
    evidence: dict[str, Evidence] = {}
    for family in dict.fromkeys((*(families or ()), *(claim.family for claim in all_claims))):
        results = experiment_results.load(experiments_dir, family)
        ids = {kernel.id for kernel in registry.kernels(family)}
        ids |= {kernel for results_of_one in results.values() for kernel in results_of_one.experiment.kernels}
        gates = load_gates(gates_dir, sorted(ids))
        evidence[family] = Evidence(load(measure_dir, family), gates, Path(build_dir), results, ceilings)
    entries = tuple(judge(claim, evidence[claim.family]) for claim in all_claims)
    return Judgements(entries, tuple(of_family.measured for of_family in evidence.values()))
