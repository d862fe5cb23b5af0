"""Ratios to a library whose kernel uses an instruction that the article's GPU lacks, and what that explains of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.gpu.baselines import baseline, place
from gemmrepro.judge.ceilings import measured_ceiling
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence
from gemmrepro.judge.metrics.base import Readings, published
from gemmrepro.measure.rows import row_key
from gemmrepro.operations import shape_of
from gemmrepro.registry.articles import chip_of

_OLDER, _OLDER_CEILING = "mma.sync", "ceilings.mma_f16"
_RATES = {"bf16": "bf16", "fp16": "fp16_acc32"}


@dataclass(frozen=True)
class _Instruction:
    """A tensor-core instruction: how recorded kernels' names and opcodes show it, and where it exists.
    `capabilities` are compute capabilities x 10; `ceiling` is the micro-kernel that measures its rate, if any."""

    name: str
    kernels: str
    opcodes: str
    capabilities: frozenset[int]
    ceiling: str = ""


_INSTRUCTIONS = (
    _Instruction("wgmma", r"nvjet_sm90|warpgroupsize|gmma", r"[A-Z]GMMA\b.*", frozenset({90}), "ceilings.wgmma"),
    _Instruction("tcgen05.mma", r"nvjet_sm1\d\d|umma|tcgen05", r"UTC\w*MMA\b.*", frozenset({100, 103})),
)


def not_comparable(claim: Claim, readings: Readings, evidence: Evidence) -> str:
    """Why a ratio below the published one compares different instructions, as sentences; '' where it does not."""
    if claim.metric != "ratio" or readings.judged.value.value >= published(claim):
        return ""
    chip = chip_of(claim.article, claim.hardware)
    kernel, row = registry.kernel(claim.compute["kernel"]), _row(readings, evidence)
    key = place(str(row["baseline"]), kernel.problem, shape_of(kernel.compute.op, claim.compute["n"]))
    ran = str((evidence.measured.run.get("baseline_kernels") or {}).get(key, ""))
    build = evidence.build(kernel.id, readings.judged.toolkit or "")
    code = build.archs.get(str(row["arch"])) if build else None
    for instruction in _INSTRUCTIONS:
        lacked = chip is not None and chip.capability not in instruction.capabilities
        foreign = lacked and re.search(instruction.kernels, ran)
        if foreign and code and not any(re.fullmatch(instruction.opcodes, opcode) for opcode in code.instructions):
            library = baseline(str(row["baseline"])).rung
            return (
                f"not comparable, since {library} multiplies with {instruction.name} here, which the {claim.hardware} "
                f"lacks and the kernel does not use. {_parts(claim, readings, evidence, instruction, row)}Its share of "
                "each chip's ceiling is judged in its place"
            )
    return ""


def _row(readings: Readings, evidence: Evidence) -> Mapping[str, Any]:
    """The summary row that a ratio was read from."""
    rows = evidence.measured.summary
    return dict(rows[rows.apply(row_key, axis=1) == readings.judged.value.sources[0]].iloc[-1])


def _parts(
    claim: Claim, readings: Readings, evidence: Evidence, instruction: _Instruction, row: Mapping[str, Any]
) -> str:
    """The published ratio over the measured one as a product: the instruction's part, the kernel's and the library's.
    '' where the kernel's published rate, a ceiling or the data sheet's rate is missing."""
    kernel = registry.kernel(claim.compute["kernel"])
    chip, rate = chip_of(claim.article, claim.hardware), _RATES.get(kernel.compute.dtype_in, "")
    sheet = chip.rate(rate) if chip and rate else None
    if claim.throughput is None or sheet is None or not instruction.ceiling or evidence.ceilings is None:
        return ""
    older, newer = (measured_ceiling(evidence.ceilings, name) for name in (_OLDER_CEILING, instruction.ceiling))
    if older is None or newer is None:
        return ""
    ratio, tflops = readings.judged.value.value, float(row["tflops"])
    own = tflops / older.value
    own_there = float(claim.throughput["value"]) / sheet.value
    library, library_there = tflops / ratio / newer.value, own_there / published(claim)
    shown = [
        format_number(number)
        for number in (
            ratio / published(claim),
            older.value / newer.value,
            own / own_there,
            own,
            own_there,
            library_there / library,
            library,
            library_there,
        )
    ]
    return (
        "The ratio is {0} of the published one: {1} by the instruction (mma.sync over {name} on this GPU), {2} by the "
        "kernel ({3} of the mma.sync ceiling here, {4} there), {5} by the library ({6} of its ceiling here, {7} "
        "there). "
    ).format(*shown, name=instruction.name)
