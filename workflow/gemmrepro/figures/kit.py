"""The forms of figures, each drawn from a frame of marks: names down the side, curves, and stacked bars.

`dots` has a line for each name, with marks of several kinds on it, its numbers beside it; `curves` has sizes along the
axis and names its lines at their ends; `stacked` divides a bar of each name into parts.
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
from matplotlib.patches import Patch
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


@dataclass(frozen=True)
class Look:
    """How marks of one kind are drawn: `marker` is one of matplotlib's, or "bar"; `dash` is that of its curve."""

    label: str
    colour: str = FIRST
    marker: str = "o"
    hollow: bool = False
    size: float = 5.5
    dash: Any = ""

    def handle(self, line: bool = False) -> Line2D | Patch:
        """Its mark in a legend, or with its line."""
        if self.marker == "bar":
            return Patch(facecolor=self.colour, edgecolor=INK, linewidth=0.6, label=self.label)
        face = PAPER if self.hollow else self.colour
        look: dict[str, Any] = {"color": self.colour, "marker": self.marker, "markersize": self.size}
        look |= {"markerfacecolor": face, "markeredgecolor": self.colour, "markeredgewidth": 1.4}
        return Line2D([], [], linestyle=self.dash if line else "", label=self.label, **look)


def printed(label: str = "published") -> Look:
    """The look of what an article prints: hollow and grey."""
    return Look(label, PUBLISHED, "D", hollow=True, size=6.5, dash=(0, (4, 2)))


def pair(hardware: str, gpu: str) -> dict[str, Look]:
    """The looks of a published value and of the measured one beside it."""
    return {"print": printed(f"published{hardware and f', {hardware}'}"), "here": Look(f"measured, {gpu}", dash="-")}


def marks(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of marks: `panel`, `name` and `kind` (or `series`), the value with its interval, and whether stale."""
    every = {"panel": "", "name": "", "kind": "here", "series": "", "shift": 0.0, "stale": False}
    every |= dict.fromkeys(("x", "y", "low", "high"), math.nan)
    frame = pd.DataFrame([{**every, **line} for line in lines], columns=None if lines else [*every, "key"])
    return frame.astype({"x": float, "y": float, "low": float, "high": float, "stale": bool})


def empty(axes: Axes, text: str = "not measured") -> None:
    """Write in the middle of a panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK)


def wrapped(text: str, page: Page) -> str:
    """An axis' label or a title in as many lines as the narrow figure needs."""
    return textwrap.fill(text, 36) if page.narrow else text


def legend(figure: Figure, handles: Sequence[Any], page: Page) -> float:
    """Put a legend at the top, in as many columns as fit; the share of the height that is left below it."""
    if not handles:
        return 1.0
    widest = max(len(str(handle.get_label())) for handle in handles)
    fit = max(1, min(4, int(page.width * 72 / ((HANDLE + LETTER * widest) * page.letters))))
    rows = math.ceil(len(handles) / fit)
    columns = math.ceil(len(handles) / rows)
    figure.legend(handles=handles, loc="upper left", ncols=columns, borderaxespad=0.3, columnspacing=1.4)
    return 1 - (1.5 * page.letters * rows + 6) / (72 * figure.get_size_inches()[1])


def finished(figure: Figure, page: Page, handles: Sequence[Any] = ()) -> Figure:
    """A figure with its legend and its final places."""
    figure.tight_layout(rect=(0, 0, 1, legend(figure, handles, page)), w_pad=1.4, h_pad=1.0)
    return figure


def percent(axes: Axes, axis: str = "x") -> None:
    """Label an axis of shares in per cent."""
    getattr(axes, f"{axis}axis").set_major_formatter(PercentFormatter(1, decimals=0))


