"""The forms of figures, each drawn from a frame of marks: names down the side, curves, and tables of heat.

`dots` has a line for each name, with marks of several kinds on it, its numbers beside it; `curves` has sizes along the
axis and names its lines at their ends; `heat` is a table of values, those out of bounds in red.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.style import (
    BAD,
    DOTTED,
    FIRST,
    GRID,
    INK,
    PAPER,
    PUBLISHED,
    Page,
    logarithmic,
    plain,
    raised,
    size,
    written,
)

HANDLE, LETTER = 4.6, 0.62
"""Widths, in heights of a letter: of a legend's mark with the gaps around it, and of the mean letter."""

LINE = 0.25
"""Inches of height per name."""


GLYPHS = {"o": "●", "D": "◇", "s": "□", "^": "△", "v": "▽"}
"""Marks in text: filled of what was measured, hollow of what was published."""


@dataclass(frozen=True)
class Look:
    """The marks of one kind, with matplotlib's `marker`, the `dash` of its curve and the `head` of its numbers."""

    label: str
    colour: str = FIRST
    marker: str = "o"
    hollow: bool = False
    size: float = 5.5
    dash: Any = ""
    head: str = ""

    @property
    def face(self) -> str:
        return PAPER if self.hollow else self.colour

    def handle(self, line: bool = False) -> Line2D:
        """Its mark in a legend, or with its line."""
        look: dict[str, Any] = {"color": self.colour, "marker": self.marker, "markersize": self.size}
        look |= {"markerfacecolor": self.face, "markeredgecolor": self.colour, "markeredgewidth": 1.4}
        return Line2D([], [], linestyle=self.dash if line else "", label=self.label, **look)


def printed(label: str = "published", head: str = "print", marker: str = "D") -> Look:
    """The look of what an article prints: hollow and grey."""
    return Look(label, PUBLISHED, marker, hollow=True, size=6.5, dash=(0, (4, 2)), head=head)


def pair(gpu: str) -> dict[str, Look]:
    """The looks of a published value and of the measured one beside it."""
    return {"print": printed(), "here": Look(f"measured, {gpu}", dash="-", head="here")}


def marks(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of marks: `panel`, `name` and `kind` (or `series`), the value with its interval, and whether stale."""
    every = {"panel": "", "name": "", "kind": "here", "series": "", "stale": False}
    every |= dict.fromkeys(("x", "y", "low", "high"), math.nan)
    frame = pd.DataFrame([{**every, **line} for line in lines], columns=None if lines else [*every, "keys"])
    return frame.astype({"x": float, "y": float, "low": float, "high": float, "stale": bool})


def empty(axes: Axes, text: str = "not measured") -> None:
    """Write in the middle of a panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK)


def wrapped(text: str, page: Page) -> str:
    """An axis' label or a title in as many lines as the narrow figure needs."""
    return textwrap.fill(text, 36) if page.narrow else text


def finished(figure: Figure, page: Page, handles: Sequence[Any] = ()) -> Figure:
    """A figure in its final places, made higher by a legend on top, in as many columns as fit."""
    width, height = figure.get_size_inches()
    above = 0.0
    if handles:
        widest = max(len(str(handle.get_label())) for handle in handles)
        fit = max(1, min(4, int(page.width * 72 / ((HANDLE + LETTER * widest) * page.letters))))
        rows = math.ceil(len(handles) / fit)
        columns = math.ceil(len(handles) / rows)
        figure.legend(handles=handles, loc="upper left", ncols=columns, borderaxespad=0.3, columnspacing=1.4)
        above = (1.5 * page.letters * rows + 6) / 72
        figure.set_size_inches(width, height + above)
    figure.tight_layout(rect=(0, 0, 1, height / (height + above)), w_pad=1.4, h_pad=1.0)
    return figure


def percent(axes: Axes, axis: str = "x") -> None:
    getattr(axes, f"{axis}axis").set_major_formatter(PercentFormatter(1, decimals=0))


