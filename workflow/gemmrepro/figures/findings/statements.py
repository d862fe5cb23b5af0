"""F1, `statements`: every statement that was judged by a number, measured over published, by article and verdict."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number
from gemmrepro.figures.findings.parts import HOLDS, Inputs, legend_above, names_down
from gemmrepro.figures.style import GRID, INK, Drawing, despine, empty, finding
from gemmrepro.figures.widths import Page, both
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import DECIDED
from gemmrepro.paper.claims import ClaimView

REACH = 4.0
"""The axis ends at factors of two to this power; what lies beyond is drawn at its end, as a triangle."""

BAND = 0.1
"""The shaded band, as a share of the published value: the commonest tolerance."""


@dataclass(frozen=True)
class Statement:
    """A judged statement: measured over what is expected here."""

    claim: ClaimView
    over: float

    @property
    def log(self) -> float:
        return math.log2(self.over)


def judged(inputs: Inputs) -> list[ClaimView]:
    """The articles' statements that were judged by a measurement."""
    return [claim for claim in inputs.verdicts.claims if claim.register == ARTICLE and claim.verdict in HOLDS]


def compared(inputs: Inputs) -> list[Statement]:
    """Those of them with one judged value, one published figure and a tolerance."""
    found = []
    for claim in judged(inputs):
        wanted = inputs.published.get(claim.id) if claim.expected is None else claim.expected
        if claim.tolerance is None or len(claim.judged) != 1 or not wanted:
            continue
        over = claim.judged[0].value / wanted
        if over > 0 and math.isfinite(over):
            found.append(Statement(claim, over))
    return found


def draw(inputs: Inputs) -> Drawing:
    """A strip of dots per article."""
    shown = compared(inputs)
    wide, narrow = both(lambda page: _paint(shown, page))
    counts = Counter(claim.verdict for claim in judged(inputs))
    total = sum(counts[kind] for kind in DECIDED)
    title = "Measured over published: nothing was judged"
    if total:
        title = f"Of {total} decided statements {counts['reproduced']} hold on {inputs.gpu}"
    alt = _alt(shown, counts, inputs.gpu)
    return Drawing(wide, title, _caption(shown, sum(counts.values())), alt, [], _table(shown), False, narrow)


def _paint(shown: list[Statement], page: Page) -> Figure:
    articles = list(dict.fromkeys(one.claim.article for one in shown))
    rows = max(1, len(articles))
    figure, axes = plt.subplots(figsize=(page.width, page.pick(0.55, 0.62) * rows + 0.95))
    across = 2 * REACH / (page.width * 0.82 * 72)  # of a point
    size = page.pick(5.2, 4.6)
    for place, article in enumerate(articles):
        dots = sorted((one for one in shown if one.claim.article == article), key=lambda one: one.log)
        for one, level in zip(dots, _levels([_held(one.log) for one in dots], 1.15 * size * across), strict=True):
            colour, marker = HOLDS[one.claim.verdict]
            end = ">" if one.log > REACH else "<" if one.log < -REACH else marker
            axes.plot(_held(one.log), place + 0.14 * level, end, color=colour, markersize=size, zorder=3)
    names_down(axes, articles)
    low, high = math.log2(1 - BAND), math.log2(1 + BAND)
    axes.axvspan(low, high, color=GRID, zorder=0.5)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    ticks = (-4, -2, 0, 2, 4) if page.narrow else range(-4, 5)
    axes.set_xticks(ticks, [f"{2**tick}" if tick >= 0 else f"1/{2**-tick}" for tick in ticks])
    axes.set_xlim(-REACH - 0.3, REACH + 0.3)
    axes.set_xlabel("measured over published")
    if not shown:
        empty(axes, "not measured")
    despine(figure.axes, "left")
    handles = [
        Line2D([], [], linestyle="", color=colour, marker=marker, markersize=size, label=verdict)
        for verdict, (colour, marker) in HOLDS.items()
    ]
    figure.tight_layout(rect=(0, 0, 1, legend_above(figure, handles, int(page.pick(4, 2)))))
    return figure


def _held(log: float) -> float:
    return max(-REACH, min(REACH, log))


def _levels(places: list[float], apart: float) -> list[int]:
    """For each of the sorted places how far from the middle it must be drawn so that no two touch: 0, 1, -1, 2, ..."""
    last: dict[int, float] = {}
    levels = []
    for place in places:
        level = next(one for one in _outward() if place - last.get(one, -math.inf) >= apart or abs(one) >= 3)
        last[level] = place
        levels.append(level)
    return levels


def _outward() -> tuple[int, ...]:
    return (0, 1, -1, 2, -2, 3)


def _caption(shown: list[Statement], total: int) -> str:
    return (
        f"The {len(shown)} of {total} judged statements that compare one number: measured over published, or over what "
        "the published share of the chip makes expect here. Grey: within 10%; tolerances differ. Triangles lie beyond "
        "the axis. The other statements are orders, signs or several numbers."
    )


def _alt(shown: list[Statement], counts: Counter[str], gpu: str) -> str:
    if not shown:
        return "Dot strip of measured over published values by article, without data: nothing was judged."
    middle = sorted(one.over for one in shown)[len(shown) // 2]
    return finding(
        f"Of {sum(counts[kind] for kind in DECIDED)} decided statements {counts['reproduced']} hold on {gpu}, "
        f"{counts['partly']} hold in part and {counts['not reproduced']} do not.",
        f"Of the {len(shown)} that compare one number the middle one measures {format_number(middle)} times the "
        "published value.",
    )


def _table(shown: list[Statement]) -> list[dict[str, object]]:
    return [
        {
            "article": one.claim.article,
            "claim": one.claim.id,
            "verdict": one.claim.verdict,
            "measured": one.claim.judged[0].value,
            "unit": one.claim.judged[0].unit,
            "measured over published": round(one.over, 4),
        }
        for one in shown
    ]
