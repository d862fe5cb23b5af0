"""The figure ``tiles``: the best candidate of a search for each tile of C, as a heat map per tuned kernel.

It rests on the table of all candidates that `gemmrepro.tune.stage install` keeps beside the winners.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.figures.style import INK, Drawing, empty, finding
from gemmrepro.figures.widths import WIDE, Page, both
from gemmrepro.measure.rows import Measurements
from gemmrepro.registry import Tunable

COLUMNS = 3
NAME = 18
"""Most letters of a panel's name in a line of the narrow figure."""

ON_DARK, ON_LIGHT = "#fdfdfd", "#141414"
"""Text on a cell; no colours of `style.COLOURS`, which the report replaces."""

HINTS = {"num_worker_warps": "{} w", "num_ctas": "{} cta", "occupancy": "occ {}"}
"""How a cell names the hints that its best candidate had, where they are not the compiler's own choice."""


@dataclass(frozen=True)
class Best:
    """The fastest candidate of a tile: ratio to the baseline at the size where all were timed, and its constants."""

    ratio: float
    params: Mapping[str, int]
    candidates: int


@dataclass(frozen=True)
class Search:
    """What was timed of a tunable: at which size, and the best candidate of each tile (rows, columns)."""

    tunable: Tunable
    size: int
    tiles: Mapping[tuple[int, int], Best]

    @property
    def name(self) -> str:
        return self.tunable.id.split(".", 1)[1].removesuffix("_tuned")

    @property
    def fastest(self) -> tuple[int, int]:
        """The tile of the fastest candidate."""
        return max(self.tiles, key=lambda tile: self.tiles[tile].ratio)

    @property
    def top(self) -> float:
        """The ratio of the fastest candidate."""
        return self.tiles[self.fastest].ratio


def read(tunable: Tunable) -> Search | None:
    """The candidates of a tunable that were timed; None where there is no table or it holds none.

    Raises:
        UserError: the table is not one that a search wrote.
    """
    path = registry.candidates_path(tunable.id)
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        size = next(int(name.removeprefix("ratio_")) for name in rows[0] if name.startswith("ratio_"))
        candidates = [(row[f"ratio_{size}"], {key: int(row[key]) for key in tunable.space}) for row in rows]
        timed = [(float(ratio), params) for ratio, params in candidates if ratio and tunable.holds(params)]
    except (StopIteration, IndexError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is no table of candidates ({type(error).__name__}: {error}); restore it, or run tune again."
        ) from None
    best: dict[tuple[int, int], Best] = {}
    for ratio, params in sorted(timed, key=lambda candidate: candidate[0]):  # the last of a tile is its best
        tile = params["bm"], params["bn"]
        best[tile] = Best(ratio, params, best[tile].candidates + 1 if tile in best else 1)
    return Search(tunable, size, best) if best else None


def draw(measured: Measurements) -> Drawing:
    """A panel per tunable of the family that has tiles `bm` x `bn` and a table: rows of a tile down, columns across."""
    searches = selection(measured.family)
    wide, narrow = both(partial(paint, searches))
    return Drawing(wide, title(searches), caption(searches), alt(searches), [], table(searches), False, narrow)


def selection(family: str) -> list[Search]:
    """The searches of a family over tiles."""
    tiled = [tunable for tunable in registry.tunables(family) if {"bm", "bn"} <= set(tunable.space)]
    return [search for tunable in tiled if (search := read(tunable))]


def paint(searches: Sequence[Search], page: Page = WIDE) -> Figure:
    """Draw them; the narrow figure has no hints."""
    columns = int(page.pick(COLUMNS, 2))
    down = max(1, math.ceil(len(searches) / columns))
    height = page.pick(2.3, 1.6) * down + 0.5
    figure, panels = plt.subplots(down, columns, figsize=(page.width, height), squeeze=False)
    # Every panel has its own scale, because cuBLAS, the denominator, is slow in some types.
    shares = [best.ratio / search.top for search in searches for best in search.tiles.values()]
    for axes, search in zip(panels.flat, searches, strict=False):
        _panel(axes, search, min(shares), page)
    for axes in panels.flat[len(searches) :]:
        axes.set_axis_off()
    if not searches:
        empty(panels.flat[0], "not searched")
    else:
        figure.supxlabel("columns of the tile", fontsize=page.letters, color=INK)
        figure.supylabel("rows of the tile", fontsize=page.letters, color=INK)
    figure.tight_layout(w_pad=1.0, h_pad=1.2)
    return figure