def dots(
    frame: pd.DataFrame,
    looks: Mapping[str, Look],
    panels: Mapping[str, Panel],
    page: Page,
    *,
    texts: pd.DataFrame,
    joined: bool = True,
) -> Figure:
    """Marks of several kinds on a line for each name, joined where a line has several; names stand above on a phone.
    `frame`: see `marks`; `kind` picks the look. `texts`: by `panel` and `name`, in their order, a column of text for
    each other column; its head has the mark of the kind that it is called by, which then needs no legend."""
    known = pd.concat([texts[["panel", "name"]], frame[["panel", "name"]]])
    shown = {key: list(known.loc[known["panel"] == key, "name"].unique()) for key in panels}
    columns = [name for name in texts if name not in ("panel", "name") and texts[name].astype(bool).any()]
    rows_of = {key: texts[texts["panel"] == key].set_index("name")[columns] for key in panels}
    mark_of = {name: GLYPHS.get(looks[name].marker, "") if name in looks else "" for name in columns}
    short = {name: mark_of[name] or name for name in columns}
    said = {key: _said(own, rows_of[key].rename(columns=short)) for key, own in shown.items()}
    both = [(name, text) for key in panels for name, text in zip(shown[key], said[key], strict=True)]
    one_line = all(len(name) + len(text) <= 38 for name, text in both)
    lines = {key: sum(page.pick(1 + 0.75 * name.count("\n"), 1) for name in own) for key, own in shown.items()}
    above = 1.75 if one_line else 3.2 if any("\n" in name for name, _ in both) else 2.3
    line = LINE * page.pick(1, above)
    heights = [line * max(1, count) + 0.92 for count in lines.values()]
    size = (page.width, sum(heights) + 0.2)
    ratios = [max(1, count) + 0.35 for count in lines.values()]  # the layout leaves the same room around each
    figure, grid = plt.subplots(len(panels), 1, figsize=size, squeeze=False, height_ratios=ratios)
    for axes, (key, panel) in zip(grid.flat, panels.items(), strict=True):
        own, part = shown[key], frame[(frame["panel"] == key) & frame["x"].notna()]
        part = part.assign(y=part["name"].map({name: place for place, name in enumerate(own)}))
        _on_lines(axes, part, looks, joined, 0.26 if page.narrow else 0.7)
        _values_across(axes, panel, page, part, len(own))
        _with_lines(axes, len(own))
        if part.empty:
            empty(axes)
        if page.narrow:
            _names_above(axes, own, said[key], one_line)
        else:
            axes.set_yticks(range(len(own)), [_fitting(name) for name in own])
            heads = {name: f"{mark_of[name]} {looks[name].head}" if mark_of[name] else name for name in columns}
            _columns(axes, own, rows_of[key].rename(columns=heads), page)
    hidden = () if page.narrow else columns
    kinds = [kind for kind in looks if kind not in hidden and (frame["kind"] == kind).any()]
    return finished(figure, page, [looks[kind].handle() for kind in kinds if looks[kind].label])


def _fitting(name: str) -> str:
    """A name whose lines are no longer than fits beside a panel, or above a narrow one."""
    return "\n".join(textwrap.shorten(line, 44, placeholder="…") for line in name.split("\n"))


