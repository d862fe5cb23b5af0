"""Draws a family's figures as SVG, each with its numbers as CSV, and caption, finding, command and rows as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gemmrepro import experiments
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.errors import run_stage
from gemmrepro.experiments import results as experiments_results
from gemmrepro.experiments import tables
from gemmrepro.experiments.results import Results
from gemmrepro.figures import catalogue
from gemmrepro.figures.style import Drawing
from gemmrepro.measure.rows import Measurements, load


def described(family: str, name: str, drawing: Drawing, rows: Measurements | Results) -> dict[str, Any]:
    """What the JSON beside a figure holds; `rows` are those that it was drawn of."""
    return {
        "figure": name,
        "family": family,
        "title": drawing.title,
        "caption": drawing.caption,
        "alt": drawing.alt,
        "command": f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg",
        "rows": list(drawing.rows),
        "columns": list(dict.fromkeys(key for row in drawing.table for key in row if key != "stale")),
        "table": catalogue.json_value(drawing.table),
        "stale": bool(drawing.stale),
        "source": rows.source,
        "gpu": rows.gpu,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a family's figures.")
    parser.add_argument("--family", required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows per family")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments per family")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figures", help="only these, separated by commas; default: those that the family names")
    parser.add_argument("--png", action="store_true", help="also write PNG files, to look at")
    arguments = parser.parse_args()
    family, out = arguments.family, arguments.out
    names = arguments.figures.split(",") if arguments.figures else catalogue.figure_names(family)
    catalogue.check_names(family, names)
    if not names:
        out.mkdir(parents=True, exist_ok=True)
        print(f"family {family} names no figure")
        return 0
    measured = load(arguments.measure, family)
    results = experiments_results.load(arguments.experiments, family)
    of_experiment = {name: results[experiment.name] for name, (experiment, _) in experiments.figures(family).items()}
    of_experiment |= {
        name: results[table.experiment] for name, table in tables.declared(family).items() if table.experiment
    }
    for name, drawing in catalogue.draw(measured, load(arguments.measure, "ceilings"), names, results).items():
        if arguments.png:
            out.mkdir(parents=True, exist_ok=True)
            drawing.figure.savefig(out / f"{name}.png", dpi=110)
        write_atomic(out / f"{name}.svg", catalogue.svg_of(drawing))
        write_atomic(out / f"{name}.narrow.svg", catalogue.svg_of(drawing, drawing.narrow))
        write_atomic(out / f"{name}.csv", catalogue.csv_of(drawing))
        write_json(out / f"{name}.json", described(family, name, drawing, of_experiment.get(name, measured)))
    return 0


if __name__ == "__main__":
    run_stage(main, collect=False)
