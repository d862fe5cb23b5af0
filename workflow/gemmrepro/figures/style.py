"""The common style of the figures, their colours, and `Drawing`, which each figure hands to the report.

Series differ by marker, hatch or dash as well as by colour, from a palette that is safe for colour-blind readers.
Colours of ink, grid and series are literal and unique, so that the report can replace them in dark mode (`COLOURS`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements

matplotlib.use("svg")


@dataclass(frozen=True)
class Colour:
    """The CSS custom property `--name` that stands for a literal colour, and that colour in dark mode."""

    name: str
    dark: str


INK, GRID, PAPER = "#1b1f26", "#d5d9df", "#ffffff"
PUBLISHED = "#6f7a80"

SERIES = ("#1c6799", "#dc660c", "#28956a", "#da6daa", "#00214c", "#724d09", "#39249b", "#1695f8")
"""The palette of Okabe and Ito, its yellow and black replaced, moved until any two of it, `PUBLISHED` and `INK` are a
CIEDE2000 difference of 12 apart to every eye: with all cones, without the green, and without the red; see `MARKERS`."""

GOOD, FAIR, BAD = SERIES[2], SERIES[5], SERIES[1]
"""What holds, what holds in part, and what does not."""

FIRST, LAST, TUNED, OTHER_TYPE = SERIES[0], SERIES[1], SERIES[2], SERIES[3]
"""A step; the last step of a ladder; the same source, tuned; the same source in another type."""

_DARK = ("#2c80ff", "#ed812a", "#49b792", "#de99bf", "#89abff", "#ecc681", "#7657a8", "#9fd9fc")

COLOURS = {
    INK: Colour("ink", "#e4e7ec"),
    GRID: Colour("grid", "#3a424e"),
    PAPER: Colour("paper", "#181c23"),
    PUBLISHED: Colour("published", "#81868e"),
    **{
        colour: Colour(f"series-{place}", dark)
        for place, (colour, dark) in enumerate(zip(SERIES, _DARK, strict=True), start=1)
    },
}
"""Literal colours of the figures, and the custom properties of the page that stand for them."""

FONTS = "'DejaVu Sans',Verdana,'Bitstream Vera Sans',sans-serif"
"""Fonts of equal widths, so that text takes the room that was measured for it."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")


Dash: TypeAlias = Literal["-", "-.", "--"] | tuple[float, Sequence[float]]
"""How a line is dashed, as matplotlib takes it."""


@dataclass(frozen=True)
class Drawing:
    """A figure and what the report needs to say about it.

    Attributes:
        title: the finding where one follows from the data, else the subject.
        caption: how to read it, and where the numbers come from.
        alt: the finding for those who do not see the figure, in 40 to 300 characters.
        rows: the keys of the rows that it shows.
        table: its numbers, a dict per line.
        stale: whether any row is stale.
        narrow: the same figure for screens of 390 pixels, where the figure itself is too wide.
    """

    figure: Figure
    title: str
    caption: str
    alt: str
    rows: list[str]
    table: list[dict[str, Any]]
    stale: bool
    narrow: Figure | None = None


SAID = range(40, 301)
"""Characters of a description, which says what the figure shows; its table holds the numbers."""


def finding(*sentences: str) -> str:
    """As many sentences, from the first, as a description holds."""
    said = ""
    for sentence in filter(None, sentences):
        longer = f"{said} {sentence}".strip()
        if len(longer) > SAID[-1]:
            break
        said = longer
    return said or f"{sentences[0][: SAID[-1] - 1]}…"


def set_style() -> None:
    """Give every figure drawn from now on this module's look: seaborn's white grid on paper, with our ink and letters.

    Set here, since seaborn imports scipy.stats, which takes longer than a figure.
    """
    matplotlib.rcParams.update(
        {
            "axes.grid": True,
            "axes.axisbelow": True,
            "lines.linewidth": 1.2,
            "lines.markersize": 4.8,
            "lines.solid_capstyle": "round",
            "patch.edgecolor": "w",
            "patch.force_edgecolor": True,
            "patch.linewidth": 0.8,
            "legend.title_fontsize": 9.6,
            "xtick.bottom": False,
            "xtick.major.size": 4.8,
            "xtick.major.width": 1.0,
            "xtick.minor.size": 3.2,
            "xtick.minor.width": 0.8,
            "ytick.left": False,
            "ytick.major.size": 4.8,
            "ytick.major.width": 1.0,
            "ytick.minor.size": 3.2,
            "ytick.minor.width": 0.8,
            "svg.fonttype": "none",
            "svg.hashsalt": "gemmrepro",
            "font.family": "DejaVu Sans",
            "font.size": 10,
            "axes.labelsize": 10,
            "axes.titlesize": 10.5,
            # Right above the panel: to look for room above it takes a tenth of the time, and no labels are there.
            "axes.titley": 1.0,
            "xtick.labelsize": 9.5,
            "ytick.labelsize": 9.5,
            "legend.fontsize": 9.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "axes.linewidth": 0.8,
            "axes.facecolor": PAPER,
            "figure.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "hatch.linewidth": 0.7,
            "hatch.color": INK,
            "legend.frameon": False,
            "figure.max_open_warning": 0,
        }
    )


