"""The two widths in which every figure is drawn, and legends that fit either."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro.figures.style import INK, PAPER, PUBLISHED


@dataclass(frozen=True)
class Page:
    """A width in inches, and the size of its letters in points.

    The narrow one is shown 300 pixels wide and more, where its letters are 10 pixels high.
    """

    width: float
    letters: float

    @property
    def narrow(self) -> bool:
        return self.width < 5

    def pick(self, wide: float, narrow: float) -> float:
        """One of two numbers."""
        return narrow if self.narrow else wide


WIDE, NARROW = Page(7.6, 9.5), Page(3.3, 8.0)


def both(paint: Callable[[Page], Figure]) -> tuple[Figure, Figure]:
    """A figure in both widths."""
    figures = []
    for page in (WIDE, NARROW):
        sizes = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
        look: dict[Any, Any] = {**dict.fromkeys(sizes, page.letters), "axes.titlesize": page.letters + 0.5}
        with matplotlib.rc_context(look):
            figures.append(paint(page))
    return figures[0], figures[1]


HANDLE, LETTER = 4.6, 0.62
"""Widths, in heights of a letter: of a legend's mark with the gaps around it, and of the mean letter."""


def legend(figure: Figure, handles: Sequence[Artist], page: Page, columns: int = 3) -> float:
    """Put a legend at the top, in as many columns as fit and `columns` at most.

    Returns:
        The share of the height that is left below it.
    """
    if not handles:
        return 1.0
    widest = max(len(str(handle.get_label())) for handle in handles)
    fit = int(page.width * 72 / ((HANDLE + LETTER * widest) * page.letters))
    columns = max(1, min(columns, fit, len(handles)))
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)
    figure.legend(
        handles=list(handles), loc="upper left", ncols=columns, borderaxespad=0.3, columnspacing=1.4, handlelength=2.4
    )
    return 1 - (1.5 * page.letters * rows + 6) / (72 * figure.get_size_inches()[1])


def wrapped(text: str, page: Page) -> str:
    """An axis' label in as many lines as the narrow figure needs."""
    return textwrap.fill(text, 36) if page.narrow else text


def names_above(axes: Axes, names: Sequence[str], beside: Sequence[str] = ()) -> None:
    """Name the lines 0, 1, ... of a panel above their marks, not beside them, with a text below the name if given."""
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.65, -0.8 if not beside else -0.95)
    for place, name in enumerate(names):
        lines = [name, *beside[place : place + 1]]
        for line, (text, colour) in enumerate(zip(lines, (INK, PUBLISHED), strict=False)):
            axes.annotate(
                text,
                (0.01, place - (0.44 if len(lines) == 1 else 0.62 - 0.28 * line)),
                xycoords=("axes fraction", "data"),
                va="center",
                color=colour,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.4},
                zorder=7,
            )
