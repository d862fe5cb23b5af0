"""Draws a family's figures as SVG, each with a JSON beside it: caption, alternative text, command, rows used.

An SVG is the same, byte for byte, for the same rows: ids are salted with a constant, no date is written, and text is
drawn as outlines, so it looks the same wherever it is opened.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from gemmrepro import experiments, registry
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.experiments import Dots
from gemmrepro.experiments import results as experiments_results
from gemmrepro.experiments.results import Results, nothing
from gemmrepro.measure.rows import Measurements, load
from gemmrepro.paper.figures import climb, dots, lines, ratio, roofline, sizes, throughput, tiles
from gemmrepro.paper.figures.style import Drawing, set_style

NAMES = ("climb", "ratio", "throughput", "roofline", "sizes")
"""Figures of a family that has a baseline. `climb` and `roofline` show the ceilings too."""

OF_A_SEARCH = ("tiles",)
"""Figures of what `tune` found, which is committed with the winners."""

SNAKEMAKE = "envs/run snakemake --use-singularity --cores 1"


def figure_names(family: str) -> tuple[str, ...]:
    """The figures of a family: those its registry names, then those of its experiments.

    Raises:
        UserError: the registry names a figure that there is not, or an experiment's figure has the name of another.
    """
    known = (*NAMES, *OF_A_SEARCH)
    unknown = [name for name in registry.family(family).figures if name not in known]
    if unknown:
        raise UserError(f"family {family} names the figure {', '.join(unknown)}; known figures: {', '.join(known)}.")
    if taken := set(known) & set(experiments.figures(family)):
        raise UserError(
            f"an experiment of {family} calls a figure {', '.join(taken)}, as others are called; rename it."
        )
    return experiments.figure_names(family)


def svg_of(drawing: Drawing) -> str:
    """The figure as SVG text, without date, generator, or trailing blanks."""
    buffer = io.StringIO()
    drawing.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": drawing.title})
    plt.close(drawing.figure)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _clean(value: Any) -> Any:
    """JSON has no NaN: empty cells become null, numpy's numbers Python's."""
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def draw(
    measured: Measurements,
    ceilings: Measurements,
    names: Sequence[str] = NAMES,
    results: Mapping[str, Results] | None = None,
) -> dict[str, Drawing]:
    """The named figures of a family; `results` are its experiments'."""
    set_style()
    draw_one = {
        "climb": lambda: climb.draw(measured, ceilings),
        "ratio": lambda: ratio.draw(measured),
        "throughput": lambda: throughput.draw(measured),
        "roofline": lambda: roofline.draw(measured, ceilings),
        "sizes": lambda: sizes.draw(measured),
        "tiles": lambda: tiles.draw(measured),
    }
    for name, (experiment, wanted) in experiments.figures(measured.family).items():
        if name in names:
            found = (results or {}).get(experiment.name) or nothing(experiment)
            how = dots.draw if isinstance(wanted, Dots) else lines.draw
            draw_one[name] = partial(how, measured.family, wanted, found)
    return {name: draw_one[name]() for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a family's figures.")
    parser.add_argument("--family", required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows a family")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments a family")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figures", help="only these, separated by commas; default: those that the family names")
    parser.add_argument("--png", action="store_true", help="write PNG too, for looking at")
    arguments = parser.parse_args()
    names = arguments.figures.split(",") if arguments.figures else figure_names(arguments.family)
    known = (*NAMES, *OF_A_SEARCH, *experiments.figures(arguments.family))
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no figure {', '.join(unknown)}; known figures: {', '.join(known)}.")
    if not names:
        arguments.out.mkdir(parents=True, exist_ok=True)
        print(f"family {arguments.family} names no figure")
        return 0
    measured = load(arguments.measure, arguments.family)
    results = experiments_results.load(arguments.experiments, arguments.family)
    of_experiment = {name: results[each.name] for name, (each, _) in experiments.figures(arguments.family).items()}
    drawings = draw(measured, load(arguments.measure, "ceilings"), names, results)
    for name, drawing in drawings.items():
        if arguments.png:
            arguments.out.mkdir(parents=True, exist_ok=True)
            drawing.figure.savefig(arguments.out / f"{name}.png", dpi=110)
        write_atomic(arguments.out / f"{name}.svg", svg_of(drawing))
        about = {
            "figure": name,
            "family": arguments.family,
            "title": drawing.title,
            "caption": drawing.caption,
            "alt": drawing.alt,
            "command": f"{SNAKEMAKE} --force results/figures/{arguments.family}/{name}.svg",
            "rows": drawing.rows,
            "columns": list(dict.fromkeys(key for row in drawing.table for key in row if key != "stale")),
            "table": _clean(drawing.table),
            "stale": bool(drawing.stale),
            "source": of_experiment.get(name, measured).source,
            "gpu": of_experiment.get(name, measured).gpu,
        }
        write_json(arguments.out / f"{name}.json", about)
    return 0


if __name__ == "__main__":
    run_stage(main)