def dots(
    frame: pd.DataFrame,
    looks: Mapping[str, Look],
    panels: Mapping[str, Panel],
    page: Page,
    *,
    names: Sequence[str] = (),
    texts: pd.DataFrame | None = None,
    across: bool = False,
    beside: bool = False,
    joined: bool = True,
    height: float = LINE,
    finish: Callable[[Axes, str], None] | None = None,
) -> Figure:
    """Marks of several kinds on a line for each name, joined where a line has several.

    Args:
        frame: see `marks`; `kind` picks the look, and `shift` moves a mark off its name's line.
        names: those of every panel, in their order; by default those of a panel's texts and marks.
        texts: by `panel` and `name`, a column of text for each other column, right of the panel.
        across: the wide figure has its panels side by side.
        beside: the names are short enough to stand beside the marks of the narrow figure, too.
        joined: a line's marks are joined.
        height: inches of a line.
        finish: what else a panel shows, given its axes and its key.
    """
    texts = pd.DataFrame(columns=["panel", "name"]) if texts is None else texts
    known = pd.concat([texts[["panel", "name"]], frame[["panel", "name"]]])
    shown = {key: list(names or known.loc[known["panel"] == key, "name"].unique()) for key in panels}
    above = page.narrow and not beside
    rows_of = {key: texts[texts["panel"] == key].set_index("name").drop(columns="panel") for key in panels}
    said = {key: _said(own, rows_of[key]) for key, own in shown.items()}
    one_line = all(
        len(name) + len(text) <= 40 for key in panels for name, text in zip(shown[key], said[key], strict=True)
    )
    line = height * (1 if not above else 1.75 if one_line else 2.3)
    heights = [line * max(2, len(own)) + 0.7 for own in shown.values()]
    side = across and not page.narrow
    grid_of: dict[str, Any] = {"sharey": True} if side else {"height_ratios": heights}
    shape = (1, len(panels)) if side else (len(panels), 1)
    inches = (max(heights) if side else sum(heights)) + 0.45
    figure, grid = plt.subplots(*shape, figsize=(page.width, inches), squeeze=False, **grid_of)
    for axes, (key, panel) in zip(grid.flat, panels.items(), strict=True):
        own, part = shown[key], frame[(frame["panel"] == key) & frame["x"].notna()]
        part = part.assign(y=part["name"].map({name: place for place, name in enumerate(own)}) + part["shift"])
        _on_lines(axes, part, looks, joined, 0.26 if above else 0.7)
        _values_across(axes, panel, page, part, 3 if side else page.pick(6, 4))
        _with_lines(axes, len(own))
        if finish:
            finish(axes, key)
        if part.empty:
            empty(axes)
        if above:
            _names_above(axes, own, said[key], one_line)
        else:
            axes.set_yticks(range(len(own)), own)
            _columns(axes, own, rows_of[key], page)
    used = [look.handle() for kind, look in looks.items() if look.label and (frame["kind"] == kind).any()]
    return finished(figure, page, used)


def _with_lines(axes: Axes, count: int) -> None:
    """Room for `count` names down the side, the first at the top."""
    axes.set_ylim(max(1, count) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _on_lines(axes: Axes, part: pd.DataFrame, looks: Mapping[str, Look], joined: bool, bar: float) -> None:
    """The marks of a panel, joined if asked, with their intervals."""
    apart = [kind for kind, look in looks.items() if not joined or look.marker in ("bar", "|", "d")]
    pairs = part[~part["kind"].isin(apart)]
    ends = pairs.groupby("y")["x"].agg(["min", "max"])
    axes.hlines(ends.index, ends["min"], ends["max"], color=PUBLISHED, linewidth=1, zorder=2)
    for (kind, stale), group in part.groupby(["kind", "stale"], sort=False):
        look = looks[str(kind)]
        face = PAPER if stale or look.hollow else look.colour
        if look.marker == "bar":
            axes.barh(group["y"], group["x"], bar, color=face, edgecolor=look.colour if stale else INK, linewidth=0.6)
        elif look.marker == "|":
            axes.vlines(
                group["x"], group["y"] - 0.6 * bar, group["y"] + 0.6 * bar, color=look.colour, linewidth=2.2, zorder=3
            )
        else:
            area, edge = look.size**2, {"edgecolor": look.colour, "linewidth": 1.4}
            style = {"marker": look.marker, "s": area, "color": face, "zorder": 3.5 if look.hollow else 4, **edge}
            sns.scatterplot(group, x="x", y="y", ax=axes, legend=False, **style)
        known = group[group["low"] < group["high"]]
        colour = INK if look.marker == "bar" else look.colour
        axes.hlines(known["y"], known["low"], known["high"], color=colour, linewidth=1.2, zorder=3.2)
        if look.marker == "bar":
            for end in ("low", "high"):
                axes.vlines(known[end], known["y"] - bar / 4, known["y"] + bar / 4, color=INK, linewidth=1, zorder=3.2)


def _values_across(axes: Axes, panel: Panel, page: Page, part: pd.DataFrame, ticks: int) -> None:
    """The axis of the values of names down the side."""
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
        axes.xaxis.set_major_locator(MaxNLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
    if panel.line is not None:
        axes.axvline(panel.line, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    axes.set_title(wrapped(panel.title, page))
    axes.set(xlabel=wrapped(panel.label, page), ylabel="")


def _names_above(axes: Axes, names: Sequence[str], said: Sequence[str], one_line: bool) -> None:
    """Name the lines of a panel above their marks, with their numbers beside or below the name."""
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.6, -0.85 if one_line else -0.95)
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "zorder": 7}
    patch = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.4}
    for place, (name, text) in enumerate(zip(names, said, strict=True)):
        axes.annotate(name, (0.01, place - (0.45 if one_line else 0.62)), bbox=patch, **where)
        at, side = ((0.99, place - 0.45), "right") if one_line else ((0.01, place - 0.34), "left")
        axes.annotate(text, at, ha=side, color=PUBLISHED, bbox=patch, **where)


