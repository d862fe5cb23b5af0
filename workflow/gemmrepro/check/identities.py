"""Ids and the family's own record are consistent; all other checks depend on them."""

from __future__ import annotations

from collections import Counter

from gemmrepro import registry
from gemmrepro.check.findings import Findings
from gemmrepro.registry import FIGURES


def check(family: str, findings: Findings) -> None:
    record, kernels = registry.family(family), registry.kernels(family)
    where = f"kernels/{family}/family.py"
    findings.require(record.name == family, where, f"FAMILY.name is '{record.name}'; the folder is '{family}'.")
    figures = [name for name in record.figures if name not in FIGURES]
    findings.require(not figures, where, f"FAMILY.figures names {', '.join(figures)}; known are {', '.join(FIGURES)}.")
    for kernel in kernels:
        findings.require(
            kernel.family == family, kernel.id, f"its id must begin with '{family}.', after the folder that it is in."
        )
    for kernel_id, count in Counter(kernel.id for kernel in kernels).items():
        findings.require(count == 1, kernel_id, f"{count} records have this id; rename all but one.")