def despine(axes: Iterable[Axes], *hidden: str) -> None:
    """Draw the frames of `axes` on the left and at the bottom only, and there not on the sides `hidden`."""
    for each in axes:
        for side in ("left", "right", "bottom", "top"):
            each.spines[side].set_visible(side in ("left", "bottom") and side not in hidden)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def raised(exponent: int) -> str:
    """An integer in superscript digits."""
    return str(exponent).translate(_RAISED)


def plain(value: float, _position: int | None = None) -> str:
    """A tick's label, never as 1e6: powers of two above 10^6, and powers of ten beyond 10^6 or 10^-4, as powers."""
    if value > 1e6 or 0 < value < 1e-4:
        tens = math.log10(value)
        if abs(tens - round(tens)) < 1e-9:
            return f"10{raised(round(tens))}"
    if value < 1e6:
        return f"{value:,.6g}"
    exponent = math.log2(value)
    return f"2{raised(int(exponent))}" if exponent.is_integer() else f"{value:,.0f}"


def written(x: float) -> str:
    """A number without exponent form: 3.2e-07 is 3.2 · 10⁻⁷."""
    text = format_number(x)
    if "e" not in text:
        return text
    digits, power = text.split("e")
    return f"{digits} · 10{raised(int(power))}"


def between_decades(axis: Axis) -> None:
    """Label twos and fives of a logarithmic axis that spans fewer than two decades, and nothing between otherwise.

    Call it once the axis has its final limits.
    """
    low, high = axis.get_view_interval()
    if 0 < low < high < 100 * low:
        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.set_minor_formatter(FuncFormatter(plain))
    else:
        axis.set_minor_locator(NullLocator())


def origin(measured: Measurements | Results) -> str:
    """Where the rows come from, as a sentence."""
    if measured.source == "none":
        return "Nothing was measured."
    date = str(measured.run.get("date", ""))[:10]
    how = "Measured in this run" if measured.source == "live" else "Recorded earlier"
    machine = measured.machine if isinstance(measured, Results) else measured.gpu
    return f"{how} on {machine or 'no GPU'}{f', {date}' if date else ''}."


def stale_note(stale: bool) -> str:
    """A sentence on hollow marks; empty where nothing is stale."""
    return (
        " Hollow marks and bars are stale: they were measured with another build of the kernel and support no claim."
        if stale
        else ""
    )


def empty(axes: Axes, text: str) -> None:
    """Write in the middle of a panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK)


def value_label(axes: Axes, x: float, y: float, text: str, weight: str = "normal", gap: float = 4) -> None:
    """A bar's value to its right, on a patch in the colour of the paper, so that no line crosses it."""
    axes.annotate(
        text,
        (x, y),
        (gap, -0.5),
        textcoords="offset points",
        va="center",
        fontweight=weight,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8},
        zorder=6,
    )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least `gap` apart, as close as possible to `wanted` in its order, within [low, high] if they fit.

    Least squares under that order: isotonic regression of the positions less their gaps, by pooling neighbours.
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    pools: list[list[float]] = []  # sum, count
    for rank, i in enumerate(order):
        pools.append([wanted[i] - rank * gap, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [pools[-1][0] + last[0], pools[-1][1] + last[1]]
    flat = [total / count for total, count in pools for _ in range(int(count))]
    top = high - (len(wanted) - 1) * gap
    placed = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        placed[i] = max(low, min(flat[rank], top)) + rank * gap
    return placed


def half_widths(low: Any, high: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Error bars as matplotlib takes them: shape (2, points), with 0 for what is missing or negative."""
    return np.clip(np.nan_to_num(np.array([low, high], dtype=float)), 0, None)