def _said(names: Sequence[str], rows: pd.DataFrame) -> list[str]:
    """The numbers of each name in a line of text."""
    cells = {name: rows.loc[name].items() if name in rows.index else () for name in names}
    return [", ".join(f"{head} {cell}".strip() for head, cell in cells[name] if cell) for name in names]


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
    x_label: str | Mapping[str, str],
    x_scale: str | Mapping[str, str] = "log2",
    columns: int = 2,
    handles: bool = False,
    shared: bool = False,
    finish: Callable[[Axes, str], None] | None = None,
) -> Figure:
    """A panel of lines for each of `panels`; `series` picks the look, whose label stands at the line's end.

    Args:
        x_label, x_scale: of all panels or by panel; the scale is "log2", "log" or "linear".
        columns: so many panels side by side in the wide figure.
        handles: the lines are named in a legend above instead.
        shared: all panels have the axes of the first.
    """
    columns = min(page.pick(columns, 1), len(panels))
    down = math.ceil(len(panels) / columns)
    page = replace(page, width=min(page.width, 6.4)) if columns == 1 else page
    letters = page.pick({1: 26, 2: 15}.get(columns, 11), 13)
    xs = sorted(frame["x"].dropna().unique())
    parts = {key: frame[(frame["panel"] == key) & frame["y"].notna()] for key in panels}
    parts = {key: part[part["y"] > 0] if panels[key].log else part for key, part in parts.items()}
    named = {key: [] if handles else _ends(part, looks, letters) for key, part in parts.items()}
    inches = max(2.35, 0.95 + max(len(ends) * _height(ends, page) for ends in named.values()) / 72)
    shape: dict[str, Any] = {"squeeze": False, "sharex": shared, "sharey": shared}
    inches = min(inches, 1.9 if down > 1 else 2.5) if shared else inches
    figure, grid = plt.subplots(down, columns, figsize=(page.width, inches * down + 0.3), **shape)
    for axes, (key, panel) in zip(grid.flat, panels.items(), strict=False):
        for series, group in parts[key].groupby("series", sort=False):
            _line(axes, group, looks[str(series)], list(looks).index(str(series)))
        scale = x_scale if isinstance(x_scale, str) else x_scale[key]
        own = xs if isinstance(x_scale, str) and scale != "linear" else sorted(parts[key]["x"].unique())
        _sizes_along(axes, own, scale, page)
        _values_up(axes, panel, page)
        axes.set(xlabel=x_label if isinstance(x_label, str) else x_label[key])
        if columns > 2:
            axes.set_title(textwrap.fill(panel.title, 26))
        if shared:
            _same_values(axes, frame, panel)
            axes.label_outer()
        if frame[frame["panel"] == key].empty:
            empty(axes)
        if finish:
            finish(axes, key)
        _write_ends(axes, named[key], page)
    for spare in grid.flat[len(panels) :]:
        spare.set_visible(False)
    if shared:
        figure.supylabel(next(panel.label for panel in panels.values()), fontsize=page.letters)
    used = [look.handle(True) for key, look in looks.items() if handles and look.label and key in set(frame["series"])]
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
        face = PAPER if stale or look.hollow else look.colour
        style = {"marker": look.marker, "s": look.size**2, "color": face, "zorder": top}
        sns.scatterplot(points, x="x", y="y", ax=axes, legend=False, edgecolor=look.colour, linewidth=1.2, **style)
    known = group[group["low"] < group["high"]]
    axes.vlines(known["x"], known["low"], known["high"], color=look.colour, linewidth=1, zorder=top - 0.005)


