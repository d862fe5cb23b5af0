"""A family's rungs and labels are unique, in order, and short enough to draw."""

from __future__ import annotations

import re
from itertools import pairwise

from gemmrepro import registry
from gemmrepro.check.findings import Findings
from gemmrepro.registry import Kernel, ladders

LONGEST = 40
"""Maximum length of a label in figures, in characters."""


def check(family: str, findings: Findings) -> None:
    _check_order(registry.kernels(family), findings)
    _check_labels(family, findings)


def _check_order(kernels: tuple[Kernel, ...], findings: Findings) -> None:
    """Each rung has one source, and rungs are in numerical order."""
    climbed = [kernel for kernel in kernels if kernel.timing.baseline]
    sources: dict[str, str] = {}
    for kernel in climbed:
        first = sources.setdefault(kernel.rung, kernel.source)
        findings.require(
            first == kernel.source, kernel.id, f"its rung {kernel.rung} is that of {first} too; give it another."
        )
    last: dict[tuple[str, ...], tuple[Kernel, tuple[int, ...]]] = {}
    for kernel in climbed:
        parsed = _parsed(kernel.rung)
        if parsed is None or ladders.original(kernel) is not None:
            continue
        ladder, number = parsed
        if ladder in last:
            before, previous = last[ladder]
            findings.require(
                previous <= number,
                kernel.id,
                f"rung {kernel.rung} follows {before.rung} in KERNELS; order the records by rung.",
            )
        last[ladder] = kernel, number


def _parsed(rung: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """The ladder and the number of a rung: ``L7.1`` has ("L", "", "") and (7, 1); None for a rung without a number."""
    match = re.fullmatch(r"([A-Za-z]*)(\d+)([a-z]*)((?:\.\d+)*)(.*)", rung)
    if match is None:
        return None
    prefix, major, branch, minor, tail = match.groups()
    return (prefix, branch, tail), (int(major), *(int(part) for part in minor.split(".")[1:]))


def _check_labels(family: str, findings: Findings) -> None:
    """Labels of kernels are unique and short."""
    labels = {kernel.id: ladders.label(kernel) for kernel in ladders.compared(family)}
    for (first, name), (second, next_name) in pairwise(sorted(labels.items(), key=lambda item: item[1])):
        findings.require(
            name != next_name, second, f"its label, '{next_name}', is that of {first} too; change its name or rung."
        )
    for kernel_id, name in labels.items():
        findings.require(
            len(name) <= LONGEST,
            kernel_id,
            f"its label '{name}' is longer than {LONGEST} characters; shorten its name.",
        )
