"""cuTile against cuBLAS by type and size; and the tiles that a search timed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, heat, marks
from gemmrepro.figures.style import DASHES, MARKERS, SERIES, Drawing, finding, origin
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
        there = [mark.printed[0] for mark in sides if mark.printed]
        here = [mark.measured for mark in sides if mark.measured]
        if len(there) == len(here) == 2:
            ratio, cells = here[0] / here[1], {"type": dtype, "size": size, "published": (there[0] / there[1]).value}
            table.append({**cells, "measured": ratio.value, "keys": {"measured": ratio.keys}})
    lines = [{"series": one["type"], "x": one["size"], "y": one["measured"] / one["published"]} for one in table]
    caption = (
        "The ratio of the article's cuTile program to cuBLAS in the same type, warm: as timed in turn here, over the "
        f"quotient of the two throughputs that the article prints for a B200. Short: by more than 5%. "
        f"{origin(inputs.measured['cutile'])}"
    )
    title, alt = (
        "cuTile's ratio to cuBLAS, here over print: not measured",
        "Ratios of cuTile to cuBLAS, of none is both known.",
    )
    if table:
        title = "cuTile's ratio to cuBLAS, here over print, by type and size"
        far = {one["type"]: line["y"] for one, line in zip(table, lines, strict=True)}
        short = {name: [line["x"] for line in lines if line["series"] == name and line["y"] < 0.95] for name in far}
        lost = [name for name, sizes in short.items() if len(sizes) == sum(line["series"] == name for line in lines)]
        if lost:
            title = f"cuTile falls short of its printed ratio to cuBLAS at every size in {listed(lost)}"
            some = {name: listed([str(n) for n in sizes]) for name, sizes in short.items() if name not in lost}
            title += "".join(f", in {name} at {sizes}" for name, sizes in some.items() if sizes)
        ends = listed([f"{dtype} {format_number(over)}" for dtype, over in far.items()])
        alt = finding(f"cuTile's ratio to cuBLAS at each type's largest size, measured over published: {ends}.")
    stale = any(mark.measured.stale for mark in own if mark.measured)
    looks = {dtype: Look(dtype, SERIES[i], MARKERS[i], dash=DASHES[i]) for i, dtype in enumerate(TYPES)}
    panels, frame = {"": Panel("", "ratio here over ratio in print", log=True, line=1.0)}, marks(lines)
    options: dict[str, Any] = {"x_label": "M = N = K", "columns": 1}
    return Drawing(title, caption, alt, table, lambda page: curves(frame, looks, panels, page, **options), stale)


NEAR = 0.9
"""What reaches this share of its search's best is near it."""


def read(tunable: Tunable) -> pd.DataFrame:
    """The best candidate of each tile (`bm`, `bn`) that a search timed: ratio, constants, number of candidates.

    Raises:
        UserError: the table is not one that a search wrote.
    """
    path = registry.candidates_path(tunable.id)
    if not path.is_file():
        return pd.DataFrame()
    try:
        timed = pd.read_csv(path)
        ratio = next(name for name in timed if name.startswith("ratio_"))
        timed = timed[timed[ratio].notna()].rename(columns={ratio: "ratio"}).astype(dict.fromkeys(tunable.space, int))
        constants = timed[list(tunable.space)].to_dict("records")
    except (StopIteration, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is no table of candidates ({type(error).__name__}: {error}); restore it, or run tune again."
        ) from None
    told = [" ".join(f"{name}={value}" for name, value in own.items()) for own in constants]
    timed = timed.assign(constants=told)[[tunable.holds(own) for own in constants]].sort_values("ratio", kind="stable")
    by_tile = timed.groupby(["bm", "bn"])
    best = by_tile.tail(1).sort_values(["bm", "bn"]).assign(candidates=by_tile.size().to_numpy(), kernel=tunable.id)
    return best.assign(
        tile=best["bm"].map(str) + " x " + best["bn"].map(str), share=best["ratio"] / best["ratio"].max()
    )


def tiles(inputs: Inputs) -> Drawing:
    """A line per search, a column per tile: the best speed in that tile over the search's best."""
    tiled = [tunable for tunable in registry.tunables(inputs.family) if {"bm", "bn"} <= set(tunable.space)]
    columns = ["kernel", "tile", "ratio", "candidates", "constants", "bm", "bn", "share"]
    found = pd.concat(
        [pd.DataFrame(columns=columns), *(own for own in map(read, tiled) if len(own))], ignore_index=True
    )[columns]
    caption = (
        "The fastest candidate of each tile, rows by columns, over the fastest of its search; red: below "
        f"{NEAR:.0%}. Warm cache; every candidate was timed briefly, the fastest ones again for longer. An empty cell "
        "has no candidate: its accumulators or its stages do not fit."
    )
    if found.empty:
        alt = "Heat map of speed by tile, without data: no search was recorded."
        caption = "No search was recorded for this family."
        return Drawing(
            "Best speed per tile size: not searched", caption, alt, [], lambda page: heat(found, page, (0, 1))
        )
    wide = found.sort_values(["bm", "bn"]).pivot_table(index="kernel", columns="tile", values="share", sort=False)
    fit = list(wide.columns[wide.ge(NEAR).all()])
    title = (
        f"Tiles of {listed(fit)} are near the best in every search" if fit else "No tile is near the best everywhere"
    )
    best = found.loc[found["ratio"].astype(float).idxmax()]
    alt = finding(
        f"{title}: heat map of {len(wide)} searches by {len(wide.columns)} tiles.",
        f"The best ratio to cuBLAS is {format_number(best['ratio'])}, of {best['kernel']} in tiles of {best['tile']}.",
    )
    wide = wide.rename(index=lambda kernel: kernel.partition(".")[2].removesuffix("_tuned").replace("_", " "))
    table = found[["kernel", "tile", "ratio", "candidates", "constants"]].to_dict("records")
    return Drawing(title, caption, alt, table, lambda page: heat(wide, page, (NEAR, 1)))
