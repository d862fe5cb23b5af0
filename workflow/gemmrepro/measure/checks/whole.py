"""A family's whole recording, read and checked: cells, samples, what follows from them, limits, counters, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json
from gemmrepro.core.names import RESTORE
from gemmrepro.measure.checks.counters import check_counters
from gemmrepro.measure.checks.follows import check_rates, check_samples_of
from gemmrepro.measure.checks.gates import GATES, check_gates
from gemmrepro.measure.checks.manifest import check_manifest
from gemmrepro.measure.checks.physics import CEILINGS, Ceilings, check_limits
from gemmrepro.measure.checks.refusal import refused
from gemmrepro.measure.checks.samples import read_samples
from gemmrepro.measure.checks.sanitizers import SANITIZERS, read_sanitizers
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS, CounterRow
from gemmrepro.measure.recording import (
    COUNTERS,
    FILES,
    RUN,
    SAMPLES,
    SUMMARY,
    check_cells,
    check_rows,
    mark,
    read_rows,
)


@dataclass(frozen=True)
class Recording:
    """A family's recording that passed every check; its rows and counters carry the status they have today.

    `samples` holds the bytes of samples.parquet.
    """

    rows: list[dict[str, str]]
    counters: list[dict[str, str]]
    run: Mapping[str, Any]
    samples: bytes


def read_summary(folder: Path) -> list[dict[str, str]]:
    """The rows of a recording's summary as text. Raises UserError if it is missing or any cell is invalid."""
    rows = read_rows(folder / SUMMARY, SUMMARY_COLUMNS)
    check_rows(rows, folder / SUMMARY)
    return rows


def read_whole(family: str, folder: Path, build: Path) -> Recording:
    """Read and check the recording of `family` in `folder`, whose neighbours are the same GPU's other families.

    Args:
        build: the folder of build records, whose keys decide which rows are current.

    Raises:
        UserError: a file is missing or corrupt, or names the first thing in it that cannot be.
    """
    check_manifest(folder, *FILES, GATES, SANITIZERS)
    rows = read_summary(folder)
    counted = read_rows(folder / COUNTERS, COUNTER_COLUMNS)
    check_cells(CounterRow, counted, folder / COUNTERS)
    run = read_run(folder)
    raw, samples = read_samples(folder / SAMPLES)
    _check_family(family, rows, folder / SUMMARY)
    check_samples_of(rows, samples, folder / SUMMARY)
    rows, counted = mark(rows, build), mark(counted, build)
    check_rates(family, rows, folder / SUMMARY)
    check_limits(family, rows, run, ceilings_of(folder.parent, run), folder / SUMMARY)
    check_counters(counted, rows, run, folder / COUNTERS)
    check_gates(family, folder / GATES, run["gpu"]["name"])
    read_sanitizers(family, folder / SANITIZERS, run["gpu"]["name"])
    return Recording(rows, counted, run, raw)


def read_run(folder: Path) -> dict[str, Any]:
    """The circumstances of a recording. Raises UserError if the file is missing or corrupt."""
    run: dict[str, Any] = read_json(folder / RUN, "the recording", RESTORE)
    schemas.check(run, "run.schema.yaml", f"the recording {folder / RUN}")
    return run


def _check_family(family: str, rows: Sequence[Mapping[str, str]], path: Path) -> None:
    for number, row in enumerate(rows, 2):
        if row["family"] != family:
            raise refused(path, f"line {number}", f"it is a row of family {row['family']}, and this is {family}")


def ceilings_of(recordings: Path, run: Mapping[str, Any]) -> Ceilings:
    """The ceilings among a GPU's recordings; none if they were measured on another GPU than `run`, or never."""
    ceilings = recordings / CEILINGS
    if not (ceilings / SUMMARY).is_file() or not (ceilings / RUN).is_file():
        return Ceilings()
    of = read_run(ceilings)
    return Ceilings.of(read_summary(ceilings), of) if of["gpu"]["name"] == run["gpu"]["name"] else Ceilings()
