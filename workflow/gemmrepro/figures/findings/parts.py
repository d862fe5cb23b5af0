"""What the paper's own figures share: what they are drawn from, pairs of marks, and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.tables import Mark
from gemmrepro.experiments.tables import declared as tables_of
from gemmrepro.figures.numbers import Numbers
from gemmrepro.figures.style import BAD, FAIR, FIRST, GOOD, INK, PAPER, PUBLISHED
from gemmrepro.figures.widths import Page
from gemmrepro.measure.regimes.rows import Regimes
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.claims import VerdictsView

HOLDS = {"reproduced": (GOOD, "o"), "partly": (FAIR, "D"), "undecided": (FIRST, "s"), "not reproduced": (BAD, "X")}
"""Colour and marker of the verdicts on what was judged here."""


@dataclass(frozen=True)
class Inputs:
    """What the figures are drawn from.

    Attributes:
        verdicts: the judged statements.
        published: the published figure that each statement is compared with, by its id.
        measured: rows of the sweep by family.
        results: experiments by family and name.
        regimes: rows of the regimes by family, of those that have some.
    """

    verdicts: VerdictsView
    published: Mapping[str, float | None]
    measured: Mapping[str, Measurements]
    results: Mapping[str, Mapping[str, Results]]
    regimes: Mapping[str, Regimes] = field(default_factory=dict)

    def marks(self, family: str, table: str) -> list[Mark]:
        """The marks of an article's table that have a number; none where the family was left out."""
        if family not in self.measured:
            return []
        numbers = Numbers(self.measured[family], self.measured.get("ceilings"), self.results.get(family, {}))
        return [mark for mark in tables_of(family)[table].marks(numbers) if mark.printed or mark.measured]

    @property
    def gpu(self) -> str:
        """The GPU of the measurements, without its maker."""
        return (self.verdicts.gpu or "this GPU").removeprefix("NVIDIA ")


def legend_above(figure: Figure, handles: Sequence[Line2D], columns: int) -> float:
    """Put a legend at the top; returns the share of the height that is left below it."""
    if not handles:
        return 1.0
    figure.legend(handles=handles, loc="upper left", ncols=columns, borderaxespad=0.2, columnspacing=1.2)
    letters = float(matplotlib.rcParams["legend.fontsize"])
    rows = -(-len(handles) // columns)
    return 1 - (1.5 * letters * rows + 5) / (72 * figure.get_size_inches()[1])


def pair(axes: Axes, y: float, there: Sequence[float], here: float | None, colour: str = FIRST) -> None:
    """A published value (or several) and the measured one at one height, joined."""
    ends = [*there, *([] if here is None else [here])]
    if len(ends) > 1:
        axes.plot([min(ends), max(ends)], [y, y], color=PUBLISHED, linewidth=1.2, zorder=2)
    if there:
        axes.plot(there, [y] * len(there), "D", color=PAPER, markeredgecolor=PUBLISHED, markeredgewidth=1.5, zorder=3)
    if here is not None:
        axes.plot([here], [y], "o", color=colour, markersize=6, zorder=4)


def pair_handles(hardware: str, gpu: str) -> list[Line2D]:
    """The legend of `pair`."""
    hollow: dict[str, Any] = {"color": PAPER, "markeredgecolor": PUBLISHED, "markeredgewidth": 1.5, "linestyle": ""}
    return [
        Line2D([], [], marker="D", label=f"published{f', {hardware}' if hardware else ''}", **hollow),
        Line2D([], [], marker="o", color=FIRST, markersize=6, linestyle="", label=f"measured, {gpu}"),
    ]


def names_down(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def column(axes: Axes, place: float, head: str, cells: Mapping[int, str], page: Page, colour: str = INK) -> None:
    """A column of text right of a panel, `place` of its width from its left edge, under a heading."""
    for y, text in [(-0.9, head), *cells.items()]:
        axes.annotate(
            text,
            (place, y),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=page.letters - 0.5 if not page.narrow else page.letters,
            color=colour,
            annotation_clip=False,
        )


def short(value: float | None) -> str:
    """A value in a column; empty where there is none."""
    return "" if value is None else format_number(value, 3)
