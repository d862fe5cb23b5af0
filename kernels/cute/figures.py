"""CuTe's layout of a tile as the library evaluates it (``layouts/layouts.csv``), and the stages of each rung."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
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

SHADES = ("#eabc77", "#aab8c0", "#ecfdc4", "#d8b3f5", "#ebe7ff", "#ffff6b", "#e7e7de", "#daab9f")
"""Colours of cells, light enough for `ON_CELL` on a dark page too, and as far apart as those of `style.SERIES`."""
ON_CELL = "#141414"


def read(path: Path = FILE) -> pd.DataFrame:
    """The elements of the tile by row and column, with their offset (`value`).

    Raises:
        UserError: the file is not one that the program beside it prints.
    """
    columns = ["value", "row", "column"]
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    try:
        return pd.read_csv(path)[columns].astype(int)
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} holds no layouts ({type(error).__name__}: {error}); print it again.") from None


def tile_layout(_inputs: Inputs) -> Drawing:
    """Two atoms of a tile in shared memory: where each 16-byte chunk lies."""
    cells = read().query("column % @CHUNK == 0")
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
    return Drawing(f"Swizzled, every row of a tile {words}", caption, alt, table, lambda page: _paint(cells, page))


def _paint(cells: pd.DataFrame, page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(min(page.width, 5.4), page.pick(4.6, 3.4)))
    if cells.empty:
        empty(axes, "no layouts")
        return figure
    shade, text = (cells.pivot(index="row", columns="column", values=name) for name in ("shade", "text"))
    look: dict[str, Any] = {"cbar": False, "linewidths": 0.3, "linecolor": PUBLISHED, "vmin": 0, "vmax": SLOTS - 1}
    letters = {"color": ON_CELL, "fontsize": page.letters}
    sns.heatmap(shade, annot=text, fmt="", cmap=ListedColormap(SHADES), annot_kws=letters, ax=axes, **look)
    axes.set(xlabel="chunk of 8 elements along K", ylabel="row")
    axes.tick_params(rotation=0)
    return finished(figure, page)


TILES = 6
"""Tiles of K that the pipeline shows."""


def _uses(stages: int) -> pd.DataFrame:
    """The uses of each stage of a ring, by the copy or the multiplication of a tile, from one step to another.

    A kernel multiplies tile t from stage t modulo `stages`, and asks for tile t + stages - 1 when it begins with tile
    t: a copy has `stages` - 1 steps, and the wait before a step is for the oldest copy alone. With one stage a step
    copies and then multiplies, one after the other.
    """
    frame = pd.DataFrame({"tile": range(TILES)})
    begin = 2 * frame["tile"] + 1 if stages == 1 else frame["tile"]
    frame["stage"] = frame["tile"] % stages
    copied = frame.assign(what="copied", begin=begin - max(1, stages - 1), to=begin)
    multiplied = frame.assign(what="multiplied", begin=begin, to=begin + 1)
    return pd.concat([copied, multiplied]).sort_values(["tile", "what"]).rename(columns={"begin": "from"})


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
    columns = ["kernel", "stage", "tile", "what", "from", "to"]
    uses = [_uses(stages).assign(kernel=kernel.id)[columns] for stages, kernel in kernels.items()]
    table = pd.concat(uses).to_dict("records") if uses else []
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
        for use in _uses(stages).to_dict("records"):
            is_copy, begin, end = use["what"] == "copied", use["from"], use["to"]
            look = {"facecolor": WHITE if is_copy else SERIES[0], "hatch": "////" if is_copy else None}
            axes.barh(use["stage"], end - begin, 0.72, begin, edgecolor=SERIES[0], linewidth=0.9, **look)
            text: dict[str, Any] = {"color": INK if is_copy else WHITE, "ha": "center", "va": "center"}
            patch = {"facecolor": WHITE, "edgecolor": "none", "pad": 1.0} if is_copy else None
            axes.text((begin + end) / 2, use["stage"], str(use["tile"]), bbox=patch, **text)
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.set(ylim=(stages - 0.5, -0.5), xlim=(-2.2, 2 * TILES + 0.2 if stages == 1 else TILES + 0.2))
        axes.grid(False)
        axes.set_title(f"{kernel.rung} {kernel.title}")
    grid.flat[-1].set_xlabel("step")
    return finished(figure, page)