def _sizes_along(axes: Axes, xs: Sequence[float], scale: str, page: Page) -> None:
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
    in_k = scale == "log2" and bool(xs) and xs[-1] < 2**20
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1024:g}k" if in_k and x % 1024 == 0 else size(x)))
    axes.xaxis.set_minor_locator(NullLocator())


def _values_up(axes: Axes, panel: Panel, page: Page) -> None:
    """The axis of the values of curves."""
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
        ends = [axes.dataLim.y1] if axes.collections else [1.0]
        top = max(ends if panel.line is None else [*ends, panel.line])
        axes.set_ylim(panel.low, panel.low + 1.06 * (top - panel.low or 1.0))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
    if panel.line is not None:
        axes.axhline(panel.line, color=INK, linewidth=1, linestyle=DOTTED, zorder=1.5)
    axes.set_title(wrapped(panel.title, page))
    axes.set_ylabel(wrapped(panel.label, page))


def _same_values(axes: Axes, frame: pd.DataFrame, panel: Panel) -> None:
    """Give a panel the axis of all panels, without a label of its own."""
    values = frame[["y", "low", "high"]].stack()
    low, high = (float(end) for end in (values.min(), values.max())) if len(values) else (1.0, 2.0)
    if panel.log:
        low = min((value for value in values if value > 0), default=1.0)
        axes.set_ylim(low / 2, 2 * max(high, low))
        logarithmic(axes.yaxis)
    else:
        axes.set_ylim(panel.low, panel.low + 1.06 * (max(high, panel.line or high) - panel.low or 1.0))
    axes.set_ylabel("")


@dataclass(frozen=True)
class _End:
    """The label of a line's last point."""

    x: float
    y: float
    text: str
    look: Look


_BEGIN, _MARK, _TEXT = 1.015, 5.0, 11.0
"""Where strokes end, in widths of the panel; from there on, in points, the middle of the marks and the texts' edge."""


def _ends(part: pd.DataFrame, looks: Mapping[str, Look], letters: int) -> list[_End]:
    """The labels of a panel's lines; none where it has one line alone."""
    last = part.groupby("series", sort=False).last()
    if len(last) < 2:
        return []
    return [
        _End(
            row["x"],
            row["y"],
            textwrap.fill(looks[str(series)].label, letters, break_long_words=False),
            looks[str(series)],
        )
        for series, row in last.iterrows()
    ]


def _height(ends: Sequence[_End], page: Page) -> float:
    """Height in points of the highest of some labels, with a gap."""
    return (1.22 * max((end.text.count("\n") + 1 for end in ends), default=1) + 0.1) * page.letters


def _write_ends(axes: Axes, ends: Sequence[_End], page: Page) -> None:
    """Write the labels beside the panel, so that the layout leaves them room."""
    for end in ends:
        where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        colour = PUBLISHED if end.look.hollow else INK
        axes.annotate(end.text, (_BEGIN, 0.5), (_TEXT, 0), va="center", color=colour, gid="end", **where)


def _place_ends(axes: Axes, ends: Sequence[_End], page: Page) -> None:
    """Move each label as near its line's end as the others allow, with the line's mark and a thin stroke to it."""
    figure = axes.get_figure(root=True)
    if not ends or figure is None:
        return
    box, inches = axes.get_position(), figure.get_size_inches() * 72
    width, height = box.width * inches[0], box.height * inches[1]
    points = [axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y))) for end in ends]
    gap = _height(ends, page) / height
    places = spread([float(y) for _, y in points], gap, gap / 2, 1 - gap / 2)
    texts = [text for text in axes.texts if text.get_gid() == "end"]
    for end, text, (x, y), place in zip(ends, texts, points, places, strict=True):
        text.xy, look = (_BEGIN, place), end.look  # type: ignore[attr-defined]
        free: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "scalex": False, "scaley": False}
        axes.plot([x, _BEGIN], [y, place], color=look.colour, linewidth=0.6, zorder=1.8, **free)
        face = PAPER if look.hollow else look.colour
        mark: dict[str, Any] = {"color": look.colour, "markerfacecolor": face, "markersize": 5}
        axes.plot([_BEGIN + _MARK / width], [place], look.marker, **mark, **free)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least `gap` apart, near `wanted` and in its order, within [low, high] if they fit."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    placed = [0.0] * len(wanted)
    free = low
    for i in order:
        placed[i] = free = max(wanted[i], free)
        free += gap
    free = high
    for i in reversed(order):
        placed[i] = min(placed[i], free)
        free = placed[i] - gap
    return placed


