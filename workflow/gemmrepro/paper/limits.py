"""What this particular run cannot show: the facts that decide which sentences of ``sections/limits.j2`` stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmrepro import registry
from gemmrepro.core.text import listed
from gemmrepro.judge.ways import unfounded
from gemmrepro.measure.recording import CEILINGS
from gemmrepro.measure.rows import Measurements, capability_of, select
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import View
from gemmrepro.recordings.limits import Ceilings, limit, sums
from gemmrepro.registry.requirements import requirement

FULL_CLOCK = 0.98
"""A row at this share of the GPU's highest clock, or above it, ran at full clock."""


def facts(inputs: Inputs, families: Sequence[View]) -> dict[str, Any]:
    """What the limits are about that a template cannot find: by families, rows and kernels."""
    measured = {family.name: inputs.measured[family.name] for family in families if family.source != "none"}
    capability = capability_of(inputs.measured.values())
    kernels = [kernel for family in families for kernel in registry.kernels(family.name)]
    lacking = {kernel.id for kernel in kernels if capability and requirement(kernel, capability)}
    gates = {
        family.name: [(kernel.id, gate) for kernel in family.kernels for gate in kernel.gate.toolkits]
        for family in families
    }
    binaries = []
    for name, of in gates.items():
        able = [gate for kernel, gate in of if kernel not in lacking]
        if left_out := [gate.name for gate in able if not gate.measured]:
            binaries.append(View(name=name, count=len(left_out), of=len(able), toolkits=left_out))
    return {
        "instead": (inputs.config.get("sweep") or {}).get("instead_of") or {},
        "spreads": [spread for of in inputs.regimes.values() for spread in (of.run.get("spread") or {}).values()],
        "earlier": [name for name, of in inputs.regimes.items() if of.run.get("earlier")],
        "sustained": [name for name, of in inputs.regimes.items() if len(of.of("sustained"))],
        "slowed": _slowed(measured),
        "ungated": [name for name, of in gates.items() if any(gate.measured and not gate.judged for _, gate in of)],
        "binaries": binaries,
        "unchecked": _unchecked(measured, inputs.measured.get(CEILINGS)),
        "unfounded": unfounded([vars(claim) for claim in inputs.verdicts.claims]),
        "untimed": _untimed(inputs.measured, lacking),
    }


def _slowed(measured: Mapping[str, Measurements]) -> list[View]:
    """The families whose rows the power cap slowed down: how many, `of` how many rows of all families."""
    clocks = {name: (of.run.get("gpu") or {}).get("clock_max_mhz") for name, of in measured.items()}
    total = sum(len(of.summary) for name, of in measured.items() if clocks[name])
    found = []
    for name, of in measured.items():
        low = of.summary["clock_mhz"] < FULL_CLOCK * (clocks[name] or 0)
        capped = int((of.summary["throttle"].str.contains("power") & low).sum())
        found += [View(name=name, capped=capped, of=total)] if capped else []
    return found


def _unchecked(measured: Mapping[str, Measurements], ceilings: Measurements | None) -> dict[str, int]:
    """How many rows have a throughput that nothing bounds, by types of operands and sums."""
    unchecked: dict[str, int] = {}
    for name, of in measured.items():
        gpu, known = of.run.get("gpu") or {}, Ceilings()
        if ceilings is not None and gpu and ceilings.gpu == of.gpu:
            cells = ceilings.summary[["kernel", "tflops", "gbps", "clock_mhz"]].astype(object)
            known = Ceilings.of(cells.where(cells.notna(), "").astype(str).to_dict("records"), ceilings.run)
        for kernel in registry.kernels(name):
            rows = select(of.summary, kernel=kernel.id)
            if (count := int(rows["tflops"].notna().sum())) and limit(kernel, gpu, known) is None:
                unchecked[sums(kernel)] = unchecked.get(sums(kernel), 0) + count
    return unchecked


def _untimed(measured: Mapping[str, Measurements], lacking: set[str]) -> list[tuple[str, str, list[str]]]:
    """What no sweep timed: the reason, the toolkits if others timed the kernel, and the kernels."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for of in measured.values():
        toolkits: dict[tuple[str, str], set[str]] = {}
        for entry in of.run.get("skipped") or []:
            if entry["kernel"] not in lacking:
                toolkits.setdefault((entry["kernel"], entry["reason"]), set()).add(entry["toolkit"])
        for (kernel, reason), left_out in toolkits.items():
            others = set(select(of.summary, kernel=kernel)["toolkit"]) - left_out
            kernels.setdefault((reason, f" with {listed(sorted(left_out))}" if others else ""), []).append(kernel)
    return [(reason, by, names) for (reason, by), names in kernels.items()]