def _panel(axes: Axes, search: Search, lowest: float, page: Page) -> None:
    """One heat map; colours run from `lowest` of the panel's best to that best."""
    rows, columns = search.tunable.space["bm"], search.tunable.space["bn"]
    places = {(down, right): (bm, bn) for down, bm in enumerate(rows) for right, bn in enumerate(columns)}
    found = {place: search.tiles[tile] for place, tile in places.items() if tile in search.tiles}
    grid = np.full((len(rows), len(columns)), np.nan)
    for place, best in found.items():
        grid[place] = best.ratio
    # seaborn's heatmap draws the same, but it draws the whole figure for each panel to see whether labels overlap.
    cells = axes.pcolormesh(
        grid, cmap="cividis", vmin=lowest * search.top, vmax=search.top, linewidths=0.8, edgecolor="white"
    )
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0), xlabel="", ylabel="")
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(map(str, columns)))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(map(str, rows)), va="center")
    colours = cells.to_rgba(np.array([best.ratio for best in found.values()]))
    for ((down, right), best), colour in zip(found.items(), colours, strict=True):
        hints = [name.format(best.params[hint]) for hint, name in HINTS.items() if best.params.get(hint, 0) > 1]
        axes.text(
            right + 0.5,
            down + 0.5,
            "\n".join([f"{best.ratio:.2f}", "" if page.narrow else " ".join(hints)]).strip(),
            # Cells keep their colours where the page is dark: their text must not follow the paper's.
            color=ON_LIGHT if luminance(colour) > 0.18 else ON_DARK,
            ha="center",
            va="center",
            fontsize=page.pick(7.5, page.letters),
        )
    name = search.name
    if page.narrow and len(name) > NAME:
        cut = name.rindex("_", 0, NAME)
        name = f"{name[:cut]}\n{name[cut:]}"
    axes.set_title(name, loc="left", color=INK)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2); from 0.18 on, black stands out better than white."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def caption(searches: Sequence[Search]) -> str:
    if not searches:
        return "No search was recorded for this family."
    sizes = " and ".join(str(size) for size in sorted({search.size for search in searches}))
    return (
        "Best speed relative to cuBLAS per tile, its rows down and its columns across, warm cache, at "
        f"{sizes}. Every candidate was timed briefly, the fastest ones again for longer. Below a value: the best "
        "candidate's hints to the compiler, if it has any: worker warps (w), CTAs per cluster (cta), blocks per SM "
        "(occ). Lighter cells are closer to the best of their panel. An empty cell has no candidate: its accumulators "
        "or its stages do not fit."
    )


def title(searches: Sequence[Search]) -> str:
    """The finding: whether one tile is the best of all searches."""
    if not searches:
        return "Best speed per tile size: not searched"
    wins = Counter(search.fastest for search in searches)
    (rows, columns), count = wins.most_common(1)[0]
    if count == len(searches):
        return f"Tiles of {rows} x {columns} are the fastest in every search"
    return f"No tile is best for all: {rows} x {columns} wins {count} of {len(searches)} searches"


def alt(searches: Sequence[Search]) -> str:
    if not searches:
        return "Heat map of speed relative to cuBLAS by tile, without data: no search was recorded."
    best = max(searches, key=lambda search: search.top)
    winners = {search.fastest for search in searches}
    return finding(
        f"The best ratio to cuBLAS is {format_number(best.top)}, of {best.name} in tiles of {best.fastest[0]} x "
        f"{best.fastest[1]}.",
        f"The {len(searches)} searches end at {len(winners)} different tiles." if len(searches) > 1 else "",
    )


def table(searches: Sequence[Search]) -> list[dict[str, Any]]:
    """A line per tile."""
    return [
        {
            "kernel": search.tunable.id,
            "tile": f"{bm} x {bn}",
            "ratio": best.ratio,
            "candidates": best.candidates,
            "constants": " ".join(f"{name}={value}" for name, value in best.params.items()),
        }
        for search in searches
        for (bm, bn), best in sorted(search.tiles.items())
    ]