def heat(cells: pd.DataFrame, page: Page, *, worst: float) -> Figure:
    """A table of values by name and law, red and bold above `worst`.

    The narrow figure has a letter for each law, explained below, and large and small values as powers of ten.
    """
    laws, letters = list(cells), "abcdefgh"
    wrapped_laws = [textwrap.fill(law, 84 // (len(laws) + 2)) for law in laws]
    key = "\n".join(textwrap.fill(f"{letter}: {law}", 44) for letter, law in zip(letters, laws, strict=False))
    below = 0.17 * (key.count("\n") + 1)
    inches = page.pick(0.34, 0.42) * max(1, len(cells)) + page.pick(0.9, 0.5 + below)
    figure, axes = plt.subplots(figsize=(page.width, inches))
    if cells.empty:
        empty(axes)
        return figure
    look: dict[str, Any] = {"cmap": ListedColormap([PAPER, BAD]), "vmin": 0, "vmax": 1, "cbar": False}
    sns.heatmap((cells > worst).astype(float).where(cells.notna()), ax=axes, linewidths=1, linecolor=GRID, **look)
    for y, row in enumerate(cells.to_numpy(float)):
        for x, value in enumerate(row):
            bad = value > worst
            short = "" if math.isnan(value) else page.pick(written(value), _power(value))
            style: dict[str, Any] = {"color": PAPER if bad else INK, "fontweight": "bold" if bad else "normal"}
            axes.text(x + 0.5, y + 0.5, short, ha="center", va="center", **style)
    axes.xaxis.tick_top()
    axes.set_xticks([x + 0.5 for x in range(len(laws))], page.pick(wrapped_laws, letters[: len(laws)]))
    axes.set_yticks(
        [y + 0.5 for y in range(len(cells))], [textwrap.fill(name, page.pick(40, 12)) for name in cells.index]
    )
    axes.tick_params(axis="y", rotation=0)
    axes.set(xlabel="", ylabel="")
    figure.tight_layout(rect=(0, page.pick(0, (below + 0.1) / inches), 1, 1))
    if page.narrow:
        figure.text(0.02, 0.06 / inches, key, va="bottom", color=INK)
    return figure


def _power(value: float) -> str:
    """A value in as few letters as tell its size."""
    if not value or 0.01 <= value < 1e4:
        return format_number(value, 2)
    return f"10{raised(math.floor(math.log10(value)))}"


def stacked(
    frame: pd.DataFrame,
    looks: Mapping[str, Look],
    page: Page,
    *,
    x_label: str,
    shares: bool = False,
    texts: pd.DataFrame | None = None,
) -> Figure:
    """A bar for each `name`, divided into parts of `kind` that are `x` long."""
    names = list(frame["name"].unique())
    figure, axes = plt.subplots(figsize=(page.width, LINE * 1.15 * max(3, len(names)) + 1.1))
    if names:
        wide = frame.pivot_table(index="name", columns="kind", values="x", sort=False).reindex(names).fillna(0)
        ends = wide.reindex(columns=list(looks), fill_value=0).cumsum(axis=1)
        for kind in (kind for kind in looks if kind in wide):
            look, width = looks[kind], wide[kind]
            style: dict[str, Any] = {"color": look.colour}
            style |= {"color": PAPER, "edgecolor": look.colour, "hatch": "////"} if look.hollow else {}
            axes.barh(range(len(names)), width, 0.75, ends[kind] - width, linewidth=0.8, **style)
    else:
        empty(axes)
    axes.set(xlabel=x_label, ylabel="")
    if shares:
        axes.set_xlim(0, 1)
        percent(axes)
    axes.set_yticks(range(len(names)), names)
    _with_lines(axes, len(names))
    if texts is not None:
        _columns(axes, names, texts.set_index("name"), page)
    handles = [
        Patch(facecolor=look.colour, label=look.label)
        if not look.hollow
        else Patch(facecolor=PAPER, edgecolor=look.colour, hatch="////", label=look.label)
        for look in looks.values()
    ]
    return finished(figure, page, handles)
