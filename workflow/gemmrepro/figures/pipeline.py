"""The figure ``pipeline``: which tile lies in which stage of shared memory, by steps of K, for the article's rungs.

A kernel with `stages` stages multiplies tile t from stage t modulo `stages`, and asks for tile t + stages - 1 when it
begins with tile t: a copy has `stages` - 1 steps, and the wait before a step is for the oldest copy alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.figures.style import INK, PAPER, SERIES, Drawing, empty
from gemmrepro.figures.widths import Page, both
from gemmrepro.registry import Kernel

TILES = 6
"""Tiles of K that are drawn."""


@dataclass(frozen=True)
class Use:
    """A stage in use: by the copy of `tile`, or by its multiplication, from step `begin` to step `end`."""

    stage: int
    tile: int
    begin: int
    end: int
    copied: bool


def uses(stages: int, tiles: int = TILES) -> Iterator[Use]:
    """What happens in each stage of a ring. With one stage a step copies and then multiplies, one after the other."""
    for tile in range(tiles):
        if stages == 1:
            yield Use(0, tile, 2 * tile, 2 * tile + 1, True)
            yield Use(0, tile, 2 * tile + 1, 2 * tile + 2, False)
        else:
            yield Use(tile % stages, tile, tile - stages + 1, tile, True)
            yield Use(tile % stages, tile, tile, tile + 1, False)


def shown(family: str) -> list[Kernel]:
    """The article's kernels of a family, one for each number of stages."""
    found: dict[int, Kernel] = {}
    for kernel in registry.kernels(family):
        if kernel.story.published_system and kernel.problem.operation.matrix_product:
            found.setdefault(kernel.params.get("stages", 1), kernel)
    return [found[stages] for stages in sorted(found)]


def draw(family: str) -> Drawing:
    """A panel for each number of stages: a bar for each copy and each multiplication, by steps."""
    kernels = shown(family)
    heights = [1 + kernel.params.get("stages", 1) for kernel in kernels] or [1]
    wide, narrow = both(partial(_paint, kernels, heights))
    caption = (
        "What the stages of shared memory hold, step by step: the copy of a tile of A and B (hatched, from its request "
        "to the wait for it) and its multiplication (filled). With one stage the tensor cores rest while a tile is "
        "copied; with two a copy has one step, with three two steps. No two copies begin at the same time. From the "
        "kernels' own numbers of stages."
    )
    table = [
        {
            "kernel": kernel.id,
            "stage": use.stage,
            "tile": use.tile,
            "what": "copied" if use.copied else "multiplied",
            "from": use.begin,
            "to": use.end,
        }
        for kernel in kernels
        for use in uses(kernel.params.get("stages", 1))
    ]
    words = ", ".join(f"{kernel.id} {kernel.params.get('stages', 1)}" for kernel in kernels)
    alt = f"Bars of copies and multiplications by stage and step; stages: {words}." if kernels else "Bars without data."
    return Drawing(wide, _title(kernels), caption, alt, [], table, False, narrow)


def _title(kernels: Sequence[Kernel]) -> str:
    """The finding: how many steps a copy may take with the most stages."""
    most = max((kernel.params.get("stages", 1) for kernel in kernels), default=0)
    if not most:
        return "Copies and multiplications by stage: no kernel of an article"
    steps = "no step" if most == 1 else f"{most - 1} step{'s' if most > 2 else ''}"
    return f"With {most} stages a copy has {steps} of multiplication to hide behind"


def _paint(kernels: Sequence[Kernel], heights: Sequence[int], page: Page) -> Figure:
    size = (page.width, 0.42 * sum(heights) + 1.0)
    figure, grid = plt.subplots(len(heights), 1, figsize=size, squeeze=False, height_ratios=heights)
    if not kernels:
        empty(grid.flat[0], "no kernel of an article")
    for axes, kernel in zip(grid.flat, kernels, strict=False):
        _panel(axes, kernel)
    if kernels:
        grid.flat[-1].set_xlabel("step")
    figure.tight_layout()
    return figure


def _panel(axes: Axes, kernel: Kernel) -> None:
    stages = kernel.params.get("stages", 1)
    for use in uses(stages):
        face, edge = (PAPER, SERIES[0]) if use.copied else (SERIES[0], SERIES[0])
        hatch = "////" if use.copied else None
        axes.barh(use.stage, use.end - use.begin, 0.72, use.begin, facecolor=face, edgecolor=edge, hatch=hatch, lw=0.9)
        axes.text(
            (use.begin + use.end) / 2,
            use.stage,
            str(use.tile),
            ha="center",
            va="center",
            color=INK if use.copied else PAPER,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0} if use.copied else None,
        )
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlim(-2.2, 2 * TILES + 0.2 if stages == 1 else TILES + 0.2)
    axes.set_title(f"{kernel.rung} {kernel.title}", loc="left", color=INK)
