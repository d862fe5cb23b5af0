"""The figure ``tiles``: what a search found of each tile of C, as a heat map a tuned kernel.

It rests on the table of all candidates that `gemmrepro.tune install` keeps beside the winners.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.errors import UserError
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.figures.style import INK, Drawing, empty
from gemmrepro.registry import Tunable

COLUMNS = 3

ON_DARK, ON_LIGHT = "#fdfdfd", "#141414"
"""Text on a cell; no colours of `drawing.THEME`, which the report exchanges."""

HINTS = {"num_worker_warps": "{} w", "num_ctas": "{} cta", "occupancy": "occ {}"}
"""How a cell names the hints that its best candidate had, where they are not the compiler's own choice."""


@dataclass(frozen=True)
class Best:
    """The fastest candidate of a tile: ratio to the baseline at the size where all were timed, and its constants."""

    ratio: float
    params: Mapping[str, int]
    candidates: int


def read(tunable: Tunable) -> tuple[int, dict[tuple[int, int], Best]]:
    """The size at which all candidates were timed, and the best of each tile (rows, columns); (0, {}) without a table.

    Raises:
        UserError: the table is not one that a search wrote.
    """
    path = registry.candidates_path(tunable.id)
    if not path.is_file():
        return 0, {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        size = next(int(name.removeprefix("ratio_")) for name in rows[0] if name.startswith("ratio_"))
        every = [(row[f"ratio_{size}"], {key: int(row[key]) for key in tunable.space}) for row in rows]
        timed = [(float(ratio), params) for ratio, params in every if ratio and tunable.holds(params)]
    except (StopIteration, IndexError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is no table of candidates ({type(error).__name__}: {error}); restore it, or run tune again."
        ) from None
    best: dict[tuple[int, int], Best] = {}
    for ratio, params in sorted(timed, key=lambda each: each[0]):  # the last of a tile is its best
        tile = params["bm"], params["bn"]
        best[tile] = Best(ratio, params, best[tile].candidates + 1 if tile in best else 1)
    return size, best


def draw(measured: Measurements) -> Drawing:
    """A panel a tunable of the family that has tiles `bm` x `bn` and a table: rows of a tile down, columns across."""
    searched = [one for one in registry.tunables(measured.family) if {"bm", "bn"} <= set(one.space)]
    found = {one.id: (one, *read(one)) for one in searched}
    found = {name: each for name, each in found.items() if each[2]}
    down = max(1, math.ceil(len(found) / COLUMNS))
    figure, panels = plt.subplots(down, COLUMNS, figsize=(7.6, 2.3 * down + 0.5), squeeze=False)
    drawing = Drawing(figure, "Tiles that a search tried, and how fast each is")
    # A type's own best is its brightest: cuBLAS, which ratios are to, is itself slow in some.
    shares = [each.ratio / _top(tiles) for _, _, tiles in found.values() for each in tiles.values()]
    lowest = min(shares, default=0.0)
    sizes: set[int] = set()
    winners = []
    for axes, (tunable, size, tiles) in zip(panels.flat, found.values(), strict=False):
        sizes.add(size)
        name = tunable.id.split(".", 1)[1].removesuffix("_tuned")
        _panel(axes, name, tunable, tiles, lowest)
        for (bm, bn), best in sorted(tiles.items()):
            cells = {"kernel": tunable.id, "tile": f"{bm} x {bn}", "ratio": best.ratio, "candidates": best.candidates}
            drawing.table.append({**cells, "constants": _text(best.params)})
        top = max(tiles, key=lambda tile: tiles[tile].ratio)
        winners.append(f"{name} {top[0]} x {top[1]} at {format_number(tiles[top].ratio)}")
    for axes in panels.flat[len(found) :]:
        axes.set_axis_off()
    if not found:
        empty(panels.flat[0], "not searched")
    else:
        figure.supxlabel("columns of the tile", fontsize=10, color=INK)
        figure.supylabel("rows of the tile", fontsize=10, color=INK)
    figure.tight_layout(w_pad=1.0, h_pad=1.2)
    where = f"at {' and '.join(map(str, sorted(sizes)))}" if sizes else ""
    drawing.caption = (
        "Speed relative to cuBLAS of the best candidate of each tile, rows of the tile down and columns across, warm "
        f"cache, {where}: one brief look a candidate, longer ones for the fastest. Below a value stand the compiler's "
        "hints that made it, where they are not its own choice: worker warps (w), CTAs a block (cta), blocks a "
        "multiprocessor (occ). The lighter a cell, the nearer it is to the best of its panel. An empty cell has no "
        "candidate: its sums or its stages do not fit."
        if found
        else "No search was recorded for this family."
    )
    drawing.alt = (
        f"Heat maps of speed relative to cuBLAS by tile. The fastest: {'; '.join(winners)}."
        if winners
        else "Heat map without data."
    )
    return drawing


def _top(tiles: Mapping[tuple[int, int], Best]) -> float:
    return max(each.ratio for each in tiles.values())


def _text(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2); from 0.18 on, black stands out better than white."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _panel(axes: Axes, name: str, tunable: Tunable, tiles: Mapping[tuple[int, int], Best], lowest: float) -> None:
    """One heat map; colours run from `lowest` of the panel's best to that best."""
    rows, columns = tunable.space["bm"], tunable.space["bn"]
    grid = np.full((len(rows), len(columns)), np.nan)
    text = np.full(grid.shape, "", dtype=object)
    for (bm, bn), best in tiles.items():
        place = rows.index(bm), columns.index(bn)
        said = [how.format(best.params[hint]) for hint, how in HINTS.items() if best.params.get(hint, 0) > 1]
        grid[place], text[place] = best.ratio, "\n".join([f"{best.ratio:.2f}", " ".join(said)]).strip()
    sns.heatmap(
        grid,
        ax=axes,
        annot=text,
        fmt="",
        cmap="cividis",
        vmin=lowest * _top(tiles),
        vmax=_top(tiles),
        cbar=False,
        linewidths=0.8,
        annot_kws={"fontsize": 7.5},
        xticklabels=columns,
        yticklabels=rows,
    )
    # Cells keep their colours where the page is dark: their text must not follow the paper's.
    cells = axes.collections[0]
    colours = cells.to_rgba(np.asarray(cells.get_array()).ravel())
    for each in axes.texts:
        x, y = each.get_position()
        each.set_color(ON_LIGHT if _luminance(colours[int(y) * len(columns) + int(x)]) > 0.18 else ON_DARK)
    axes.set_title(name, loc="left", color=INK)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
