"""Reads recorded experiments: what is checked of them, and which rows are of today's binaries and experiments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import experiments
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.errors import UserError
from gemmrepro.experiments import AFTER, BEFORE, Experiment
from gemmrepro.measure.columns import TEXT, number
from gemmrepro.measure.recording import (
    RATES,
    CurrentKeys,
    check_manifest,
    check_measured,
    close,
    read_document,
    read_rows,
    refused,
    with_status,
)
from gemmrepro.registry import card


def check_rows(experiment: Experiment, rows: list[dict[str, str]], path: Path, highest: float = 0.0) -> None:
    """Check every row against its columns and its clocks, and that none occurs twice.

    Args:
        highest: the GPU's highest SM clock in MHz; 0 if unknown.

    Raises:
        UserError: names the first line that cannot be, and why.
    """
    kinds = dict.fromkeys((*BEFORE, *AFTER), "text") | {column.name: column.kind for column in experiment.columns}
    seen: set[tuple[str, ...]] = set()
    for line, row in enumerate(rows, 2):
        if (cells := tuple(row.values())) in seen:
            raise UserError(f"line {line} of the recording {path} is corrupt: it repeats another row; {RESTORE}.")
        seen.add(cells)
        for name, kind in kinds.items():
            cell = row[name]
            fits = re.search(TEXT, cell) if kind == "text" else number(cell, kind) is not None
            if cell and not fits:
                what = "not printable ASCII" if kind == "text" else f"no {kind}"
                raise refused(path, f"line {line}", f"{name} is {cell!a}, which is {what}")
        if wrong := _does_not_follow(experiment, row):
            raise refused(path, f"line {line}", wrong)
        if experiment.clocks and (wrong := experiment.clocks.complaint(row, highest)):
            raise UserError(f"line {line} of the recording {path} cannot be: {wrong}; {RESTORE}.")


def _does_not_follow(experiment: Experiment, row: Mapping[str, str]) -> str:
    """What is wrong with the columns of a row that follow from others; "" if nothing is, or if those are empty."""
    cells: dict[str, Any] = {name: cell for name, cell in row.items() if cell}
    cells |= {
        column.name: number(row[column.name], column.kind)
        for column in experiment.columns
        if column.kind != "text" and column.name in cells
    }
    for name, function in experiment.follows.items():
        try:
            value = function(cells)
        except (KeyError, ZeroDivisionError):
            continue
        if not close(row[name], value, RATES):
            return f"{name} is {row[name]}, and from the rest of its row follows {value:.6g}"
    return ""


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


def read_checked(
    family: str, experiment: Experiment, recorded: Path, build: Path, synthetic: bool = False
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """An experiment's recorded rows with their statuses set, and their circumstances; empty if never recorded.

    Args:
        recorded: the folder of a GPU's recordings.
        synthetic: whether it may have been made for tests.

    Raises:
        UserError: the recording is incomplete or corrupt.
    """
    folder = Path(recorded) / family / experiments.RECORDINGS
    table, manifest = (folder / f"{experiment.name}.{suffix}" for suffix in ("csv", "json"))
    if not table.exists() and not manifest.exists():
        return [], {}
    check_manifest(folder.parent, *(f"{experiments.RECORDINGS}/{path.name}" for path in (table, manifest)))
    run: dict[str, Any] = read_document(manifest, "experiment.schema.yaml")
    check_measured(run, manifest, synthetic)
    same = run["declared"] == experiments.fingerprint(experiment)
    try:
        rows = read_rows(table, experiment.header)
    except UserError:
        # It was recorded with other columns, so none of its rows can be read.
        if same:
            raise
        rows = []
    if same:
        check_rows(experiment, rows, table, (run["gpu"] or {}).get("clock_max_mhz") or 0.0)
    with card.of(run["gpu"]):
        return mark(rows, build, run["run_keys"], same), run
