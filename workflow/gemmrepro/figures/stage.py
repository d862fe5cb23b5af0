"""Draws a family's figures, or the paper's own: each as SVG in two widths, with its numbers as CSV, and as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from gemmrepro.errors import run_stage
from gemmrepro.experiments import results
from gemmrepro.figures import catalogue
from gemmrepro.figures.inputs import Inputs
from gemmrepro.judge import claims
from gemmrepro.judge.ceilings import CEILING_FAMILY
from gemmrepro.measure.rows import load, load_regimes
from gemmrepro.paper.claims import read_verdicts


def read(arguments: argparse.Namespace) -> Inputs:
    """What a family's figures are drawn from, or those of the whole paper."""
    family, verdicts = arguments.family or "", arguments.verdicts
    families = arguments.families.split(",") if verdicts else list(dict.fromkeys([family, CEILING_FAMILY]))
    measured = {name: load(arguments.measure, name) for name in families}
    found = {name: results.load(arguments.experiments, name) for name in families}
    if not verdicts:
        return Inputs(measured, found, family=family)
    regimes = {name: load_regimes(arguments.regimes, name) for name in families}
    published = {claim.id: claim.value for claim in claims.load(tuple(families), judged=True)}
    return Inputs(measured, found, regimes, read_verdicts(verdicts), published)


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a family's figures, or the paper's own of what was judged.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--family", help="draw this family's figures")
    which.add_argument("--verdicts", type=Path, help="draw the paper's own figures, with these verdicts")
    parser.add_argument("--families", help="of the paper's own figures, separated by commas")
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows per family")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments per family")
    parser.add_argument("--regimes", type=Path, help="folder with one folder of rows of the regimes per family")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figures", help="only these, separated by commas")
    arguments = parser.parse_args()
    inputs = read(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.figures.split(",") if arguments.figures else []
    for name, drawing in catalogue.draw(inputs, names).items():
        catalogue.write(inputs, name, drawing, arguments.out)
    return 0


if __name__ == "__main__":
    run_stage(main, collect=False)
