"""A record's story refers to existing counters, published systems, baselines and kernels."""

from __future__ import annotations

from gemmrepro import registry
from gemmrepro.check.findings import Findings
from gemmrepro.core.names import METRICS
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge.published import published_rows
from gemmrepro.registry import Kernel


def check(kernel: Kernel, findings: Findings) -> None:
    story, baseline = kernel.story, kernel.timing.baseline
    findings.require(bool(kernel.rung and kernel.title), kernel.id, "it has no rung or no title.")
    findings.require(bool(story.idea), kernel.id, "Story.idea is empty; say in one sentence what is new.")
    findings.require(
        baseline is None or baseline in BASELINES,
        kernel.id,
        f"there is no baseline '{baseline}'; known are {', '.join(BASELINES)}.",
    )
    unknown = [counter for counter in story.evidence if counter not in METRICS]
    findings.require(
        not unknown,
        kernel.id,
        f"Story.evidence names {', '.join(unknown)}, which no stage reads; counters are METRICS of core/names.py.",
    )
    rows = published_rows()
    findings.require(
        story.article is None or story.article in {row["article"] for row in rows},
        kernel.id,
        f"published.csv has no article '{story.article}'.",
    )
    if story.published_system:
        systems = {row["system"] for row in rows if row["article"] == story.article}
        findings.require(
            story.published_system in systems,
            kernel.id,
            f"published.csv has no system '{story.published_system}' of article '{story.article}'.",
        )
    if story.gain_over:
        known = {other.id for name in registry.family_names() for other in registry.kernels(name)}
        findings.require(
            story.gain_over in known and story.gain_over != kernel.id,
            kernel.id,
            f"Story.gain_over names '{story.gain_over}', which is no other kernel.",
        )