def _with_lines(axes: Axes, count: int) -> None:
    """Room for `count` names down the side, the first at the top."""
    axes.set_ylim(max(1, count) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _on_lines(axes: Axes, part: pd.DataFrame, looks: Mapping[str, Look], joined: bool, high: float) -> None:
    """The marks of a panel, joined if asked, with their intervals."""
    pairs = [kind for kind, look in looks.items() if joined and look.marker != "|"]
    ends = part[part["kind"].isin(pairs)].groupby("y")["x"]
    axes.hlines(list(ends.groups), ends.min(), ends.max(), color=PUBLISHED, linewidth=1, zorder=2)
    for (kind, stale), group in part.groupby(["kind", "stale"], sort=False):
        look, y = looks[str(kind)], group["y"]
        if look.marker == "|":
            axes.vlines(group["x"], y - 0.6 * high, y + 0.6 * high, color=look.colour, linewidth=2.2, zorder=3)
        else:
            style: dict[str, Any] = {"marker": look.marker, "s": look.size**2, "color": PAPER if stale else look.face}
            style |= {"edgecolor": look.colour, "linewidth": 1.4, "zorder": 3.5 if look.hollow else 4}
            sns.scatterplot(group, x="x", y="y", ax=axes, legend=False, **style)
        known = group[group["low"] < group["high"]]
        axes.hlines(known["y"], known["low"], known["high"], color=look.colour, linewidth=1.2, zorder=3.2)


def _values_across(axes: Axes, panel: Panel, page: Page, part: pd.DataFrame, count: int) -> None:
    """The axis of the values of `count` names down the side; its line keeps clear of names above their marks."""
    if panel.log:
        axes.set_xscale("log")
        ends = [*part["x"], *([] if panel.line is None else [panel.line])]
        low, high = min(ends, default=1.0), max(ends, default=10.0)
        middle, half = (low * high) ** 0.5, max((high / low) ** 0.5, 10**0.5)
        axes.set_xlim(middle / half / 1.4, middle * half * 1.4)
        logarithmic(axes.xaxis)
        if page.narrow:
            axes.xaxis.set_major_locator(LogLocator(numticks=5))
    else:
        right = max([*part["x"], *part["high"].dropna(), *([] if panel.line is None else [panel.line])], default=1.0)
        axes.set_xlim(panel.low, panel.low + 1.04 * (right - panel.low or 1))
        axes.xaxis.set_major_locator(MaxNLocator(page.pick(6, 4)))
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
    if panel.line is not None:
        for low, high in [(y - 0.2, y + 0.25) for y in range(count)] if page.narrow else [(-0.6, count - 0.4)]:
            axes.vlines(panel.line, low, high, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    axes.set_title(wrapped(panel.title, page))
    axes.set(xlabel=wrapped(panel.label, page), ylabel="")


def _names_above(axes: Axes, names: Sequence[str], said: Sequence[str], one_line: bool) -> None:
    """Name the lines of a panel above their marks, with their numbers beside or below the name."""
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.6, -0.85 if one_line else -0.95)
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "zorder": 7}
    patch = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.4}
    for place, (name, text) in enumerate(zip(names, said, strict=True)):
        axes.annotate(_fitting(name), (0.01, place - (0.45 if one_line else 0.62)), bbox=patch, **where)
        at, side = ((0.99, place - 0.45), "right") if one_line else ((0.01, place - 0.34), "left")
        axes.annotate(text, at, ha=side, color=PUBLISHED, bbox=patch, **where)


def _said(names: Sequence[str], rows: pd.DataFrame) -> list[str]:
    """The numbers of each name in a line of text."""
    cells = {name: rows.loc[name].items() if name in rows.index else () for name in names}
    return ["  ".join(f"{head} {cell}".strip() for head, cell in cells[name] if cell) for name in names]


