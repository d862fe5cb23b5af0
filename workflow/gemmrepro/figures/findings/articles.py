"""F2, `articles`: how many statements of each article hold."""

from __future__ import annotations

from collections import Counter

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import listed
from gemmrepro.figures.findings.parts import HOLDS, Inputs, legend_above, names_down
from gemmrepro.figures.style import INK, PAPER, PUBLISHED, SERIES, Drawing, despine, empty, finding
from gemmrepro.figures.widths import Page, both
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import DECIDED

KINDS = {
    **{verdict: colour for verdict, (colour, _) in HOLDS.items()},
    "consistent": SERIES[7],
    "contradictory": SERIES[3],
    "not measured": PUBLISHED,
}
"""Verdicts and their colours, from the left; what another statement covers or no run can test is left out."""


def draw(inputs: Inputs) -> Drawing:
    """A stacked bar per article."""
    counts = tally(inputs)
    wide, narrow = both(lambda page: _paint(counts, page))
    table = [{"article": article, **{kind: found[kind] for kind in KINDS}} for article, found in counts.items()]
    caption = (
        "Statements of each article by verdict. Consistent and contradictory are judged by the article's own numbers "
        "alone. Left out: statements that another one covers, and those that no run here can test."
    )
    return Drawing(wide, _title(counts), caption, _alt(counts), [], table, False, narrow)


def tally(inputs: Inputs) -> dict[str, Counter[str]]:
    """Verdicts by article."""
    counts: dict[str, Counter[str]] = {}
    for claim in inputs.verdicts.claims:
        if claim.register == ARTICLE and claim.verdict in KINDS:
            counts.setdefault(claim.article, Counter())[claim.verdict] += 1
    return counts


def _paint(counts: dict[str, Counter[str]], page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 0.34 * max(1, len(counts)) + page.pick(1.15, 1.2)))
    reach = max((sum(found.values()) for found in counts.values()), default=1)
    for place, found in enumerate(counts.values()):
        left = 0
        for kind, colour in KINDS.items():
            count = found[kind]
            axes.barh(place, count, 0.72, left, color=colour, edgecolor=PAPER, linewidth=0.8)
            if count >= reach * page.pick(0.035, 0.075):
                axes.text(left + count / 2, place, str(count), ha="center", va="center", color=PAPER, fontweight="bold")
            left += count
    names_down(axes, list(counts))
    axes.set_xlabel("statements")
    if not counts:
        empty(axes, "not judged")
    despine(figure.axes, "left")
    handles = [
        Line2D([], [], linestyle="", marker="s", markersize=7, color=colour, label=kind)
        for kind, colour in KINDS.items()
        if any(found[kind] for found in counts.values())
    ]
    axes.tick_params(colors=INK)
    figure.tight_layout(rect=(0, 0, 1, legend_above(figure, handles, int(page.pick(3, 2)))))
    return figure


def _shares(counts: dict[str, Counter[str]]) -> dict[str, float]:
    """Of each article with five decided statements or more, the share that holds."""
    judged = {article: sum(found[kind] for kind in DECIDED) for article, found in counts.items()}
    return {article: counts[article]["reproduced"] / total for article, total in judged.items() if total >= 5}


def _title(counts: dict[str, Counter[str]]) -> str:
    shares = _shares(counts)
    if not shares:
        return "Verdicts by article: nothing was judged"
    best, worst = max(shares, key=lambda name: shares[name]), min(shares, key=lambda name: shares[name])
    return f"{best} fares best, {worst} worst: {shares[best]:.0%} and {shares[worst]:.0%} of decided statements hold"


def _alt(counts: dict[str, Counter[str]]) -> str:
    shares = _shares(counts)
    if not shares:
        return "Stacked bars of verdicts by article, without data: nothing was judged."
    order = sorted(shares, key=lambda name: -shares[name])
    each = listed([f"{name} {shares[name]:.0%}" for name in order])
    return finding(f"Share of the decided statements that hold, by article: {each}.")
