"""The verdicts, and the rules that turn a measured value into one of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gemmrepro.core import schemas
from gemmrepro.core.text import format_number
from gemmrepro.judge.evidence import Value

REPRODUCED, PARTLY, UNDECIDED, NOT = "reproduced", "partly", "undecided", "not reproduced"
NOT_COMPARABLE, BUILD_FACT = "not comparable here", "build fact"
CONSISTENT, CONTRADICTORY, COVERED = "consistent", "contradictory", "covered"
NOT_TESTABLE, NOT_MEASURED = "not testable here", "not measured"

FACTOR = 2.0
"""Factor within which a value is partly right, where the claim names no smaller factor."""

VERDICTS = schemas.words("verdicts.schema.yaml", "verdict")
"""Every verdict, best first, and when a claim gets it."""

DECIDED = (REPRODUCED, PARTLY, NOT)
"""Verdicts by a measurement or a count."""

RIGHT, WRONG = (REPRODUCED, BUILD_FACT, CONSISTENT), (NOT, CONTRADICTORY)
"""The verdicts that find a statement right, and those that find it wrong."""


@dataclass(frozen=True)
class Verdict:
    """One of VERDICTS, and why, as a clause that an explanation ends with."""

    kind: str
    reason: str


def difference(measured: float, published: float) -> str:
    """Distance of a measured value from the published one: ``12% higher``, ``2.5 times lower``."""
    if not measured or not published:
        return f"{format_number(measured, 2)} for {format_number(published, 2)}"
    change = measured / published - 1
    if abs(change) < 0.005:
        return "within half a percent of it"
    if measured / published >= 2 or measured / published <= 0.5:
        factor = format_number(max(measured / published, published / measured), 2)
        return f"{factor} times {'higher' if change > 0 else 'lower'}"
    return f"{abs(100 * change):.0f}% {'higher' if change > 0 else 'lower'}"


def judge_value(
    value: Value, published: float, tolerance: float, factor: float = FACTOR, same_side: bool = False
) -> Verdict:
    """One value against its published counterpart, within the relative `tolerance` (0 for counts).
    `factor`: how far from the published value it is partly right; `same_side`: whether it must lie on its side of 1."""
    if tolerance == 0:
        exact = value.ci_low == value.ci_high == published
        return Verdict(REPRODUCED, "exactly so") if exact else Verdict(NOT, "not exactly so")
    low, high = sorted((published * (1 - tolerance), published * (1 + tolerance)))
    least, most = sorted((published / factor, published * factor))
    if same_side and published > 1:
        least = max(least, 1 + (published - 1) / factor)
    elif same_side:
        most = min(most, 1.0)
    side = "above" if published > 1 else "below"
    if same_side and not (value.ci_low > 1 if published > 1 else value.ci_high < 1):
        may_hold = value.ci_low <= max(high, most) and value.ci_high >= min(low, least)
        return _not_beyond_1(value, side, may_hold, factor)
    band = f"±{100 * tolerance:g}%"
    overlaps = value.ci_low <= high and value.ci_high >= low
    outside = [end for end in (value.ci_low, value.ci_high) if not low <= end <= high]
    if overlaps and any(not least <= end <= most for end in outside):
        return Verdict(UNDECIDED, f"its interval crosses the edge of the tolerance of {band}")
    if overlaps and value.ci_high - value.ci_low <= high - low:
        inside = low <= value.value <= high
        reason = f"inside the tolerance of {band}" if inside else f"its interval reaches the tolerance of {band}"
        return Verdict(REPRODUCED, reason)
    missed = f"outside the tolerance of {band}"
    if overlaps:
        missed = f"its interval is wider than the tolerance of {band}, so it decides nothing about the size"
    if least <= value.value <= most:
        reached = f"{side} 1 as published and within" if same_side else "within"
        return Verdict(PARTLY, f"{missed}, but {reached} a factor of {factor:g}")
    if factor == 1:
        return Verdict(NOT, missed)
    if same_side and published > 1 and value.value < least:
        return Verdict(NOT, f"{missed}, and less than 1/{factor:g} of the gain")
    return Verdict(NOT, f"{missed}, and off by more than {factor:g} times")


def _not_beyond_1(value: Value, side: str, may_hold: bool, factor: float) -> Verdict:
    """A gain or loss whose interval is not on its `side` of 1; `may_hold` where it reaches an accepted value."""
    if not value.ci_low <= 1 <= value.ci_high:
        return Verdict(NOT, f"not {side} 1")
    if may_hold:
        return Verdict(UNDECIDED, f"the interval holds 1, so it may be {side} 1 or not")
    return Verdict(NOT, f"the interval holds 1, and nothing in it is within a factor of {factor:g}")


def judge_faster(value: Value, least: float | None = None, most: float | None = None) -> Verdict:
    """The statement that a quotient of speeds is above 1, or within the bounds that a claim states for it."""
    if least is not None or most is not None:
        return _judge_gain(value, 1.0 if least is None else least, most)
    if value.ci_low > 1:
        return Verdict(REPRODUCED, "the whole interval is above 1")
    if value.ci_high > 1:
        return Verdict(UNDECIDED, "the interval holds 1, so either may be the faster one")
    return Verdict(NOT, "it is the slower one")


def _judge_gain(value: Value, least: float, most: float | None) -> Verdict:
    """A gain between two bounds; on the right side of 1, yet up to FACTOR outside them, it is PARTLY right."""
    wanted = f"above {least:g}" if most is None else f"{least:g} to {most:g}"
    top = math.inf if most is None else most
    if value.ci_low > least and value.ci_high <= top:
        return Verdict(REPRODUCED, f"the whole interval is {wanted}")
    if value.ci_low > 1 and least / FACTOR <= value.value <= top * FACTOR:
        return Verdict(PARTLY, f"faster, but not by {wanted}")
    if value.ci_high > least and value.ci_low <= top:
        return Verdict(UNDECIDED, f"the interval holds values {wanted} and values that are no gain")
    return Verdict(NOT, f"the interval is not {wanted}")


def judge_order(values: Sequence[Value], published: Sequence[float]) -> Verdict:
    """An order: neighbours in the published order, intervals disjoint. Both sequences are of the same kernels."""
    wrong: list[str] = []
    unclear: list[str] = []
    for (a, published_a), (b, published_b) in pairwise(zip(values, published, strict=True)):
        low, high = (a, b) if published_a < published_b else (b, a)
        if low.ci_high < high.ci_low:
            continue
        open_yet = low.ci_low < high.ci_high
        (unclear if open_yet else wrong).append(f"{a.name} and {b.name}")
    pairs = len(values) - 1
    right = pairs - len(wrong) - len(unclear)
    if right == pairs:
        which = "both are" if pairs == 1 else f"all {pairs} neighbouring pairs are"
        return Verdict(REPRODUCED, f"{which} in the published order with intervals apart")
    reason = f"{right} of {pairs} neighbouring pairs are in the published order"
    reason += f"; not so {', '.join(wrong)}" if wrong else ""
    reason += f"; intervals overlap of {', '.join(unclear)}" if unclear else ""
    return Verdict(of_many(right, len(unclear), pairs), reason)


def of_many(right: int, unclear: int, total: int) -> str:
    """The verdict on a statement about `total` points, of which `right` hold for sure and `unclear` may."""
    if right == total:
        return REPRODUCED
    if right > total / 2:
        return PARTLY
    return UNDECIDED if right + unclear == total else NOT


def judge_counts(counts: Sequence[Value], what: str, least: int, most: int | None) -> Verdict:
    """Counts of instructions, a value for each build, against the range that every one of them must lie in.
    `what`: the pattern that was counted, for the reason; `most`: None where there is no upper limit."""
    wrong = [count for count in counts if count.value < least or (most is not None and count.value > most)]
    wanted = f"at least {least}" if most is None else f"{least} to {most}" if most > least else f"{most or 'none'}"
    if wrong:
        named = ", ".join(f"{count.value:g} ({count.conditions})" for count in wrong[:4])
        return Verdict(NOT, f"{wanted} of the instruction {what} should stand in every build; there are {named}")
    if most == 0:
        return Verdict(REPRODUCED, f"none of {len(counts)} builds has an instruction {what}, as it should be")
    distinct = sorted({int(count.value) for count in counts})
    number = f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]} to {distinct[-1]}"
    where = f"each of {len(counts)} builds" if len(counts) > 1 else f"the build for {counts[0].label.split(', ')[-1]}"
    return Verdict(REPRODUCED, f"the instruction {what} stands {number} times in {where}, where {wanted} should")


def judge_bounds(value: float, bounds: Mapping[str, float]) -> Verdict:
    """A value without an interval against the `least` and `most` that a claim states; either may be absent."""
    least, most = bounds.get("least", -math.inf), bounds.get("most", math.inf)
    words = " and ".join(f"at {key} {bounds[key]:g}" for key in ("least", "most") if key in bounds)
    if least == most:
        words = f"exactly {least:g}"
    inside = least <= value <= most
    return Verdict(REPRODUCED if inside else NOT, f"{words}, as stated" if inside else f"not {words}")