def _columns(axes: Axes, names: Sequence[str], rows: pd.DataFrame, page: Page) -> None:
    """The numbers of a panel's lines to its right: a column each under its heading, the last in ink."""
    right = 6.0
    for place, head in enumerate(rows.columns):
        cells = [(-0.95, head), *((names.index(str(name)), str(cell)) for name, cell in rows[head].items())]
        right += (LETTER * max(len(text) for _, text in cells) + 1.0) * (page.letters - 0.5)
        for y, text in cells:
            axes.annotate(
                text,
                (1, y),
                (right, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=page.letters - page.pick(0.5, 0),
                color=INK if place == len(rows.columns) - 1 else PUBLISHED,
                annotation_clip=False,
            )


def curves(
    frame: pd.DataFrame,
    looks: Mapping[str, Look],
    panels: Mapping[str, Panel],
    page: Page,
    *,
    x_label: str,
    x_scale: str = "log2",
    columns: int = 2,
    shared: bool = False,
    nothing: str = "not measured",
    finish: Callable[[Axes, str], None] | None = None,
) -> Figure:
    """A panel of lines for each of `panels`; `series` picks the look, whose label stands at the line's end.

    Args:
        x_scale: "log2", "log" or "linear".
        columns: panels side by side in the wide figure.
        shared: all panels have one pair of axes, and a legend above names the lines.
        nothing: what a panel without lines says.
        finish: what else a panel shows, given its axes and its key.
    """
    columns = min(page.pick(columns, 1), len(panels))
    down = math.ceil(len(panels) / columns)
    page = replace(page, width=min(page.width, 6.4)) if columns == 1 else page
    letters = page.pick({1: 26, 2: 15}.get(columns, 11), 13)
    xs = sorted(frame["x"].dropna().unique())
    parts = {key: frame[(frame["panel"] == key) & frame["y"].notna()] for key in panels}
    parts = {key: part[part["y"] > 0] if panels[key].log else part for key, part in parts.items()}
    named = {key: _ends(part[:0] if shared else part, looks, letters) for key, part in parts.items()}
    inches = max(2.35, 0.95 + max(len(ends) * _height(ends, page) for ends in named.values()) / 72)
    inches = min(inches, 1.9 if down > 1 else 2.5) if shared else inches
    size = (page.width, inches * down + 0.3)
    figure, grid = plt.subplots(down, columns, figsize=size, squeeze=False, sharex=shared, sharey=shared)
    for axes, (key, panel) in zip(grid.flat, panels.items(), strict=False):
        for series, group in parts[key].groupby("series", sort=False):
            _line(axes, group, looks[str(series)], list(looks).index(str(series)))
        _sizes_along(axes, xs if x_scale != "linear" else sorted(parts[key]["x"].unique()), x_scale)
        _values_up(axes, panel, page, frame[["y", "high"]].max().max() if shared else math.nan)
        axes.set_xlabel(x_label)
        if columns > 2:
            axes.set_title(textwrap.fill(panel.title, 26))
        if shared:
            axes.label_outer()
        if parts[key].empty and frame[frame["panel"] == key].empty:
            empty(axes, nothing)
        if finish:
            finish(axes, key)
        _write_ends(axes, named[key])
    for spare in grid.flat[len(panels) :]:
        spare.set_visible(False)
    used = [look.handle(True) for key, look in looks.items() if shared and look.label and key in set(frame["series"])]
    finished(figure, page, used)
    for axes, ends in zip(grid.flat, named.values(), strict=False):
        _place_ends(axes, ends, page)
    return figure


def _line(axes: Axes, group: pd.DataFrame, look: Look, number: int) -> None:
    """One curve with its marks and intervals; where lines coincide, the first is on top."""
    top = (2 if look.hollow else 4) - 0.02 * number
    if look.dash:
        line = {"color": look.colour, "linestyle": look.dash, "linewidth": 1.4, "zorder": top - 0.01}
        sns.lineplot(group, x="x", y="y", estimator=None, legend=False, ax=axes, **line)
    for stale, points in group.groupby("stale"):
        style = {"marker": look.marker, "s": look.size**2, "color": PAPER if stale else look.face, "zorder": top}
        sns.scatterplot(points, x="x", y="y", ax=axes, legend=False, edgecolor=look.colour, linewidth=1.2, **style)
    known = group[group["low"] < group["high"]]
    axes.vlines(known["x"], known["low"], known["high"], color=look.colour, linewidth=1, zorder=top - 0.005)


def _sizes_along(axes: Axes, xs: Sequence[float], scale: str) -> None:
    """The axis of sizes; so many of them are labelled as fit."""
    axes.set_xscale("linear" if scale == "linear" else "log", **({"base": 2} if scale == "log2" else {}))
    if xs and scale == "linear":
        margin = 0.05 * (xs[-1] - xs[0]) or 0.5
        axes.set_xlim(xs[0] - margin, xs[-1] + margin)
    elif xs:
        axes.set_xlim(xs[0] / 1.3, xs[-1] * 1.3)
    if scale == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    else:
        powers = [x for x in xs if scale == "log2" and math.log2(x).is_integer()]
        labelled = powers if len(powers) > 2 else list(xs)
        axes.xaxis.set_major_locator(FixedLocator(labelled[:: max(1, math.ceil(len(labelled) / 4))] or [1.0]))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: size(x, max(xs, default=0)) if scale == "log2" else plain(x))
    )
    axes.xaxis.set_minor_locator(NullLocator())


