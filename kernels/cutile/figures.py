"""cuTile against cuBLAS by type and size; and the tiles that a search timed."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.core.text import format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, empty, finished, marks, pair, printed
from gemmrepro.figures.ladder import made_here
from gemmrepro.figures.style import DASHES, INK, MARKERS, SERIES, TUNED, Drawing, Page, finding, origin, stale_note
from gemmrepro.judge import claims
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.registry import Kernel, Tunable, ladders

PAPER = {"types": ()}
TYPES = ("fp16", "tf32", "fp64")
"""The types of which the article prints cuBLAS too."""
NEAR = 0.1


def types(inputs: Inputs) -> Drawing:
    """A panel per type: the article's program over cuBLAS, as the article prints both, and as timed in turn here."""
    own = [mark for mark in inputs.marks("cutile", "shares") if mark.panel in TYPES]
    table = []
    for dtype in TYPES:
        for size in sorted({int(float(mark.x)) for mark in own if mark.panel == dtype}):
            by = {mark.series: mark for mark in own if mark.panel == dtype and int(float(mark.x)) == size}
            sides = [by[name] for name in ("cuTile", "cuBLAS") if name in by]
            there = [mark.printed[0].value for mark in sides if mark.printed]
            here = [mark.measured.value for mark in sides if mark.measured]
            ratios = [values[0] / values[1] if len(values) == 2 else None for values in (there, here)]
            if any(ratio is not None for ratio in ratios):
                table.append({"type": dtype, "size": size, "published": ratios[0], "measured": ratios[1]})
    lines = [
        {"panel": one["type"], "x": one["size"], "series": kind, "y": one[column]}
        for one in table
        for kind, column in (("print", "published"), ("here", "measured"))
        if one[column] is not None
    ]
    caption = (
        "Speed of the article's cuTile program relative to cuBLAS in the same type, warm: the quotient of the two that "
        f"the article prints for a B200, and the ratio timed in turn here. {origin(inputs.measured['cutile'])}"
    )
    title = "cuTile against cuBLAS by type and size: not measured"
    alt = "Ratios of cuTile to cuBLAS by type and size, of which no pair of published and measured is known."
    both = [one for one in table if one["published"] is not None and one["measured"] is not None]
    if both:
        near = sum(abs(one["measured"] / one["published"] - 1) <= NEAR for one in both)
        title = f"{near} of {len(both)} of cuTile's ratios to cuBLAS return within {NEAR:.0%}"
        best = max(both, key=lambda one: one["measured"])
        there, here = (sum(one[side] > 1 for one in both) for side in ("published", "measured"))
        alt = finding(
            f"Of {len(both)} published ratios of cuTile to cuBLAS {there} exceed 1; here {here} do.",
            f"The best here is {format_number(best['measured'])} in {best['type']} at {best['size']}, published "
            f"{format_number(best['published'])}.",
        )
    found = [mark.measured for mark in own if mark.measured]
    keys = list(dict.fromkeys(key for each in found for key in each.keys))
    panels = {dtype: Panel(dtype, "", line=1.0) for dtype in TYPES}
    options: dict[str, Any] = {"x_label": "M = N = K", "columns": 3, "handles": True}
    frame, looks = marks(lines), pair("B200", inputs.gpu)
    paint = lambda page: curves(frame, looks, panels, page, **options)  # noqa: E731
    return Drawing(title, caption, alt, table, paint, keys, any(each.stale for each in found))


def sizes(inputs: Inputs) -> Drawing:
    """Ratio to the baseline against size, warm, a panel per type; published ones are those that the claims take."""
    measured, toolkit = inputs.own, inputs.own.toolkit or ""
    rows = cubes(select(measured.summary, cache="warm", toolkit=toolkit))
    rows = rows[rows["ratio"].notna()].sort_values("n")
    every = cubes(select(measured.summary, cache="warm"))
    every = every[every["ratio"].notna()]
    article = published_ratios(measured.family)
    known = ladders.dtypes(measured.family)
    names = [dtype for dtype in known if (every["dtype"] == dtype).any()] or known[:1]
    looks, lines, table, chips = _looks(measured.family), [], [], set()
    for dtype in names:
        for kernel, series in _kernels(measured, dtype, looks):
            level = {"level": ladders.level_name(kernel), "type": dtype}
            for claim in article.get(kernel.id, []):
                chips |= {row["hardware"] for row in claim.published}
                there = f"{kernel.rung} as published"
                looks.setdefault(there, printed(there))
                n, value = claim.compute["n"], claim.value or 0.0
                lines.append({"panel": dtype, "series": there, "x": n, "y": value})
                table.append({**level, "size": n, "published": round(value, 4)})
            for one in made_here([kernel], rows[rows["dtype"] == dtype]):
                at = {"panel": dtype, "series": series, "x": one["n"], "y": one["ratio"]}
                lines.append({**at, "rung": kernel.rung, **one})
                table.append({**level, "size": one["n"], "measured": one["ratio"], "stale": one["stale"]})
    frame = marks(lines)
    stale = bool(frame["stale"].any())
    caption = "Speed relative to cuBLAS in the same type and layout against the size of a square problem, warm cache; "
    caption += "above 1 the kernel is faster. "
    if chips:
        caption += f"Hollow marks on a dashed grey line: as published for {listed(sorted(chips))}, where the article "
        caption += "gives both throughputs or their ratio. "
    caption += "Error bars are 95% intervals. The scales of the panels differ. "
    caption += f"{f'Built by {toolkit}. ' if toolkit else ''}{origin(measured)}{stale_note(stale)}"
    panels = {dtype: Panel(dtype, "speed relative to cuBLAS", line=1.0) for dtype in names}
    paint = lambda page: curves(frame, looks, panels, page, x_label="M = N = K")  # noqa: E731
    title, alt = _sizes_words(frame, names)
    keys = [line["key"] for line in lines if "key" in line]
    return Drawing(title, caption, alt, table, paint, keys, stale)


