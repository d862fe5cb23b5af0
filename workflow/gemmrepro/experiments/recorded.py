"""Bring recorded experiments into results/experiments, and mark what no longer belongs to today's binaries.

    python -m gemmrepro recorded-experiments --experiments ada=accumulation,alignment crt=accuracy \\
        --recorded reports/recorded/h200 --build results/build --out results/experiments

A row is "current" if what ran then is what would run today (its run key) and the experiment is declared as it was;
otherwise it is "stale". An experiment that was never recorded has no rows: its claims are not measured.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from gemmrepro import experiments
from gemmrepro.core.files import csv_text, write_atomic, write_json
from gemmrepro.experiments import Experiment
from gemmrepro.experiments.checked import read_checked
from gemmrepro.measure.recording import stale


def bring(family: str, experiment: Experiment, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check one recording and copy it to `out` with its statuses set.

    Returns:
        (rows, stale rows); (0, 0) where the experiment was never recorded.

    Raises:
        UserError: the recording is incomplete or corrupt.
    """
    out = Path(out)
    rows, run = read_checked(family, experiment, recorded, build)
    write_atomic(out / f"{experiment.name}.csv", csv_text(rows, experiment.header))
    write_json(out / f"{experiment.name}.json", {**run, "source": "recorded"} if run else {"source": "none"})
    return len(rows), stale(rows)


def main(options: Namespace) -> int:
    """Bring recorded experiments."""
    options.out.mkdir(parents=True, exist_ok=True)  # also where no family has experiments
    chosen = [
        (family, name)
        for family, _, names in (each.partition("=") for each in options.experiments)
        for name in names.split(",")
    ]
    for family, name in chosen:
        experiment = experiments.experiment(family, name)
        count, outdated = bring(family, experiment, options.recorded, options.build, options.out / family)
        rows = f"{count} rows" if count else "never recorded there; record it with workflow/scripts/record"
        if outdated:
            rows += f", {outdated} of them stale: today's build or declaration differs from what was measured"
        print(f"experiment_recorded: {family} {name}: {rows}", file=sys.stderr)
    return 0