def _values_up(axes: Axes, panel: Panel, page: Page, highest: float) -> None:
    """The axis of the values of curves; one that is shared, and linear, ends at the `highest` of all."""
    if panel.log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if not axes.collections:
            axes.set_yticks([])
        elif math.log10(high / low) < 1.2:
            # At least a decade, so that a flat line looks flat and the axis has ticks.
            middle = math.sqrt(low * high)
            axes.set_ylim(middle / 4, middle * 4)
        logarithmic(axes.yaxis)
    else:
        own = axes.dataLim.y1 if axes.collections else 1.0
        top = max(own if math.isnan(highest) else highest, panel.line or -math.inf)
        axes.set_ylim(panel.low, panel.low + 1.06 * (top - panel.low or 1.0))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
    if panel.line is not None:
        axes.axhline(panel.line, color=INK, linewidth=1, linestyle=DOTTED, zorder=1.5)
    axes.set_title(wrapped(panel.title, page))
    axes.set_ylabel(wrapped(panel.label, page))


_BEGIN, _MARK, _TEXT = 1.015, 5.0, 11.0
"""Where strokes end, in widths of the panel; from there on, in points, the middle of the marks and the texts' edge."""


def _ends(part: pd.DataFrame, looks: Mapping[str, Look], letters: int) -> pd.DataFrame:
    """The last point of each of a panel's lines, with its label (`text`) and `look`; none of one line alone."""
    last = part.groupby("series", sort=False).last()
    last = (last if len(last) > 1 else last[:0]).assign(look=[looks[name] for name in last.index if len(last) > 1])
    texts = [textwrap.fill(look.label, letters, break_long_words=False) for look in last["look"]]
    return last.assign(text=texts)


def _height(ends: pd.DataFrame, page: Page) -> float:
    """Height in points of the highest of some labels, with a gap."""
    return (1.22 * max((text.count("\n") + 1 for text in ends["text"]), default=1) + 0.1) * page.letters


def _write_ends(axes: Axes, ends: pd.DataFrame) -> None:
    """Write the labels beside the panel, so that the layout leaves them room."""
    for look, text in zip(ends["look"], ends["text"], strict=True):
        where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        colour = PUBLISHED if look.hollow else INK
        axes.annotate(text, (_BEGIN, 0.5), (_TEXT, 0), va="center", color=colour, gid="end", **where)


