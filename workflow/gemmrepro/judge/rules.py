"""Rules of judgement: measured value against published value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gemmrepro.core.text import format_number
from gemmrepro.judge.evidence import Value

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
NOT_TESTABLE, NOT_MEASURED = "not testable here", "not measured"
VERDICTS = (REPRODUCED, PARTLY, NOT, NOT_TESTABLE, NOT_MEASURED)


def judge_opcodes(found: Mapping[str, Sequence[Value]], compute: Mapping[str, Any]) -> tuple[str, str]:
    """Verdict and reason for a statement about machine code, from the counts of every toolkit's builds."""
    least, most = compute.get("least", 1), compute.get("most")
    every = [value for values in found.values() for value in values]
    wrong = [v for v in every if v.value < least or (most is not None and v.value > most)]
    asked = f"at least {least}" if most is None else "none" if not most else f"{least} to {most}"
    if wrong:
        named = ", ".join(f"{v.value:g} ({v.label.split(', ', 1)[1]})" for v in wrong[:4])
        return NOT, f"{asked} of {compute['pattern']} should stand in every build; found {named}"
    counts = sorted({int(value.value) for value in every})
    told = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if most == 0:
        return REPRODUCED, f"none of {compute['pattern']} stands in any of {len(every)} builds, as it should be"
    builds = f"each of {len(every)} builds" if len(every) > 1 else f"the build for {every[0].label.split(', ')[-1]}"
    return REPRODUCED, f"{told} of {compute['pattern']} stand in {builds}, where {asked} should"


# Words of a product's name that do not make it another GPU.
_FORM = {
    "NVIDIA",
    "RTX",
    "GEFORCE",
    "QUADRO",
    "TESLA",
    "SXM",
    "SXM2",
    "SXM3",
    "SXM4",
    "SXM5",
    "SXM6",
    "PCIE",
    "HBM2",
    "HBM3",
}


def same_gpu(published: str, present: str | None) -> bool:
    """Whether two names mean the same GPU, as ``NVIDIA A100`` and ``NVIDIA A100-SXM4-80GB`` do."""

    def words(name: str) -> set[str]:
        parts = re.split(r"[\s/-]+", name.upper())
        return {part for part in parts if part and part not in _FORM and not re.fullmatch(r"\d+GB", part)}

    return bool(present) and words(published) == words(present)


def difference(measured: float, published: float) -> str:
    change = measured / published - 1
    if abs(change) < 0.005:
        return "within half a percent of it"
    if measured / published >= 2 or measured / published <= 0.5:
        factor = format_number(max(measured / published, published / measured), 2)
        return f"{factor} times {'higher' if change > 0 else 'lower'}"
    return f"{abs(100 * change):.0f}% {'higher' if change > 0 else 'lower'}"


def judge_value(value: Value, published: float, tolerance: float, partly: Mapping[str, float]) -> tuple[str, str]:
    """Verdict and reason for one value against its published counterpart."""
    low, high = sorted((published * (1 - tolerance), published * (1 + tolerance)))
    band = f"±{100 * tolerance:g}%"
    overlaps = value.ci_low <= high and value.ci_high >= low
    wide = value.ci_high - value.ci_low > high - low
    if overlaps and not wide:
        inside = low <= value.value <= high
        return (
            REPRODUCED,
            f"inside the tolerance of {band}" if inside else f"its interval reaches the tolerance of {band}",
        )
    if overlaps:
        reason = f"its interval is wider than the tolerance of {band}, so it decides nothing about the size"
    else:
        reason = f"outside the tolerance of {band}"
    if not partly:
        return NOT, reason
    held, missed = [], []
    if "same_side_of" in partly:
        pivot = partly["same_side_of"]
        same = value.ci_low > pivot if published > pivot else value.ci_high < pivot
        side = "above" if published > pivot else "below"
        (held if same else missed).append(f"{side} {pivot:g} as published" if same else f"not {side} {pivot:g}")
    if "within_factor" in partly:
        factor = partly["within_factor"]
        near = published / factor <= value.value <= published * factor
        (held if near else missed).append(
            f"within a factor of {factor:g}" if near else f"off by more than {factor:g} times"
        )
    if missed:
        return NOT, f"{reason}, and {' and '.join(missed)}"
    return PARTLY, f"{reason}, but {' and '.join(held)}"


def judge_faster(value: Value) -> tuple[str, str]:
    """Verdict and reason for the statement that a quotient of speeds is above 1."""
    if value.ci_low > 1:
        return REPRODUCED, "the whole interval is above 1"
    if value.ci_high < 1:
        return NOT, "it is the slower one"
    return NOT, "the interval holds 1, so no difference shows"


def judge_order(values: Sequence[Value], published: Sequence[float]) -> tuple[str, str]:
    """Verdict and reason for an order: neighbours in the published order, intervals apart."""
    wrong = []
    for (a, published_a), (b, published_b) in pairwise(zip(values, published, strict=True)):
        low, high = (a, b) if published_a < published_b else (b, a)
        if not low.ci_high < high.ci_low:
            wrong.append(f"{_name(a)} and {_name(b)}")
    pairs = len(values) - 1
    if not wrong:
        return REPRODUCED, (
            "both are in the published order with intervals apart"
            if pairs == 1
            else f"all {pairs} neighbouring pairs are in the published order with intervals apart"
        )
    held = pairs - len(wrong)
    reason = f"{held} of {pairs} neighbouring pairs are in the published order; not so {', '.join(wrong)}"
    return (PARTLY if held > pairs / 2 else NOT), reason


def _name(value: Value) -> str:
    return value.label.split(",", 1)[0]
