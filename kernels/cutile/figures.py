"""cuTile against cuBLAS by type and size; and the tiles that a search timed."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from seaborn.utils import relative_luminance

from gemmrepro import registry
from gemmrepro.core.text import format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, empty, finished, marks
from gemmrepro.figures.style import DASHES, INK, MARKERS, SERIES, Drawing, Page, finding, origin
from gemmrepro.registry import Tunable

PAPER = {"types": ()}
TYPES = ("fp16", "tf32", "fp64")
"""The types of which the article prints cuBLAS too."""


def types(inputs: Inputs) -> Drawing:
    """A line per type: the article's program over cuBLAS, measured over published, by size."""
    own = [mark for mark in inputs.marks("cutile", "shares") if mark.panel in TYPES]
    table: list[dict[str, Any]] = []
    for dtype, size in dict.fromkeys((mark.panel, int(float(mark.x))) for mark in own):
        by = {mark.series: mark for mark in own if (mark.panel, int(float(mark.x))) == (dtype, size)}
        sides = [by[name] for name in ("cuTile", "cuBLAS") if name in by]
        there = [mark.printed[0].value for mark in sides if mark.printed]
        here = [mark.measured.value for mark in sides if mark.measured]
        if len(there) == len(here) == 2:
            ratios = there[0] / there[1], here[0] / here[1]
            table.append({"type": dtype, "size": size, "published": ratios[0], "measured": ratios[1]})
    lines = [{"series": one["type"], "x": one["size"], "y": one["measured"] / one["published"]} for one in table]
    caption = (
        "The ratio of the article's cuTile program to cuBLAS in the same type, warm: as timed in turn here, over the "
        f"quotient of the two throughputs that the article prints for a B200. {origin(inputs.measured['cutile'])}"
    )
    title, alt = (
        "cuTile's ratio to cuBLAS, here over print: not measured",
        "Ratios of cuTile to cuBLAS, of none is both known.",
    )
    if table:
        title = "cuTile's ratio to cuBLAS, here over print, by type and size"
        far = {one["type"]: line["y"] for one, line in zip(table, lines, strict=True)}
        if max(far.values()) < 1:
            title = "At the largest size cuTile falls short of its printed ratio to cuBLAS in every type"
        ends = listed([f"{dtype} {format_number(over)}" for dtype, over in far.items()])
        alt = finding(f"cuTile's ratio to cuBLAS at each type's largest size, measured over published: {ends}.")
    found = [mark.measured for mark in own if mark.measured]
    keys = list(dict.fromkeys(key for each in found for key in each.keys))
    looks = {dtype: Look(dtype, SERIES[i], MARKERS[i], dash=DASHES[i]) for i, dtype in enumerate(TYPES)}
    panels, frame = {"": Panel("", "ratio here over ratio in print", log=True, line=1.0)}, marks(lines)
    paint = lambda page: curves(frame, looks, panels, page, x_label="M = N = K", columns=1)  # noqa: E731
    return Drawing(title, caption, alt, table, paint, keys, any(each.stale for each in found))


ON_DARK, ON_LIGHT, EVEN = "#fefefe", "#010101", 0.18
"""Text on a cell, no colours of `style.COLOURS`, which the report replaces; on that luminance both can be read."""

HINTS = {"num_worker_warps": "{} w", "num_ctas": "{} cta", "occupancy": "occ {}"}
"""How a cell names the hints that its best candidate had, where they are not the compiler's own choice."""


@dataclass(frozen=True)
class Search:
    """What was timed of a tunable, at which size: of each tile (`bm`, `bn`) the best candidate, and how many."""

    tunable: Tunable
    size: int
    tiles: pd.DataFrame

    @property
    def name(self) -> str:
        return self.tunable.id.split(".", 1)[1].removesuffix("_tuned")

    @property
    def best(self) -> pd.Series:
        """The fastest candidate."""
        return self.tiles.loc[self.tiles["ratio"].idxmax()]


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
        timed = [{"ratio": float(ratio), **own} for ratio, own in candidates if ratio and tunable.holds(own)]
    except (StopIteration, IndexError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is no table of candidates ({type(error).__name__}: {error}); restore it, or run tune again."
        ) from None
    if not timed:
        return None
    by_tile = pd.DataFrame(timed).sort_values("ratio", kind="stable").groupby(["bm", "bn"], sort=True)
    best = by_tile.tail(1).sort_values(["bm", "bn"]).reset_index(drop=True)
    return Search(tunable, size, best.assign(candidates=by_tile.size().to_numpy()))


