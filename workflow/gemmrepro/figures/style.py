"""The look of every figure: colours, letters, the two widths, numbers on axes; and `Drawing`, what a figure is.

Series differ by marker or dash as well as by colour, from a palette that is safe for colour-blind readers. Colours of
ink, grid and series are literal and unique, so that the report can replace them in dark mode (`COLOURS`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements

matplotlib.use("svg")


@dataclass(frozen=True)
class Colour:
    """The CSS custom property `--name` that stands for a literal colour, and that colour in dark mode."""

    name: str
    dark: str


INK, GRID, PAPER = "#1b1f26", "#d5d9df", "#ffffff"
PUBLISHED = "#69747a"

SERIES = ("#1c6799", "#dc660c", "#28956a", "#da6daa", "#00214c", "#724d09", "#39249b", "#1695f8")
"""The palette of Okabe and Ito, its yellow and black replaced, moved until any two of it, `PUBLISHED` and `INK` are a
CIEDE2000 difference of 12 apart to every eye: with all cones, without the green, and without the red; see `MARKERS`."""

GOOD, FAIR, BAD, NONE = "#116333", "#7a4a00", "#a01c1c", "#4a525e"
"""Colours of the page's badges: holds, holds in part, does not hold, was not tested. They and INK and
PUBLISHED alone are dark enough for text."""

FIRST, LAST, TUNED, OTHER_TYPE = SERIES[0], SERIES[1], SERIES[2], SERIES[3]
"""A step; the last step of a ladder; the same source, tuned; the same source in another type."""

_DARK = ("#2c80ff", "#ed812a", "#49b792", "#de99bf", "#89abff", "#ecc681", "#7657a8", "#9fd9fc")

COLOURS = {
    INK: Colour("ink", "#e4e7ec"),
    GRID: Colour("grid", "#3a424e"),
    PAPER: Colour("paper", "#181c23"),
    PUBLISHED: Colour("published", "#81868e"),
    GOOD: Colour("good", "#84d6a1"),
    FAIR: Colour("mid", "#f0c272"),
    BAD: Colour("bad", "#ff9d94"),
    NONE: Colour("none", "#b4bcc8"),
    **{
        colour: Colour(f"series-{place}", dark)
        for place, (colour, dark) in enumerate(zip(SERIES, _DARK, strict=True), start=1)
    },
}
"""Literal colours of the figures, and the custom properties of the page that stand for them."""

FONTS = "'DejaVu Sans',Verdana,'Bitstream Vera Sans',sans-serif"
"""Fonts of equal widths, so that text takes the room that was measured for it."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

Dash: TypeAlias = str | tuple[float, Sequence[float]]
"""A line's dashes, as matplotlib takes them."""

DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (6, 1.6)),
    "-.",
    (0, (1, 1.1)),
    (0, (3, 1, 1, 1)),
    (0, (8, 2, 1, 2)),
    (0, (4, 4)),
)
DOTTED: Dash = (0, (1, 2))


@dataclass(frozen=True)
class Page:
    """A width in inches, and the size of its letters in points.
    The narrow one is shown 300 pixels wide and more, where its letters are 11 pixels high."""

    width: float
    letters: float

    @property
    def narrow(self) -> bool:
        return self.width < 5

    def pick(self, wide: Any, narrow: Any) -> Any:
        return narrow if self.narrow else wide


WIDE, NARROW = Page(7.6, 9.5), Page(3.3, 8.8)


@dataclass(frozen=True)
class Drawing:
    """A figure and what the report needs to say about it.

    Attributes:
        title: the finding where one follows from the data, else the subject.
        caption: how to read it, and where the numbers come from.
        alt: the finding for those who do not see the figure, in 40 to 300 characters.
        table: its numbers, a dict per line, whose `keys` are by column those of the rows that a number comes from.
        paint: draws it for a page; for screens of 390 pixels that is `NARROW`.
        shown: the rows that it was drawn from, if not all of its family or of the paper.
    """

    title: str
    caption: str
    alt: str
    table: Sequence[Mapping[str, Any]]
    paint: Callable[[Page], Figure]
    stale: bool = False
    shown: Results | None = None


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


def set_style(page: Page = WIDE) -> None:
    """Give every figure drawn from now on this module's look, with letters for `page`."""
    np.random.seed(0)  # seaborn draws the places of a strip's marks from it
    letters = dict.fromkeys(
        ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), page.letters
    )
    inked = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    sns.set_theme(
        style="whitegrid",
        palette=SERIES,
        font="DejaVu Sans",
        rc=letters
        | inked
        | {
            "axes.titlesize": page.letters + 0.5,
            # Right above the panel: to look for room above it takes a tenth of the time, and no labels are there.
            "axes.titley": 1.0,
            "axes.titlelocation": "left",
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.facecolor": PAPER,
            "figure.facecolor": PAPER,
            "axes.linewidth": 0.8,
            **dict.fromkeys((f"{axis}tick.{rank}.size" for axis in "xy" for rank in ("major", "minor")), 0),
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "hatch.linewidth": 0.7,
            "lines.linewidth": 1.5,
            "lines.markersize": 5,
            "legend.frameon": False,
            "figure.max_open_warning": 0,
            "svg.fonttype": "none",
            "svg.hashsalt": "gemmrepro",
        },
    )


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def raised(exponent: int) -> str:
    """An integer in superscript digits."""
    return str(exponent).translate(_RAISED)


