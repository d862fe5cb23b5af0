"""`stated_<family>`: the statements of an article that compare one number, published beside measured, by verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.figures.findings.parts import HOLDS, Inputs, names_down
from gemmrepro.figures.findings.statements import Statement, compared
from gemmrepro.figures.style import GRID, INK, PUBLISHED, Drawing, despine, empty, finding
from gemmrepro.figures.widths import Page, both, legend, names_above
from gemmrepro.paper.claims import ClaimView

REACH = 3.0
"""The axis ends at factors of two to this power; what lies beyond is drawn at its end, as a triangle."""

DIGITS = 8
"""A published figure of more characters is rounded to four digits; the CSV has all."""


def draw(inputs: Inputs, family: str) -> Drawing:
    """A row per statement."""
    shown = [one for one in compared(inputs) if one.claim.family == family]
    wide, narrow = both(lambda page: _paint(shown, page, inputs))
    article = registry.family(family).article or family
    caption = (
        f"The judged statements of {article} that compare one number with a tolerance: measured over published, or "
        "over what the published share of the chip makes expect here. Grey: the tolerance. Triangles lie beyond the "
        "axis. Names are those of the claims."
    )
    counts = Counter(one.claim.verdict for one in shown)
    title = f"Statements of {article} with one number: not measured"
    alt = "Dots of measured over published by statement, without data: nothing was judged."
    if shown:
        title = f"{counts['reproduced']} of {len(shown)} statements with one number hold"
        far = max(shown, key=lambda one: abs(one.log))
        undecided = counts["undecided"]
        alt = finding(
            f"Of {len(shown)} statements of {article} with one number {counts['reproduced']} hold, {counts['partly']} "
            f"hold in part and {counts['not reproduced']} do not"
            + (f"; {undecided} {'is' if undecided == 1 else 'are'} undecided." if undecided else "."),
            f"Farthest: {called(far.claim)}, {printed(far.claim, inputs)} in print, {here(far.claim)} here.",
        )
    table: list[dict[str, object]] = [
        {
            "claim": one.claim.id,
            "published": inputs.published.get(one.claim.id),
            "expected here": one.claim.expected,
            "measured": one.claim.judged[0].value,
            "unit": one.claim.judged[0].unit,
            "tolerance": one.claim.tolerance,
            "verdict": one.claim.verdict,
        }
        for one in shown
    ]
    return Drawing(wide, title, caption, alt, [], table, False, narrow)


def called(claim: ClaimView) -> str:
    """What a statement is called: its claim's id in words, without the family."""
    return claim.id.removeprefix(f"{claim.family}.").replace(".", " ").replace("_", " ")


def printed(claim: ClaimView, inputs: Inputs) -> str:
    """The published figure with its unit; a quotient of two where the claim compares that."""
    if len(claim.published) == 1:
        only = claim.published[0]
        long = len(only.text.partition(" ")[0]) > DIGITS
        return f"{format_number(only.value, 4)} {only.unit}" if long else only.text
    value = inputs.published.get(claim.id)
    return "" if value is None else format_number(value)


def here(claim: ClaimView) -> str:
    """The measured value with its unit."""
    value = claim.judged[0]
    return f"{value.text}{f' {value.unit}' if value.unit not in ('', 'ratio', 'count') else ''}"


def _paint(shown: Sequence[Statement], page: Page, inputs: Inputs) -> Figure:
    height = page.pick(0.215, 0.56) * max(3, len(shown)) + 1.1
    figure, axes = plt.subplots(figsize=(page.width, height))
    for place, one in enumerate(shown):
        _row(axes, place, one)
    names = [called(one.claim) for one in shown]
    names_down(axes, names)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    ticks = (-2, 0, 2) if page.narrow else range(-3, 4)
    axes.set_xticks(ticks, [f"{2**tick}" if tick >= 0 else f"1/{2**-tick}" for tick in ticks])
    axes.set_xlim(-REACH - 0.25, REACH + 0.25)
    axes.set_xlabel("measured over published")
    if not shown:
        empty(axes, "not measured")
    elif page.narrow:
        names_above(axes, names, [f"{printed(one.claim, inputs)}, here {here(one.claim)}" for one in shown])
    despine(figure.axes, "left")
    handles = [
        Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=verdict)
        for verdict, (colour, marker) in HOLDS.items()
    ]
    figure.tight_layout(rect=(0, 0, page.pick(0.71, 1), legend(figure, handles, page)))
    if shown and not page.narrow:
        _column(axes, 0.84, ["print", *(printed(one.claim, inputs) for one in shown)], PUBLISHED)
        _column(axes, 0.99, ["here", *(here(one.claim) for one in shown)], INK)
    return figure


def _column(axes: Axes, right: float, cells: Sequence[str], colour: str) -> None:
    """Texts that end at a share of the figure's width: a heading, then one per row."""
    for place, text in enumerate(cells, start=-1):
        y = place if place >= 0 else -0.95
        where = ("figure fraction", "data")
        axes.annotate(text, (right, y), xycoords=where, ha="right", va="center", color=colour, annotation_clip=False)


def _row(axes: Axes, place: int, one: Statement) -> None:
    """A statement's tolerance and its mark."""
    tolerance = min(one.claim.tolerance or 0.0, 0.99)
    if tolerance:
        low, high = math.log2(1 - tolerance), math.log2(1 + tolerance)
        axes.barh(place, high - low, 0.8, max(-REACH, low), color=GRID, zorder=0.5)
    colour, marker = HOLDS[one.claim.verdict]
    end = ">" if one.log > REACH else "<" if one.log < -REACH else marker
    axes.plot(max(-REACH, min(REACH, one.log)), place, end, color=colour, markersize=5.5, zorder=3)
