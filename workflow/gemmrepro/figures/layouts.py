"""The figures ``tile_layout``, ``copy_layout`` and ``mma_layout``: a family's layouts, as its library evaluates them.

They draw ``kernels/<family>/layouts/layouts.csv``, the output of the program beside it: of ``tile`` the offset of each
element, of other layouts the thread that holds an element, and as which of its values.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.figures.style import INK, PUBLISHED, Drawing, empty
from gemmrepro.figures.widths import Page, both

FILE = Path("layouts") / "layouts.csv"

CHUNK = 8
"""Elements of 16 bytes, which one copy moves and one row of ldmatrix reads."""
SLOTS = 8
"""Chunks of a line of shared memory of 128 bytes, all 32 banks."""
WARP = 32

SHADES = ("#eabc77", "#aab8c0", "#ecfdc4", "#d8b3f5", "#ebe7ff", "#ffff6b", "#e7e7de", "#daab9f")
"""Colours of cells, light enough for `ON_CELL` on a dark page too, and as far apart as those of `style.SERIES`."""
ON_CELL = "#141414"


@dataclass(frozen=True)
class Cell:
    """An element of a layout: its place, and the thread and value that hold it, or its offset (`value`)."""

    thread: int
    value: int
    row: int
    column: int


@dataclass(frozen=True)
class Panel:
    """One grid: `text` in each cell, coloured by `shade`, an index into SHADES; both by (row, column)."""

    title: str
    text: Mapping[tuple[int, int], str]
    shade: Mapping[tuple[int, int], int]
    columns_label: str


def path_of(family: str) -> Path:
    """Where a family's layouts are; the file need not be there."""
    return paths.KERNELS_DIR / family / FILE