def plain(value: float, _position: int | None = None) -> str:
    """A tick's label, never as 1e6: powers of two above 10^6, and numbers beyond 10^6 or 10^-4, as powers."""
    if value > 1e6 or 0 < value < 1e-4:
        tens = math.log10(value)
        if abs(tens - round(tens)) < 1e-9:
            return f"10{raised(round(tens))}"
    if value < 1e-4 and (digits := f"{value:.3g}".partition("e"))[2]:
        return f"{digits[0]} · 10{raised(int(digits[2]))}"
    if value < 1e6:
        return f"{value:,.6g}"
    exponent = math.log2(value)
    return f"2{raised(int(exponent))}" if exponent.is_integer() else f"{value:,.0f}"


def size(value: float, largest: float = 0.0) -> str:
    """A size, in units of 1024, or along an axis to a `largest` of 2^20 or more as a power of two."""
    if largest >= 2**20 and math.log2(value).is_integer():
        return f"2{raised(round(math.log2(value)))}"
    return f"{value / 1024:g}k" if value and value % 1024 == 0 else plain(value)


def written(x: float) -> str:
    """A number without exponent form: 3.2e-07 is 3.2 · 10⁻⁷."""
    digits, _, power = format_number(x).partition("e")
    return f"{digits} · 10{raised(int(power))}" if power else digits


def logarithmic(axis: Axis) -> None:
    """Label a logarithmic axis with few powers, and with twos and fives where it spans fewer than two decades.
    Call it once the axis has its final limits."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_locator(NullLocator())
    if 0 < low < high < 100 * low:
        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.set_minor_formatter(FuncFormatter(plain))


def origin(measured: Measurements | Results | None) -> str:
    """Where the rows come from, as a sentence."""
    if measured is None or measured.source == "none":
        return "Nothing was measured."
    date = str(measured.run.get("date", ""))[:10]
    how = "Measured in this run" if measured.source == "live" else "Recorded earlier"
    machine = measured.machine if isinstance(measured, Results) else measured.gpu
    return f"{how} on {machine or 'no GPU'}{f', {date}' if date else ''}."


def stale_note(stale: bool) -> str:
    """A sentence on hollow marks; empty where nothing is stale."""
    note = " Hollow marks and bars are stale: they were measured with another build of the kernel and support no claim."
    return note if stale else ""


_DEFAULT = re.compile(
    r"^(?:(?:fill-|stroke-)?opacity: 1|stroke-width: 1|text-anchor: start|stroke-dashoffset: 0|font-weight: 400"
    r"|(?:stroke-(?:miterlimit|linecap|linejoin)|font-family): .*)?$"
)
"""Attributes of a shape that need not be said: defaults, ends of thin lines, and the font, which all text shares."""

_NEEDLESS = re.compile(
    r"<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id=\"[^\"]*\"| transform=\"rotate\(-?0 [^\"]*\"", re.DOTALL
)
_GROUP = re.compile(r"<g>((?:(?!</?g\b).)*)</g>", re.DOTALL)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _short(path: re.Match[str]) -> str:
    """A path's data without the blanks around its letters."""
    return f' d="{re.sub(" *([A-Za-z]) *", lambda letter: letter[1], " ".join(path[1].split()))}"'


def slim(svg: str, title: str, description: str) -> str:
    """matplotlib's `svg` with `title` and `description`, its styles as classes and its colours as custom properties.
    Raises UserError if `svg` is no SVG."""
    whole = re.search(r'<svg\b[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>(.*)</svg>', svg, re.DOTALL)
    if not whole:
        raise UserError(f"the figure {title!r} is no SVG; draw the figures again.")
    classes: dict[str, str] = {}

    def named(style: re.Match[str]) -> str:
        told = (part.strip() for part in style[1].split(";"))
        rule = ";".join(sorted(part.replace(": ", ":") for part in told if not _DEFAULT.match(part)))
        return f' class="{classes.setdefault(rule, f"c{len(classes)}")}"' if rule else ""

    body = _NEEDLESS.sub("", whole[3]).replace("xlink:href", "href")
    body = re.sub(r' fill="(#\w{6})"', r' style="fill: \1"', body)  # of hatched areas
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\d+\.\d{2,}", _rounded, tag[0]), body)
    body = re.sub(r' style="([^"]*)"', named, body)
    body = re.sub(r' d="([^"]*)"', _short, body)
    body = re.sub(r">\s+<", ">\n<", body)
    while (flat := _GROUP.sub(lambda group: group[1].strip(), body)) != body:
        body = flat
    rules = "\n".join(f".{name}{{{rule}}}" for rule, name in classes.items())
    rules = re.sub("|".join(COLOURS), lambda colour: f"var(--{COLOURS[colour[0]].name},{colour[0]})", rules)
    dark = ";".join(f"--{colour.name}:{colour.dark}" for colour in COLOURS.values() if f"--{colour.name}," in rules)
    width, height = whole[1], whole[2]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
        f'viewBox="0 0 {width} {height}">\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n'
        f"<style>\nsvg{{font-family:{FONTS};stroke-linejoin:round}}\n{rules}\n"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n</style>\n{body.strip()}\n</svg>\n"
    )