def _place_ends(axes: Axes, ends: pd.DataFrame, page: Page) -> None:
    """Move each label as near its line's end as the others allow, with the line's mark and a thin stroke to it."""
    figure = axes.get_figure(root=True)
    if ends.empty or figure is None:
        return
    box, inches = axes.get_position(), figure.get_size_inches() * 72
    width, height = box.width * inches[0], box.height * inches[1]
    points = axes.transAxes.inverted().transform(axes.transData.transform(ends[["x", "y"]].to_numpy(float)))
    gap = _height(ends, page) / height
    places = spread([float(y) for y in points[:, 1]], gap, gap / 2, 1 - gap / 2)
    texts = [text for text in axes.texts if text.get_gid() == "end"]
    for look, text, (x, y), place in zip(ends["look"], texts, points, places, strict=True):
        text.xy = (_BEGIN, place)  # type: ignore[attr-defined]
        free: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "scalex": False, "scaley": False}
        axes.plot([x, _BEGIN], [y, place], color=look.colour, linewidth=0.6, zorder=1.8, **free)
        mark: dict[str, Any] = {"color": look.colour, "markerfacecolor": look.face, "markersize": 5}
        axes.plot([_BEGIN + _MARK / width], [place], look.marker, **mark, **free)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least `gap` apart, near `wanted` and in its order, within [low, high] if they fit."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    placed, free = list(wanted), low
    for i in order:
        placed[i] = max(wanted[i], free)
        free = placed[i] + gap
    free = high
    for i in reversed(order):
        placed[i] = min(placed[i], free)
        free = placed[i] - gap
    return placed


def heat(cells: pd.DataFrame, page: Page, fair: tuple[float, float], label: str = "") -> Figure:
    """A table of values by name and law, red and bold outside of `fair`.
    The narrow figure has a letter for each law, explained below, unless laws are as short, and few digits."""
    laws = [str(law) for law in cells]
    is_short = all(len(law) <= 5 for law in laws)
    heads = laws if is_short or not page.narrow else list("abcdefghijkl"[: len(laws)])
    key = [] if heads == laws else [textwrap.fill(f"{head}: {law}", 44) for head, law in zip(heads, laws, strict=True)]
    names = [textwrap.fill(str(name), page.pick(40, 13)) for name in cells.index]
    lines = [1.4 + name.count("\n") for name in names]
    below = 0.17 * ("\n".join(key).count("\n") + 1) if key else 0.0
    inches = 0.19 * sum(lines) * page.pick(1.25, 1) + page.pick(0.9, 0.55) + below
    figure, axes = plt.subplots(figsize=(page.width, inches))
    if cells.empty:
        empty(axes)
        return figure
    bad = ((cells < fair[0]) | (cells > fair[1])).astype(float).where(cells.notna())
    look: dict[str, Any] = {"cmap": ListedColormap([PAPER, BAD]), "vmin": 0, "vmax": 1, "cbar": False}
    texts = cells.map(lambda value: "" if math.isnan(value) else page.pick(written, _power)(value))
    sns.heatmap(
        bad, annot=texts, fmt="", ax=axes, linewidths=1, linecolor=GRID, annot_kws={"size": page.letters}, **look
    )
    for text, is_bad in zip(axes.texts, bad.stack().dropna(), strict=True):
        text.set(color=PAPER if is_bad else INK, fontweight="bold" if is_bad else "normal")
    axes.xaxis.tick_top()
    axes.set_xticks([x + 0.5 for x in range(len(laws))], [textwrap.fill(head, 84 // (len(laws) + 2)) for head in heads])
    axes.set_yticks([y + 0.5 for y in range(len(cells))], names)
    axes.tick_params(axis="y", rotation=0)
    axes.set(xlabel=label, ylabel="")
    axes.xaxis.set_label_position("top")
    axes.grid(False)
    figure.tight_layout(rect=(0, (below + 0.1) / inches if key else 0, 1, 1))
    if key:
        figure.text(0.02, 0.06 / inches, "\n".join(key), va="bottom", color=INK)
    return figure


def _power(value: float) -> str:
    """A value in as few letters as tell its size."""
    if value and not 0.01 <= value < 1e5:
        return f"10{raised(math.floor(math.log10(value)))}"
    if value < 1:
        return f"{value:.2f}".lstrip("0")[:3]
    return f"{value / 1000:.2g}k" if value >= 1000 else format_number(value, 2)
