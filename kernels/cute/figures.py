"""CuTe's layouts, as the library evaluates them, and the stages of the article's rungs.

The layouts are those of ``layouts/layouts.csv``, the output of the program beside it: of ``tile`` the offset of each
element, of other layouts the thread that holds an element, and as which of its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import empty, finished
from gemmrepro.figures.style import INK, PUBLISHED, SERIES, Drawing, Page
from gemmrepro.figures.style import PAPER as WHITE
from gemmrepro.registry import Kernel

FILE = Path(__file__).parent / "layouts" / "layouts.csv"

CHUNK = 8
"""Elements of 16 bytes, which one copy moves and one row of ldmatrix reads."""
SLOTS = 8
"""Chunks of a line of shared memory of 128 bytes, all 32 banks."""
WARP = 32

SHADES = ("#eabc77", "#aab8c0", "#ecfdc4", "#d8b3f5", "#ebe7ff", "#ffff6b", "#e7e7de", "#daab9f")
"""Colours of cells, light enough for `ON_CELL` on a dark page too, and as far apart as those of `style.SERIES`."""
ON_CELL = "#141414"


@dataclass(frozen=True)
class Grid:
    """A panel: `cells` has the text of each (row, column), and its shade, an index into SHADES."""

    title: str
    cells: pd.DataFrame
    label: str


def read(path: Path = FILE) -> pd.DataFrame:
    """The elements of each layout: place, and the thread and value that hold it, or its offset (`value`).

    Raises:
        UserError: the file is not one that the program beside it prints.
    """
    columns = ["layout", "thread", "value", "row", "column"]
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    try:
        found = pd.read_csv(path)[columns]
        return found.fillna({"thread": 0}).astype(dict.fromkeys(columns[1:], int))
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} holds no layouts ({type(error).__name__}: {error}); print it again.") from None


def tile_layout(_inputs: Inputs) -> Drawing:
    """Two atoms of a tile in shared memory: where each 16-byte chunk lies."""
    cells = read().query("layout == 'tile' and column % @CHUNK == 0")
    cells = cells.assign(column=cells["column"] // CHUNK, shade=cells["value"] // CHUNK % SLOTS)
    cells = cells.assign(text=cells["value"].astype(str))
    spread, rows = int((cells.groupby("row")["shade"].nunique() == SLOTS).sum()), cells["row"].nunique()
    free = spread == rows > 0
    caption = (
        "The swizzled layout of a tile in shared memory: in each 16-byte chunk the offset of its first element; the "
        "colour is the eighth of the banks that it lies in. A row of threads copies across, ldmatrix reads down: eight "
        "colours each. Evaluated by CuTe."
    )
    wide = cells.pivot(index="row", columns="column", values="text")
    table = [{"row": row, **{f"chunk {c}": text for c, text in texts.items()}} for row, texts in wide.iterrows()]
    alt = (
        f"In {spread} of {rows} rows of a tile the eight chunks of 16 bytes lie in eight different eighths of the "
        "banks, so that a row is copied without bank conflicts."
    )
    words = "is copied without bank conflicts" if free else f"is without bank conflicts in {spread} of {rows}"
    grid = Grid("A tile of A or B, its first 16 rows", cells, "chunk of 8 elements along K")
    return _drawing(f"Swizzled, every row of a tile {words}", caption, alt, table, [grid], (5.4, 4.6))


def copy_layout(_inputs: Inputs) -> Drawing:
    """A tile of A on its way into registers by ldmatrix."""
    grids = [
        _held("Whose address is read", "ldmatrix: source", "K"),
        _held("Who gets it", "ldmatrix: destination", "K"),
    ]
    named, got = (_most(f"ldmatrix: {end}") for end in ("source", "destination"))
    caption = (
        "A 32 x 16 tile of A by ldmatrix.x4: left, the lane whose address names a row of 8 elements; right, the lane "
        "that receives an element. The colour is the warp. Evaluated by CuTe."
    )
    alt = (
        f"ldmatrix of a 32 x 16 tile: a lane names rows with {named} elements in all and receives {got}, most of them "
        "from rows that other lanes name."
    )
    title = "With ldmatrix a lane receives elements of rows that other lanes name"
    return _drawing(title, caption, alt, _threads("ldmatrix"), grids, (7.6, 6.4))


def mma_layout(_inputs: Inputs) -> Drawing:
    """The operands of the tiled mma."""
    grids = [_held(name, f"mma: {name}", label, named=16) for name, label in (("A", "K"), ("B", "K"), ("C", "N"))]
    caption = (
        "Which lane holds which element of 2 x 2 warps of m16n8k16: A (rows along M), B (rows along N) and the sums. "
        "The colour is the warp, the first of those that hold the same element. Evaluated by CuTe."
    )
    held = [_most(f"mma: {name}") for name in "ABC"]
    alt = "Of the tiled mma a lane holds {} elements of A, {} of B and {} of C, in pairs of columns.".format(*held)
    title = "A lane of the tiled mma holds {} elements of A, {} of B, {} of C".format(*held)
    return _drawing(title, caption, alt, _threads("mma"), grids, (7.6, 6.6), (1, 1, 2))


def _most(layout: str) -> int:
    """The elements of the thread with most."""
    return int(read().query("layout == @layout")["thread"].value_counts().max() or 0)


def _held(title: str, layout: str, label: str, named: int = 1 << 20) -> Grid:
    """A panel that names the first thread of each element, of those in its first `named` rows and columns."""
    cells = read().query("layout == @layout").drop_duplicates(["row", "column"])
    text = (cells["thread"] % WARP).astype(str).where(cells[["row", "column"]].max(axis=1) < named, "")
    return Grid(title, cells.assign(shade=cells["thread"] // WARP, text=text), label)


def _threads(prefix: str) -> list[dict[str, Any]]:
    """Of each layout, the elements (row, column) of a few threads."""
    cells = read()
    cells["element"] = [f"({row},{column})" for row, column in zip(cells["row"], cells["column"], strict=True)]
    return [
        {"layout": name, "thread": thread, "elements": " ".join(own.loc[own["thread"] == thread, "element"])}
        for name, own in cells.groupby("layout", sort=False)
        if str(name).startswith(prefix)
        for thread in (0, 1, WARP)
    ]


def _drawing(
    title: str,
    caption: str,
    alt: str,
    table: list[dict[str, Any]],
    grids: Sequence[Grid],
    size: tuple[float, float],
    widths: Sequence[int] = (),
) -> Drawing:
    return Drawing(title, caption, alt, table, lambda page: _grids(grids, size, widths, page))


def _grids(grids: Sequence[Grid], size: tuple[float, float], widths: Sequence[int], page: Page) -> Figure:
    """The panels beside each other or, in the narrow figure, one below the other."""
    rows = [int(grid.cells["row"].max()) + 1 for grid in grids]
    narrow: dict[str, Any] = {"nrows": len(grids), "height_ratios": rows}
    wide: dict[str, Any] = {"ncols": len(grids), "width_ratios": widths or None}
    inches = page.pick(size, (page.width, sum(0.145 * count + 0.75 for count in rows)))
    figure, axes_of = plt.subplots(figsize=inches, squeeze=False, **page.pick(wide, narrow))
    for axes, grid in zip(axes_of.flat, grids, strict=True):
        _paint(axes, grid, page)
    return finished(figure, page)


def runs(cells: pd.DataFrame, *alike: str) -> pd.DataFrame:
    """Runs of neighbouring cells of a row that are alike: row, first column, `width`, and what is alike."""
    cells = cells.sort_values(["row", "column"])
    new = (cells[["row", *alike]] != cells[["row", *alike]].shift()).any(axis=1) | cells["column"].diff().ne(1)
    by_run = cells.groupby(new.cumsum().rename("run"))
    return by_run.first().assign(width=by_run.size())


def _paint(axes: Axes, grid: Grid, page: Page) -> None:
    rows, columns = (int(grid.cells[axis].max()) + 1 for axis in ("row", "column"))
    for shade, own in runs(grid.cells, "shade").groupby("shade"):
        colour = SHADES[int(str(shade)) % len(SHADES)]
        axes.barh(own["row"] + 0.5, own["width"], 1, own["column"], color=colour, linewidth=0)
    held = runs(grid.cells, "thread", "text", *(["value"] if columns <= SLOTS else []))
    upright = runs(pd.DataFrame({"row": held["column"], "column": held["row"]}))
    axes.hlines(range(rows + 1), 0, columns, color=PUBLISHED, linewidth=0.3, zorder=2)
    ends = upright["column"], upright["column"] + upright["width"]
    axes.vlines(upright["row"], *ends, color=PUBLISHED, linewidth=0.3, zorder=2)
    letters = page.pick(9, page.letters)
    for one in held[held["text"] != ""].to_dict("records"):
        middle = one["column"] + one["width"] / 2, one["row"] + 0.5
        axes.text(*middle, one["text"], ha="center", va="center", fontsize=letters, color=ON_CELL)
    axes.set(xlim=(0, columns), ylim=(rows, 0), xlabel=grid.label)
    across, down = (1 if columns <= SLOTS else 8), (1 if rows <= 16 else 8)
    axes.set_xticks([x + 0.5 for x in range(0, columns, across)], list(map(str, range(0, columns, across))))
    axes.set_yticks([y + 0.5 for y in range(0, rows, down)], list(map(str, range(0, rows, down))))
    axes.set_title(grid.title)
    axes.grid(False)


TILES = 6
"""Tiles of K that the pipeline shows."""


@dataclass(frozen=True)
class Use:
    """A stage in use: by the copy of `tile`, or by its multiplication, from step `begin` to step `end`."""

    stage: int
    tile: int
    begin: int
    end: int
    copied: bool


def _uses(stages: int) -> Iterator[Use]:
    """What happens in each stage of a ring.

    A kernel multiplies tile t from stage t modulo `stages`, and asks for tile t + stages - 1 when it begins with tile
    t: a copy has `stages` - 1 steps, and the wait before a step is for the oldest copy alone. With one stage a step
    copies and then multiplies, one after the other.
    """
    for tile in range(TILES):
        step = 2 * tile + 1 if stages == 1 else tile
        yield Use(tile % stages, tile, step - max(1, stages - 1), step, True)
        yield Use(tile % stages, tile, step, step + 1, False)


def pipeline(inputs: Inputs) -> Drawing:
    """A panel for each number of stages of an article's kernels: a bar for each copy and multiplication, by steps."""
    found: dict[int, Kernel] = {}
    for kernel in registry.kernels(inputs.family):
        if kernel.story.published_system and kernel.problem.operation.matrix_product:
            found.setdefault(kernel.params.get("stages", 1), kernel)
    kernels = dict(sorted(found.items()))
    caption = (
        "What the stages of shared memory hold, step by step: the copy of a tile (hatched, from its request to the "
        "wait for it) and its multiplication (filled). With one stage the tensor cores rest during a copy."
    )
    table = [
        {"kernel": kernel.id, "stage": use.stage, "tile": use.tile, "what": "copied" if use.copied else "multiplied"}
        | {"from": use.begin, "to": use.end}
        for stages, kernel in kernels.items()
        for use in _uses(stages)
    ]
    title, alt = "Copies and multiplications by stage: no kernel of an article", "Bars without data."
    if kernels:
        most = max(kernels)
        steps = "no step" if most == 1 else f"{most - 1} step{'s' if most > 2 else ''}"
        title = f"With {most} stages a copy has {steps} of multiplication to hide behind"
        words = ", ".join(f"{kernel.id} {stages}" for stages, kernel in kernels.items())
        alt = f"Bars of copies and multiplications by stage and step; stages: {words}."
    return Drawing(title, caption, alt, table, lambda page: _paint_pipeline(kernels, page))


