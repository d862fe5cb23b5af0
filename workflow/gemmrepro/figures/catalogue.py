"""Which figures a family has, and how each is drawn and written as SVG.

An SVG is the same, byte for byte, for the same rows: ids are salted with a constant and no date is written. Its text is
text, in fonts as wide as the one it was laid out with.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from gemmrepro import experiments, registry
from gemmrepro.errors import UserError
from gemmrepro.experiments import Dots
from gemmrepro.experiments import tables as article
from gemmrepro.experiments.results import Results, nothing
from gemmrepro.figures import (
    climb,
    dots,
    layouts,
    lines,
    pipeline,
    ratio,
    sizes,
    slim,
    tables,
    tiles,
)
from gemmrepro.figures.style import Drawing, set_style
from gemmrepro.measure.rows import Measurements

LADDER = ("climb", "ratio", "sizes")
"""Figures of a family that has a baseline. `climb` shows the ceilings too."""

SEARCH = ("tiles",)
"""Figures of the candidates that `tune` timed, whose table is committed with the winners."""

DESIGN = ("tile_layout", "copy_layout", "mma_layout", "pipeline")
"""Figures of a family's layouts and stages, which show no measurement."""


def figure_names(family: str) -> tuple[str, ...]:
    """The figures of a family: those its registry names, then those of the article's tables and its experiments.

    Raises:
        UserError: the registry names an unknown figure, or a figure has the name of another.
    """
    known = (*LADDER, *SEARCH, *DESIGN)
    unknown = [name for name in registry.family(family).figures if name not in known]
    if unknown:
        raise UserError(f"family {family} names the figure {', '.join(unknown)}; known figures: {', '.join(known)}.")
    of_experiments, of_tables = set(experiments.figures(family)), set(article.declared(family))
    if clashes := (set(known) & (of_experiments | of_tables)) | (of_experiments & of_tables):
        raise UserError(
            f"an experiment or table of {family} calls a figure {', '.join(sorted(clashes))}, which is the name of "
            "another; rename it."
        )
    return experiments.figure_names(family)


def check_names(family: str, names: Sequence[str]) -> None:
    """Raises UserError for a name that is no figure of a family and none of this family's tables and experiments."""
    known = (*LADDER, *SEARCH, *DESIGN, *article.declared(family), *experiments.figures(family))
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no figure {', '.join(unknown)}; known figures: {', '.join(known)}.")


def draw(
    measured: Measurements,
    ceilings: Measurements | None,
    names: Sequence[str] = LADDER,
    results: Mapping[str, Results] | None = None,
) -> dict[str, Drawing]:
    """The named figures of a family.

    Args:
        measured: the family's rows.
        ceilings: the rows of the family `ceilings`, which `climb` shows.
        results: the family's experiments by name; one that is missing was not run.
    """
    set_style()
    return {name: _painter(name, measured, ceilings, results or {})() for name in names}


def _painter(
    name: str, measured: Measurements, ceilings: Measurements | None, results: Mapping[str, Results]
) -> Callable[[], Drawing]:
    """What draws one figure."""
    if name in (printed := article.declared(measured.family)):
        return lambda: tables.draw(printed[name], measured, ceilings, results)
    if name in (declared := experiments.figures(measured.family)):
        experiment, figure = declared[name]
        rows = results.get(experiment.name) or nothing(experiment)
        if isinstance(figure, Dots):
            return lambda: dots.draw(measured.family, figure, rows)
        return lambda: lines.draw(measured.family, figure, rows)
    return {
        "climb": lambda: climb.draw(measured, ceilings),
        "ratio": lambda: ratio.draw(measured),
        "sizes": lambda: sizes.draw(measured),
        "tiles": lambda: tiles.draw(measured),
        "tile_layout": lambda: layouts.tile(measured.family),
        "copy_layout": lambda: layouts.copy(measured.family),
        "mma_layout": lambda: layouts.mma(measured.family),
        "pipeline": lambda: pipeline.draw(measured.family),
    }[name]


def svg_of(drawing: Drawing, figure: Figure | None = None) -> str:
    """A drawing, or its narrow `figure`, as slim SVG text with the finding as description. Closes the figure."""
    chosen = figure or drawing.figure
    buffer = io.StringIO()
    # savefig draws twice, the first time for layouts that tight_layout has settled.
    canvas = FigureCanvasSVG(chosen)
    canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    plt.close(chosen)
    return slim.slim(buffer.getvalue(), drawing.title, drawing.alt)


def csv_of(drawing: Drawing) -> str:
    """The numbers that a drawing shows, as CSV with a line of headings."""
    columns = list(dict.fromkeys(key for row in drawing.table for key in row))
    buffer = io.StringIO()
    lines = csv.DictWriter(buffer, columns, lineterminator="\n")
    lines.writeheader()
    lines.writerows(drawing.table)
    return buffer.getvalue()


def json_value(value: Any) -> Any:
    """JSON has no NaN: empty cells become null, numpy's numbers Python's."""
    if isinstance(value, dict):
        return {key: json_value(cell) for key, cell in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(cell) for cell in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