def published_ratios(family: str) -> dict[str, list[claims.Claim]]:
    """The claims on ratios to the baseline that transfer to other GPUs, by kernel, in the order of size."""
    found: dict[str, list[claims.Claim]] = {}
    for claim in claims.load((family,)):
        if claim.compute["metric"] == "ratio" and claim.published and claim.compute.get("n"):
            found.setdefault(claim.compute["kernel"], []).append(claim)
    return {kernel: sorted(own, key=lambda claim: claim.compute["n"]) for kernel, own in found.items()}


def _looks(family: str) -> dict[str, Look]:
    """The look of a rung, the same in every panel; of the first rungs, as many as there are colours beside TUNED."""
    titles = {kernel.rung: kernel.title.split(",")[0] for kernel in reversed(ladders.compared(family))}
    rungs = dict.fromkeys(kernel.rung for kernel in ladders.compared(family))
    colours = [colour for colour in SERIES if colour != TUNED]
    looks = {
        rung: Look(f"{rung} {titles[rung]}", colour, marker, dash="-")
        for rung, colour, marker in zip(rungs, colours, MARKERS, strict=False)
    }
    return looks | {"tuned": Look("fastest tuned kernel", TUNED, "h", dash=DASHES[2])}


def _kernels(measured: Measurements, dtype: str, looks: Mapping[str, Look]) -> list[tuple[Kernel, str]]:
    """The kernels with a line in a panel: the first of each source file, and the tuned one that is fastest."""
    lines = [(kernel, kernel.rung) for kernel in ladders.steps(measured.family, dtype) if kernel.rung in looks]
    tuned = {k.id: k for k in ladders.compared(measured.family) if k.compute.dtype_in == dtype and ladders.is_tuned(k)}
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit or "", dtype=dtype))
    rows = rows[rows["kernel"].isin(tuned) & rows["tflops"].notna()]
    if len(rows):
        rows = rows[rows["n"] == rows["n"].max()]
        lines.append((tuned[rows.loc[rows["tflops"].idxmax(), "kernel"]], "tuned"))
    return lines


def _sizes_words(frame: pd.DataFrame, names: Sequence[str]) -> tuple[str, str]:
    """Title and alternative text: of each type the best kernel at the largest size."""
    best = []
    for dtype in names:
        own = frame[(frame["panel"] == dtype) & frame["key"].notna()] if "key" in frame else frame[:0]
        last = own.groupby("series", sort=False).tail(1)
        last = last[~last["stale"]]
        if len(last := last[last["x"] == last["x"].max()]):
            best.append(last.loc[last["y"].idxmax()])
    if not best:
        alt = "Line chart of speed relative to cuBLAS against size, without measured values."
        return f"Ratio to cuBLAS against size, {listed(names)}: not measured", alt
    ahead = [str(one["panel"]) for one in best if one["y"] >= 1]
    title = "At the largest size no kernel reaches cuBLAS in any type"
    if ahead:
        title = f"At the largest size a kernel reaches cuBLAS in {listed(ahead)}"
    values = [f"{one['panel']} {format_number(one['y'])} ({one['rung']} at {one['x']:.0f})" for one in best]
    return title, finding(f"The best ratio to cuBLAS at the largest size, by type: {', '.join(values)}.")


ON_DARK, ON_LIGHT = "#fdfdfd", "#141414"
"""Text on a cell; no colours of `style.COLOURS`, which the report replaces."""

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
        top, letters = search.best["ratio"], {"fontsize": page.pick(7.5, page.letters)}
        look: dict[str, Any] = {"cmap": "cividis", "vmin": lowest * top, "vmax": top, "cbar": False, "linewidths": 0.8}
        sns.heatmap(cells, annot=text, fmt="", annot_kws=letters, ax=axes, **look)
        for written in axes.texts:  # cells keep their colours where the page is dark: so must their text
            written.set_color(ON_DARK if written.get_color() == "w" else ON_LIGHT)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(rotation=0)
        name = search.name
        cut = name.rindex("_", 0, 18) if page.narrow and len(name) > 18 else len(name)
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