def _paint_pipeline(kernels: dict[int, Kernel], page: Page) -> Figure:
    heights = [1 + stages for stages in kernels] or [1]
    size = (page.width, 0.42 * sum(heights) + 1.0)
    figure, grid = plt.subplots(len(heights), 1, figsize=size, squeeze=False, height_ratios=heights)
    if not kernels:
        empty(grid[0, 0], "no kernel of an article")
    for axes, (stages, kernel) in zip(grid.flat, kernels.items(), strict=False):
        for use in _uses(stages):
            look = {"facecolor": WHITE if use.copied else SERIES[0], "hatch": "////" if use.copied else None}
            axes.barh(use.stage, use.end - use.begin, 0.72, use.begin, edgecolor=SERIES[0], linewidth=0.9, **look)
            text: dict[str, Any] = {"color": INK if use.copied else WHITE, "ha": "center", "va": "center"}
            patch = {"facecolor": WHITE, "edgecolor": "none", "pad": 1.0} if use.copied else None
            axes.text((use.begin + use.end) / 2, use.stage, str(use.tile), bbox=patch, **text)
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.set(ylim=(stages - 0.5, -0.5), xlim=(-2.2, 2 * TILES + 0.2 if stages == 1 else TILES + 0.2))
        axes.grid(False)
        axes.set_title(f"{kernel.rung} {kernel.title}")
    grid.flat[-1].set_xlabel("step")
    return finished(figure, page)
