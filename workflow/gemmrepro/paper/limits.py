"""What this particular run cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmrepro.core.names import SIZE
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import NOT_TESTABLE
from gemmrepro.paper.experiments import SkippedView
from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.inputs import Inputs

SKIPPED_SHOWN = 8


def limits(inputs: Inputs, families: Sequence[FamilyView]) -> list[str]:
    """The limits that follow from what was run, measured and recorded, a sentence or two each."""
    return [
        *_of_sources(inputs, families),
        *_of_rows(families),
        *_of_corrections(inputs),
        *_of_statements(inputs),
        *_of_gates(families),
        *_of_sweeps(inputs, families),
    ]


def _of_sources(inputs: Inputs, families: Sequence[FamilyView]) -> Iterator[str]:
    if inputs.verdicts.source in ("recorded", "mixed"):
        yield (
            "This run used no GPU. Times and numerical gates were recorded earlier on "
            f"{inputs.verdicts.gpu}; build keys tie each to the binary compiled in this run."
        )
    if timed_on := _machines_without_a_gpu(families, "live"):
        yield (
            f"Experiments that need no GPU were timed in this run on {timed_on}, alongside any other load on that "
            "machine."
        )
    if recorded_on := _machines_without_a_gpu(families, "recorded"):
        yield f"Experiments that need no GPU were recorded on {recorded_on}."
    if inputs.verdicts.source == "none":
        yield "Nothing was measured: there was neither a usable GPU nor a recording."


def _machines_without_a_gpu(families: Sequence[FamilyView], source: str) -> str:
    """The machines on which experiments from this source ran on the CPU, comma-separated; empty if none did."""
    machines = {
        str(experiment.machine)
        for family in families
        for experiment in family.experiments
        if experiment.on_cpu and experiment.source == source
    }
    return ", ".join(sorted(machines))


def _of_corrections(inputs: Inputs) -> Iterator[str]:
    unfounded = inputs.verdicts.unfounded
    if unfounded:
        names = ", ".join(claim.id for claim in unfounded)
        yield (
            f"Marked as wrong, yet found to hold in this run: {names}. Either the correction or the test of it is "
            "mistaken, so they are not listed among what the articles get wrong."
        )


def _of_statements(inputs: Inputs) -> Iterator[str]:
    """The articles' statements that this machine cannot test, each with its reason while they are few."""
    untestable = [
        claim for claim in inputs.verdicts.claims if claim.register == ARTICLE and claim.verdict == NOT_TESTABLE
    ]
    for claim in untestable[:SKIPPED_SHOWN]:
        yield f"Not testable here: {claim.statement} {claim.transfer_reason}"
    if len(untestable) > SKIPPED_SHOWN:
        yield f"{len(untestable) - SKIPPED_SHOWN} more statements are not testable here; the table of claims says why."


def _of_rows(families: Sequence[FamilyView]) -> Iterator[str]:
    stale = sum(family.stale for family in families)
    if stale:
        yield (
            f"{stale} rows are stale: the kernel, its flags or its toolkit changed after they were recorded. They are "
            "struck out and support no claim."
        )
    if any(not family.has_counters for family in _measured(families)):
        yield (
            "The profiler was not available, so there are no hardware counters: load counts come from the machine "
            "code, memory traffic is unknown, and claims about it are not measured."
        )
    stale = sum(experiment.stale for family in families for experiment in family.experiments)
    if stale:
        yield (
            f"{stale} rows of experiments are stale: a kernel, or what the experiment does, changed after they were "
            "recorded. They are struck out and support no claim."
        )


def _of_gates(families: Sequence[FamilyView]) -> Iterator[str]:
    open_gates = {
        kernel.name
        for family in families
        for kernel in family.kernels
        if not all(toolkit.judged for toolkit in kernel.gate.toolkits)
    }
    if open_gates:
        yield f"The numerical gate has not been run for today's binaries of {', '.join(sorted(open_gates))}."


def _of_sweeps(inputs: Inputs, families: Sequence[FamilyView]) -> Iterator[str]:
    if any(not family.table.has_size for family in _measured(families)):
        yield f"The article's size, {SIZE}, was not part of this sweep, so claims about it are not measured."
    skipped = [
        SkippedView.of(entry) for measured in inputs.measured.values() for entry in measured.run.get("skipped") or []
    ]
    for entry in skipped[:SKIPPED_SHOWN]:
        yield f"{entry.kernel}, built by {entry.toolkit}, was not timed: {entry.reason}"
    if len(skipped) > SKIPPED_SHOWN:
        yield f"{len(skipped) - SKIPPED_SHOWN} more were not timed; run.json lists them."
    if not inputs.locks:
        yield "This run used no containers, so only the tool versions listed above are recorded."


def _measured(families: Sequence[FamilyView]) -> list[FamilyView]:
    """The families of GEMMs with rows."""
    return [family for family in families if family.table.levels and family.source != "none"]
