"""Draws the paper's own figures, each in two widths, with its numbers as CSV and what the page says of it as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.errors import run_stage
from gemmrepro.experiments import results
from gemmrepro.experiments.paper_figures import FOLDER
from gemmrepro.figures.catalogue import csv_of, json_value, svg_of
from gemmrepro.figures.findings import catalogue
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.style import Drawing
from gemmrepro.judge import claims
from gemmrepro.measure.regimes import rows as regime_rows
from gemmrepro.measure.rows import load
from gemmrepro.paper.claims import read_verdicts


def described(name: str, drawing: Drawing, inputs: Inputs) -> dict[str, Any]:
    """What the JSON beside a figure holds."""
    return {
        "figure": name,
        "family": FOLDER,
        "title": drawing.title,
        "caption": drawing.caption,
        "alt": drawing.alt,
        "command": f"{SNAKEMAKE} --force results/figures/{FOLDER}/{name}.svg",
        "rows": list(drawing.rows),
        "columns": list(dict.fromkeys(key for row in drawing.table for key in row if key != "stale")),
        "table": json_value(drawing.table),
        "stale": bool(drawing.stale),
        "source": inputs.verdicts.source,
        "gpu": inputs.verdicts.gpu,
    }


def read(verdicts: Path, measure: Path, experiments: Path, regimes: Path | None, families: list[str]) -> Inputs:
    """The inputs of the figures of these families."""
    return Inputs(
        verdicts=read_verdicts(verdicts),
        published={claim.id: claim.value for claim in claims.load(tuple(families), judged=True)},
        measured={name: load(measure, name) for name in families},
        results={name: results.load(experiments, name) for name in families},
        regimes={name: regime_rows.load(regimes, name) for name in families},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the paper's own figures.")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows per family")
    parser.add_argument(
        "--experiments", type=Path, required=True, help="folder with a folder of experiments per family"
    )
    parser.add_argument("--regimes", type=Path, help="folder with one folder of rows of the regimes per family")
    parser.add_argument("--families", required=True, help="separated by commas")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    folders = (arguments.verdicts, arguments.measure, arguments.experiments, arguments.regimes)
    inputs = read(*folders, arguments.families.split(","))
    for name, drawing in catalogue.draw(inputs).items():
        write_atomic(arguments.out / f"{name}.svg", svg_of(drawing))
        if drawing.narrow:
            write_atomic(arguments.out / f"{name}.narrow.svg", svg_of(drawing, drawing.narrow))
        write_atomic(arguments.out / f"{name}.csv", csv_of(drawing))
        write_json(arguments.out / f"{name}.json", described(name, drawing, inputs))
    return 0


if __name__ == "__main__":
    run_stage(main, collect=False)