def read(family: str) -> dict[str, list[Cell]]:
    """The cells of each layout by its name; empty without a file.

    Raises:
        UserError: the file is not one that the program beside it prints.
    """
    path = path_of(family)
    if not path.is_file():
        return {}
    found: dict[str, list[Cell]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            try:
                thread = int(line["thread"] or 0)
                cell = Cell(thread, int(line["value"]), int(line["row"]), int(line["column"]))
                found.setdefault(line["layout"], []).append(cell)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{path} holds no layouts ({type(error).__name__}: {error}); print it again.") from None
    return found


def tile(family: str) -> Drawing:
    """Two atoms of a tile in shared memory: where each 16-byte chunk lies."""
    cells = [cell for cell in read(family).get("tile", ()) if cell.column % CHUNK == 0]
    text = {(cell.row, cell.column // CHUNK): str(cell.value) for cell in cells}
    slots = {(cell.row, cell.column // CHUNK): cell.value // CHUNK % SLOTS for cell in cells}
    panel = Panel("A tile of A or B, its first 16 rows", text, slots, "chunk of 8 elements along K")
    caption = (
        "The swizzled layout of a tile in shared memory: in each 16-byte chunk, the offset of its first element; the "
        "colour says which eighth of the 128 bytes of all banks it lies in. The eight chunks that one row of threads "
        "copies, across, and the eight that ldmatrix reads at once, down, have eight colours each, so that neither has "
        "bank conflicts; but the former lie in eight lines of 128 bytes. Evaluated by CuTe."
    )
    rows = sorted({cell.row for cell in cells})
    table = [{"row": row, **{f"chunk {c}": text[row, c] for c in range(SLOTS) if (row, c) in text}} for row in rows]
    spread = sum(len({slots.get((row, c)) for c in range(SLOTS)}) == SLOTS for row in rows)
    alt = (
        f"In {spread} of {len(rows)} rows of a tile the eight chunks of 16 bytes lie in eight different eighths of the "
        "banks, so that a row is copied without bank conflicts."
    )
    free = spread == len(rows) > 0
    words = "is copied without bank conflicts" if free else f"is without bank conflicts in {spread} of {len(rows)}"
    return _drawing(f"Swizzled, every row of a tile {words}", [panel], caption, alt, table, (5.4, 4.6))


def copy(family: str) -> Drawing:
    """A tile of A on its way into registers by ldmatrix."""
    layouts = read(family)
    panels = [
        _held(words, layouts.get(name, ()), "K")
        for words, name in (("Whose address is read", "ldmatrix: source"), ("Who gets it", "ldmatrix: destination"))
    ]
    caption = (
        "The copy of a 32 x 16 tile of A from shared memory to registers by ldmatrix.x4: on the left, the lane whose "
        "address names a row of 8 elements; on the right, the lane that receives an element. The colour is the warp; "
        "of two warps that read the same element the first is shown. Evaluated by CuTe."
    )
    named, got = (
        max(Counter(cell.thread for cell in layouts.get(f"ldmatrix: {end}", ())).values(), default=0)
        for end in ("source", "destination")
    )
    alt = (
        f"ldmatrix of a 32 x 16 tile: a lane names rows with {named} elements in all and receives {got}, most of them "
        "from rows that other lanes name."
    )
    return _drawing(
        "With ldmatrix a lane receives elements of rows that other lanes name",
        panels,
        caption,
        alt,
        _table(layouts, "ldmatrix"),
        (7.6, 6.4),
    )


def mma(family: str) -> Drawing:
    """The operands of the tiled mma."""
    layouts = read(family)
    panels = [
        _labelled(_held(words, layouts.get(f"mma: {name}", ()), label))
        for words, name, label in (("A", "A", "K"), ("B", "B", "K"), ("C", "C", "N"))
    ]
    caption = (
        "Which lane holds which element of the tiled mma, 2 x 2 warps of m16n8k16 on 32 x 32 x 16: A (rows along M), B "
        "(rows along N) and the sums. The colour is the warp; of warps that hold the same element the first is shown. "
        "Lanes are named in the first 16 rows and columns, which the others repeat. "
        "Evaluated by CuTe."
    )
    held = [max(Counter(cell.thread for cell in layouts.get(f"mma: {name}", ())).values(), default=0) for name in "ABC"]
    alt = "Of the tiled mma a lane holds {} elements of A, {} of B and {} of C, in pairs of columns.".format(*held)
    return _drawing(
        "A lane of the tiled mma holds {} elements of A, {} of B, {} of C".format(*held),
        panels,
        caption,
        alt,
        _table(layouts, "mma"),
        (7.6, 6.6),
        widths=(1, 1, 2),
    )


def _held(title: str, cells: Sequence[Cell], label: str) -> Panel:
    """A panel that names the first thread of each element."""
    first: dict[tuple[int, int], int] = {}
    for cell in cells:
        first.setdefault((cell.row, cell.column), cell.thread)
    return Panel(
        title,
        {place: str(thread % WARP) for place, thread in first.items()},
        {place: thread // WARP for place, thread in first.items()},
        label,
    )


def _labelled(panel: Panel, named: int = 16) -> Panel:
    """A panel that names the lanes of its first rows and columns alone, which the others repeat."""
    text = {place: text if max(place) < named else "" for place, text in panel.text.items()}
    return replace(panel, text=text)


def _table(layouts: Mapping[str, Sequence[Cell]], prefix: str) -> list[dict[str, Any]]:
    """Of each layout, the elements (row, column) of a few threads."""
    return [
        {
            "layout": name,
            "thread": thread,
            "elements": " ".join(f"({cell.row},{cell.column})" for cell in cells if cell.thread == thread),
        }
        for name, cells in layouts.items()
        if name.startswith(prefix)
        for thread in (0, 1, WARP)
    ]


def _drawing(
    title: str,
    panels: Sequence[Panel],
    caption: str,
    alt: str,
    table: list[dict[str, Any]],
    size: tuple[float, float],
    widths: Sequence[int] | None = None,
) -> Drawing:
    known = any(panel.text for panel in panels)
    wide, narrow = both(partial(_grids, panels, size, widths))
    if not known:
        title = "Layouts of CuTe: none were printed"
        caption, alt = "No layouts were printed.", "Grid of cells without data: CuTe printed no layouts of this family."
    return Drawing(wide, title, caption, alt, [], table, False, narrow)


def _grids(panels: Sequence[Panel], size: tuple[float, float], widths: Sequence[int] | None, page: Page) -> Figure:
    """The panels beside each other or, in the narrow figure, one below the other."""
    figure: Figure
    if page.narrow:
        rows = [1 + max((row for row, _ in panel.text), default=8) for panel in panels]
        height = sum(0.145 * count + 0.75 for count in rows)
        figure, grid = plt.subplots(len(panels), 1, figsize=(page.width, height), squeeze=False, height_ratios=rows)
    else:
        figure, grid = plt.subplots(1, len(panels), figsize=size, squeeze=False, width_ratios=widths)
    for axes, panel in zip(grid.flat, panels, strict=True):
        _paint(axes, panel, page)
    figure.tight_layout()
    return figure


def runs(panel: Panel) -> Iterator[tuple[int, int, int]]:
    """Row, first column and width of each run of neighbouring cells of one text and colour."""
    for row, column in sorted(panel.text):
        alike = panel.text[row, column], panel.shade[row, column]
        if column and (panel.text.get((row, column - 1)), panel.shade.get((row, column - 1))) == alike:
            continue
        width = 1
        while (panel.text.get((row, column + width)), panel.shade.get((row, column + width))) == alike:
            width += 1
        yield row, column, width


def shaded(panel: Panel) -> list[tuple[int, int, int, int]]:
    """Shade, row, first column and width of each run of cells of one shade, shade by shade."""
    found: list[tuple[int, int, int, int]] = []
    for row, column in sorted(panel.shade):
        shade = panel.shade[row, column]
        if found and found[-1][:2] == (shade, row) and found[-1][2] + found[-1][3] == column:
            found[-1] = (*found[-1][:3], found[-1][3] + 1)
        else:
            found.append((shade, row, column, 1))
    return sorted(found)


def uprights(panel: Panel, rows: int, columns: int) -> list[tuple[int, int, int]]:
    """Column, first row and end of each upright line between cells: none crosses a text that several cells share."""
    shared = {
        (row, inner)
        for row, column, width in runs(panel)
        if panel.text[row, column]
        for inner in range(column + 1, column + width)
    }
    found: list[tuple[int, int, int]] = []
    for column in range(columns + 1):
        for row in range(rows):
            if (row, column) in shared:
                continue
            if found and found[-1][0] == column and found[-1][2] == row:
                found[-1] = (column, found[-1][1], row + 1)
            else:
                found.append((column, row, row + 1))
    return found


def _paint(axes: Axes, panel: Panel, page: Page) -> None:
    axes.grid(False)
    axes.set_title(panel.title, loc="left", color=INK)
    if not panel.text:
        empty(axes, "not printed")
        return
    rows, columns = (1 + max(place[axis] for place in panel.text) for axis in (0, 1))
    for shade, row, column, width in shaded(panel):
        axes.add_patch(Rectangle((column, row), width, 1, facecolor=SHADES[shade % len(SHADES)], linewidth=0))
    axes.hlines(range(rows + 1), 0, columns, color=PUBLISHED, linewidth=0.3)
    for column, first, last in uprights(panel, rows, columns):
        axes.vlines(column, first, last, color=PUBLISHED, linewidth=0.3)
    axes.set(xlim=(0, columns), ylim=(0, rows))
    size = page.letters if page.narrow else 9 if columns <= SLOTS else 6.2
    for row, column, width in runs(panel):
        if not (text := panel.text[row, column]):
            continue
        axes.text(column + width / 2, row + 0.5, text, ha="center", va="center", fontsize=size, color=ON_CELL)
    axes.invert_yaxis()
    axes.set_xlabel(panel.columns_label)
    step = 1 if columns <= SLOTS else 8
    axes.set_xticks(np.arange(0, columns, step) + 0.5, list(map(str, range(0, columns, step))))
    step = 1 if rows <= 16 else 8
    axes.set_yticks(np.arange(0, rows, step) + 0.5, list(map(str, range(0, rows, step))))
    axes.tick_params(length=0)