def tiles(inputs: Inputs) -> Drawing:
    """A panel per tunable that has tiles and a table: rows of a tile down, columns across."""
    tiled = [tunable for tunable in registry.tunables(inputs.family) if {"bm", "bn"} <= set(tunable.space)]
    searches = [search for tunable in tiled if (search := read(tunable))]
    table = [
        {
            "kernel": search.tunable.id,
            "tile": f"{one['bm']} x {one['bn']}",
            "ratio": one["ratio"],
            "candidates": one["candidates"],
            "constants": " ".join(f"{name}={one[name]}" for name in search.tunable.space),
        }
        for search in searches
        for one in search.tiles.to_dict("records")
    ]
    return Drawing(*_tiles_words(searches), table, lambda page: _paint_tiles(searches, page))


def _paint_tiles(searches: Sequence[Search], page: Page) -> Figure:
    across = page.pick(3, 2)
    down = max(1, math.ceil(len(searches) / across))
    size = (page.width, page.pick(2.3, 1.6) * down + 0.5)
    figure, grid = plt.subplots(down, across, figsize=size, squeeze=False)
    # Every panel has its own scale, because cuBLAS, the denominator, is slow in some types.
    lowest = min((search.tiles["ratio"].min() / search.best["ratio"] for search in searches), default=0.0)
    for axes, search in zip(grid.flat, searches, strict=False):
        rows, columns = search.tunable.space["bm"], search.tunable.space["bn"]
        cells = search.tiles.pivot(index="bm", columns="bn", values="ratio").reindex(index=rows, columns=columns)
        text = pd.DataFrame("", cells.index, cells.columns)
        for one in search.tiles.to_dict("records"):
            told = [(hint, words) for hint, words in HINTS.items() if one.get(hint, 0) > 1 and not page.narrow]
            hints = [words.format(one[hint]) for hint, words in told]
            text.loc[one["bm"], one["bn"]] = "\n".join([f"{one['ratio']:.2f}", " ".join(hints)]).strip()
        top, letters = search.best["ratio"], {"fontsize": page.pick(9, page.letters)}
        look: dict[str, Any] = {"cmap": "cividis", "vmin": lowest * top, "vmax": top, "cbar": False, "linewidths": 0.8}
        sns.heatmap(cells, annot=text, fmt="", annot_kws=letters, ax=axes, **look)
        mesh = axes.collections[0]
        off_of = np.ma.getmaskarray(mesh.get_array())
        colours = [c for c, off in zip(mesh.get_facecolors(), off_of.flat, strict=True) if not off]
        for written, colour in zip(axes.texts, colours, strict=True):
            # Cells keep their colours where the page is dark: so must their text.
            written.set_color(ON_LIGHT if relative_luminance(colour) > EVEN else ON_DARK)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(rotation=0)
        name = search.name
        cut = name.rindex("_", 0, 14) if page.narrow and len(name) > 14 else len(name)
        axes.set_title(f"{name[:cut]}\n{name[cut:]}".strip(), loc="left", color=INK)
    for axes in grid.flat[len(searches) :]:
        axes.set_axis_off()
    if not searches:
        empty(grid.flat[0], "not searched")
    else:
        figure.supxlabel("columns of the tile", fontsize=page.letters)
        figure.supylabel("rows of the tile", fontsize=page.letters)
    return finished(figure, page)


def _tiles_words(searches: Sequence[Search]) -> tuple[str, str, str]:
    """Title, caption and alternative text: whether one tile is the best of all searches."""
    if not searches:
        alt = "Heat map of speed relative to cuBLAS by tile, without data: no search was recorded."
        return "Best speed per tile size: not searched", "No search was recorded for this family.", alt
    at = " and ".join(str(size) for size in sorted({search.size for search in searches}))
    caption = (
        "Best speed relative to cuBLAS per tile, its rows down and its columns across, warm cache, at "
        f"{at}. Every candidate was timed briefly, the fastest ones again for longer. Below a value: the best "
        "candidate's hints to the compiler, if it has any: worker warps (w), CTAs per cluster (cta), blocks per SM "
        "(occ). Lighter cells are closer to the best of their panel. An empty cell has no candidate: its accumulators "
        "or its stages do not fit."
    )
    wins = Counter(f"{search.best['bm']:.0f} x {search.best['bn']:.0f}" for search in searches)
    tile, count = wins.most_common(1)[0]
    title = f"No tile is best for all: {tile} wins {count} of {len(searches)} searches"
    if count == len(searches):
        title = f"Tiles of {tile} are the fastest in every search"
    best = max(searches, key=lambda search: float(search.best["ratio"]))
    alt = finding(
        f"The best ratio to cuBLAS is {format_number(best.best['ratio'])}, of {best.name} in tiles of "
        f"{best.best['bm']:.0f} x {best.best['bn']:.0f}.",
        f"The {len(searches)} searches end at {len(wins)} different tiles." if len(searches) > 1 else "",
    )
    return title, caption, alt
