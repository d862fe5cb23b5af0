"""Bring committed recordings into the results, checked, and mark what no longer belongs to today's binaries.

    python -m gemmrepro recorded-rows --families ladder,hopper --recorded reports/recorded/h200 \\
        --build results/build --out results/measure --regimes results/regimes

A row is "current" if its build key and run key are those of today's build of the same kernel with the same toolkit,
else "stale"; rows of libraries have no build. What can be computed is not believed: a row that does not follow from its
samples, or cannot be on its GPU, is refused.

Every take of the regimes is checked. Each row is of the last take that has it, a current row before a stale one, and
its ratio is to that take's baseline. run.json also says how far takes agree.
"""

import io
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import experiments
from gemmrepro.core.files import csv_text, parquet, write_atomic, write_json
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.errors import UserError
from gemmrepro.experiments import AFTER, BEFORE, Experiment
from gemmrepro.measure import regimes as taken
from gemmrepro.measure.columns import COUNTER_COLUMNS, REGIME_COLUMNS, SUMMARY_COLUMNS, Column, number
from gemmrepro.measure.recording import (
    COUNTERS,
    FILES,
    GATES,
    RATES,
    RUN,
    SAMPLES,
    SANITIZERS,
    SUMMARY,
    CurrentKeys,
    check_cells,
    check_manifest,
    check_measured,
    close,
    read_document,
    read_rows,
    refused,
    stale,
    with_status,
    write_nothing,
)
from gemmrepro.measure.rows import RegimePoint, write_no_regimes
from gemmrepro.recordings.limits import check_gates
from gemmrepro.recordings.regimes import POINT, agreement, read_takes
from gemmrepro.recordings.sweeps import read_whole
from gemmrepro.registry import card


