"""Bring a family's recorded experiments into results/experiments, and mark what no longer belongs to today's binaries.

    python -m gemmrepro.experiments.recorded --family ada --name accumulation --recorded reports/recorded/h200 \\
        --build results/build --out results/experiments/ada

A row is "current" if what ran then is what would run today (its run key) and the experiment is declared as it was;
otherwise it is "stale". An experiment that was never recorded has no rows: its claims are not measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.errors import UserError, run_stage
from gemmrepro.experiments import declarations
from gemmrepro.experiments.declarations import Experiment
from gemmrepro.measure.checks.manifest import check_manifest
from gemmrepro.measure.recording import CurrentKeys, read_rows, rows_text, stale, with_status


def check_rows(experiment: Experiment, rows: list[dict[str, str]], path: Path) -> None:
    """Check every row against its columns. Raises UserError, naming the line and the column."""
    for number, row in enumerate(rows, 2):
        for column in experiment.columns:
            cell = row[column.name]
            if column.kind == "text" or cell == "":
                continue
            try:
                int(cell) if column.kind == "integer" else float(cell)
            except ValueError:
                raise UserError(
                    f"line {number} of the recording {path} is corrupt: {column.name} is '{cell}', which is no "
                    f"{column.kind}; {RESTORE}."
                ) from None


def mark(
    rows: Sequence[Mapping[str, str]], build: Path, run_keys: Mapping[str, str], same_declaration: bool
) -> list[dict[str, str]]:
    """`rows` with their status set: "current" where what ran then is what would run today, else "stale".

    Args:
        run_keys: the recorded run keys, by kernel and toolkit (``crt.fused cuda13``).
        same_declaration: whether the experiment is declared as it was when it was recorded; if not, all rows are stale.
    """
    current = CurrentKeys(build)

    def is_current(row: Mapping[str, str]) -> bool:
        kernel, toolkit = row["kernel"], row["toolkit"]
        keys = current.build_key(kernel, toolkit), current.run_key(kernel, toolkit)
        same_run = toolkit == LIBRARY or keys == (row["build_key"], run_keys.get(f"{kernel} {toolkit}"))
        return same_declaration and same_run

    return with_status(rows, is_current)


def bring(family: str, experiment: Experiment, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check one recording and copy it to `out` with its statuses set.

    Returns:
        (rows, stale rows); (0, 0) where the experiment was never recorded.

    Raises:
        UserError: the recording is incomplete or corrupt.
    """
    folder, out = Path(recorded) / family / declarations.RECORDINGS, Path(out)
    table, manifest = (folder / f"{experiment.name}.{suffix}" for suffix in ("csv", "json"))
    if not table.exists() and not manifest.exists():
        write_atomic(out / table.name, rows_text([], experiment.header))
        write_json(out / manifest.name, {"source": "none"})
        return 0, 0
    check_manifest(folder.parent, *(f"{declarations.RECORDINGS}/{path.name}" for path in (table, manifest)))
    run: dict[str, Any] = read_json(manifest, "the recording", RESTORE)
    schemas.check(run, "experiment.schema.yaml", f"the recording {manifest}")
    same = run["declared"] == declarations.fingerprint(experiment)
    try:
        rows = read_rows(table, experiment.header)
    except UserError:
        # It was recorded with other columns, so none of its rows can be read.
        if same:
            raise
        rows = []
    if same:
        check_rows(experiment, rows, table)
    marked = mark(rows, build, run["run_keys"], same)
    write_atomic(out / table.name, rows_text(marked, experiment.header))
    write_json(out / manifest.name, {**run, "source": "recorded"})
    return len(marked), stale(marked)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.experiments.recorded", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--family", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--recorded", type=Path, required=True, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    experiment = declarations.experiment(arguments.family, arguments.name)
    count, outdated = bring(arguments.family, experiment, arguments.recorded, arguments.build, arguments.out)
    rows = f"{count} rows" if count else "never recorded there; record it with workflow/scripts/record"
    if outdated:
        rows += f", {outdated} of them stale: today's build or declaration differs from what was measured"
    print(f"experiment_recorded: {arguments.family} {arguments.name}: {rows}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)
