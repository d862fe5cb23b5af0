"""Labels at the ends of lines, in place of a legend: each beside its panel, as near its line's end as the others allow.

A label has its line's marker, and a thin stroke from the line's last point to it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from gemmrepro.figures.style import INK, spread
from gemmrepro.figures.widths import Page

LINE_HEIGHT = 1.22
"""Distance of two lines of text, in heights of a letter."""

_BEGIN, _MARK, _TEXT = 1.015, 5.0, 11.0
"""Where strokes end, in widths of the panel; from there on, in points, the middle of the marks and the texts' edge."""


@dataclass(frozen=True)
class End:
    """A label for the last point (x, y) of a line; without a marker, the text has the line's colour."""

    x: float
    y: float
    text: str
    colour: str
    marker: str = ""


def wrapped(text: str, letters: int) -> str:
    """A label in lines of so many letters, if its words allow."""
    return textwrap.fill(text, letters, break_long_words=False, break_on_hyphens=False)


def room(texts: Sequence[str], page: Page) -> float:
    """Height in inches that these labels take below each other, each as high as the highest."""
    return len(texts) * _height(texts, page) / 72


def reserve(axes: Axes, texts: Sequence[str], page: Page) -> None:
    """Let a tight layout leave room for the labels of a panel, before the heights of its lines are known."""
    for text in texts:
        axes.annotate(
            text,
            (_BEGIN, 0.5),
            (_TEXT, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=page.letters,
            annotation_clip=False,
            gid="reserved",
        )


def label(axes: Axes, ends: Sequence[End], page: Page) -> None:
    """Write the labels, in the room reserved for them if any. The limits and the layout must be final."""
    for each in [each for each in axes.texts if each.get_gid() == "reserved"]:
        each.remove()
    figure = axes.get_figure(root=True)
    if not ends or figure is None:
        return
    size = figure.get_size_inches() * 72
    width, height = axes.get_position().width * size[0], axes.get_position().height * size[1]
    inverse = axes.transAxes.inverted()
    points = [inverse.transform(axes.transData.transform((end.x, end.y))) for end in ends]
    gap = _height([end.text for end in ends], page) / height
    places = spread([float(y) for _, y in points], gap, gap / 2, 1 - gap / 2)
    for end, (x, y), place in zip(ends, points, places, strict=True):
        if end.marker:
            free: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "scalex": False, "scaley": False}
            axes.plot([x, _BEGIN], [y, place], color=end.colour, linewidth=0.6, zorder=1.8, **free)
            axes.plot([_BEGIN + _MARK / width], [place], end.marker, color=end.colour, markersize=5, **free)
        _write(axes, end, place, page)


def _write(axes: Axes, end: End, place: float, page: Page) -> None:
    axes.annotate(
        end.text,
        (_BEGIN, place),
        (_TEXT if end.marker else 3, 0),
        xycoords="axes fraction",
        textcoords="offset points",
        va="center",
        fontsize=page.letters,
        color=INK if end.marker else end.colour,
        annotation_clip=False,
    )


def _height(texts: Sequence[str], page: Page) -> float:
    """Height in points of the highest of some labels, with a gap."""
    lines = max((text.count("\n") + 1 for text in texts), default=1)
    return (LINE_HEIGHT * lines + 0.1) * page.letters