def bring_sweep(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set; returns (rows, stale rows).
    A family that the recordings of this GPU lack gets no rows: its claims are "not measured"."""
    folder = recorded / family
    # Gates and experiments may have been recorded without any times.
    timed = any((folder / name).exists() for name in FILES)
    if not timed and recorded.is_dir():
        check_manifest(folder, GATES, SANITIZERS)
        check_gates(family, folder / GATES)
        write_nothing(out)
        return 0, 0
    if not folder.is_dir():
        gpus = ", ".join(sorted(path.name for path in recorded.parent.glob("*") if (path / family).is_dir()))
        there = f"family {family} is recorded for {gpus}" if gpus else f"family {family} never was recorded"
        remedy = "Set recorded_gpu, or record with workflow/scripts/record."
        raise UserError(f"there is no recording {folder}; {there}. {remedy}")
    recording = read_whole(family, folder, build)
    write_atomic(out / SUMMARY, csv_text(recording.rows, SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, csv_text(recording.counters, COUNTER_COLUMNS))
    write_atomic(out / SAMPLES, recording.samples)
    write_json(out / RUN, {**recording.run, "source": "recorded"})
    return len(recording.rows), stale(recording.rows)


def bring_regimes(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check the takes of `family` and bring their rows to `out` with statuses set; returns (rows, stale rows)."""
    found, take_of, rows = read_takes(family, recorded, build)
    if not found:
        write_no_regimes(out)
        return 0, 0
    runs = [take.run for place, take in enumerate(found[:-1]) if place in take_of.values()]
    earlier = [{"date": run["date"], "card": run["gpu"].get("card", "")} for run in runs]
    write_atomic(out / taken.SUMMARY, csv_text(rows, REGIME_COLUMNS))
    write_atomic(out / taken.SAMPLES, _table([take.samples for take in found], take_of))
    write_atomic(out / taken.READINGS, _table([take.readings for take in found], take_of))
    agrees = agreement([(take.run, take.rows) for take in found])
    brought = {"source": "recorded", "earlier": earlier, "take_of": {" ".join(of): i for of, i in take_of.items()}}
    write_json(out / taken.RUN, {**found[-1].run, **brought, **agrees})
    return len(rows), stale(rows)


def _table(tables: Sequence[bytes], take_of: Mapping[RegimePoint, int]) -> bytes:
    """The samples or readings of the rows that are brought, from those of each take."""
    numbers = sorted(set(take_of.values()))
    if len(numbers) == 1:
        return tables[numbers[0]]
    frames = []
    for place in numbers:
        frame = pd.read_parquet(io.BytesIO(tables[place]))
        points = zip(*(frame[column].astype(str) for column in POINT), strict=True)
        frames.append(frame[[take_of.get(point) == place for point in points]])
    return parquet(pd.concat(frames, ignore_index=True))


def main(options: Namespace) -> int:
    places = options.recorded, options.build
    for family in options.families.split(","):
        if options.out is not None:
            _tell(f"recorded: {family}", *bring_sweep(family, *places, options.out / family))
        if options.regimes is not None:
            _tell(f"regimes: {family}", *bring_regimes(family, *places, options.regimes / family))
    return 0


def _tell(what: str, rows: int, outdated: int) -> None:
    count = f"{rows} rows" if rows else "never recorded there; record it with workflow/scripts/record"
    note = (
        f", {outdated} of them stale: what was measured differs from today's build or declaration" if outdated else ""
    )
    print(f"{what}: {count}{note}", file=sys.stderr)


def bring_experiment(family: str, experiment: Experiment, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check one recording and copy it to `out` with its statuses set; returns (rows, stale rows)."""
    rows, run = read_checked(family, experiment, recorded, build)
    write_atomic(out / f"{experiment.name}.csv", csv_text(rows, experiment.header))
    write_json(out / f"{experiment.name}.json", {**run, "source": "recorded"} if run else {"source": "none"})
    return len(rows), stale(rows)


def experiments_step(options: Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)  # also where no family has experiments
    for family, _, names in (told.partition("=") for told in options.experiments):
        for experiment in (experiments.experiment(family, name) for name in names.split(",")):
            place = options.recorded, options.build, options.out / family
            _tell(f"experiment_recorded: {family} {experiment.name}", *bring_experiment(family, experiment, *place))
    return 0


def check_rows(experiment: Experiment, rows: list[dict[str, str]], path: Path, highest: float = 0.0) -> None:
    """Check every row against its columns and what its experiment says of it, and that none occurs twice.
    `highest`: the GPU's highest SM clock in MHz; 0 if unknown."""
    kinds: dict[str, Any] = dict.fromkeys((*BEFORE, *AFTER), "text")
    kinds |= {column.name: column.kind for column in experiment.columns}
    check_cells({name: Column("", kind, optional=True) for name, kind in kinds.items()}, rows, path)
    seen: set[tuple[str, ...]] = set()
    for line, row in enumerate(rows, 2):
        if (cells := tuple(row.values())) in seen:
            raise refused(path, f"line {line}", "it repeats another row")
        seen.add(cells)
        if wrong := _does_not_follow(experiment, row):
            raise refused(path, f"line {line}", wrong)
        if experiment.impossible and (wrong := experiment.impossible(row, highest)):
            raise UserError(f"line {line} of the recording {path} cannot be: {wrong}; {RESTORE}.")


def _does_not_follow(experiment: Experiment, row: Mapping[str, str]) -> str:
    """The fault in the columns of a row that follow from others; "" if there is none, or if those are empty."""
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


def read_checked(
    family: str, experiment: Experiment, recorded: Path, build: Path
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """An experiment's recorded rows with their statuses set, and their circumstances; empty if never recorded.
    `recorded`: the folder of a GPU's recordings."""
    folder = Path(recorded) / family / experiments.RECORDINGS
    table, manifest = (folder / f"{experiment.name}.{suffix}" for suffix in ("csv", "json"))
    if not table.exists() and not manifest.exists():
        return [], {}
    check_manifest(folder.parent, *(f"{experiments.RECORDINGS}/{path.name}" for path in (table, manifest)))
    run: dict[str, Any] = read_document(manifest, "experiment.schema.yaml")
    check_measured(run, manifest)
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
        return _marked(rows, build, run["run_keys"], same), run


def _marked(
    rows: Sequence[Mapping[str, str]], build: Path, run_keys: Mapping[str, str], same_declaration: bool
) -> list[dict[str, str]]:
    """`rows` with their status set: "current" where what ran then is what would run today, else "stale".
    `run_keys`: the recorded run keys, by kernel and toolkit (``crt.fused cuda13``)."""
    current = CurrentKeys(build)

    def is_current(row: Mapping[str, str]) -> bool:
        kernel, toolkit = row["kernel"], row["toolkit"]
        keys = current.build_key(kernel, toolkit), current.run_key(kernel, toolkit)
        same_run = toolkit == LIBRARY or keys == (row["build_key"], run_keys.get(f"{kernel} {toolkit}"))
        return same_declaration and same_run

    return with_status(rows, is_current)
