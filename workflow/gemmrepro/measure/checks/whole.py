"""A family's whole recording, read and checked: cells, points, samples, what follows from them, limits, verdicts.

Rows that were made for tests from a description of a card, and not measured, say so: their run.json, of the sweep, of
each take of the regimes and of each experiment, holds ``"synthetic": true``. Every function that reads recordings
refuses them, unless its argument `synthetic` is true, which only tests pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.measure.checks.counters import check_counters
from gemmrepro.measure.checks.follows import check_rates, check_samples_of
from gemmrepro.measure.checks.gates import GATES, check_gates
from gemmrepro.measure.checks.manifest import check_manifest
from gemmrepro.measure.checks.physics import CEILINGS, Ceilings, check_limits
from gemmrepro.measure.checks.refusal import named, read_document, refused
from gemmrepro.measure.checks.samples import read_samples
from gemmrepro.measure.checks.sanitizers import SANITIZERS
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS, CounterRow
from gemmrepro.measure.plan import Settings, plan_points
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
from gemmrepro.registry import card


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


def read_whole(family: str, folder: Path, build: Path, synthetic: bool = False) -> Recording:
    """Read and check the recording of `family` in `folder`, whose neighbours are the same GPU's other families.

    Args:
        build: the folder of build records, whose keys decide which rows are current.
        synthetic: whether it may have been made for tests.

    Raises:
        UserError: a file is missing or corrupt, or names the first thing in it that cannot be.
    """
    check_manifest(folder, *FILES, GATES, SANITIZERS)
    rows = read_summary(folder)
    counted = read_rows(folder / COUNTERS, COUNTER_COLUMNS)
    check_cells(CounterRow, counted, folder / COUNTERS)
    run = read_run(folder, synthetic)
    raw, samples = read_samples(folder / SAMPLES)
    _check_family(family, rows, folder / SUMMARY)
    check_samples_of(rows, samples, folder / SUMMARY)
    with card.of(run["gpu"]):
        rows, counted = mark(rows, build), mark(counted, build)
        _check_points(family, rows, run, folder / SUMMARY)
        check_rates(family, rows, folder / SUMMARY)
    check_limits(family, rows, run, ceilings_of(folder.parent, run, synthetic), folder / SUMMARY)
    check_counters(counted, rows, run, folder / COUNTERS)
    check_gates(family, folder / GATES, run["gpu"]["name"])
    return Recording(rows, counted, run, raw)


def read_run(folder: Path, synthetic: bool = False) -> dict[str, Any]:
    """The circumstances of a recording. Raises UserError if the file is missing or corrupt, or rows are synthetic."""
    run: dict[str, Any] = read_document(folder / RUN, "run.schema.yaml")
    check_measured(run, folder / RUN, synthetic)
    return run


def check_measured(run: Mapping[str, Any], path: Path, synthetic: bool) -> None:
    """Raises UserError if the rows that `run` describes were made for tests, unless `synthetic` says that they may."""
    if run.get("synthetic") and not synthetic:
        raise UserError(f"the recording {path} is synthetic: its rows were made for tests; measure on a GPU instead.")


def _check_family(family: str, rows: Sequence[Mapping[str, str]], path: Path) -> None:
    for number, row in enumerate(rows, 2):
        if row["family"] != family:
            raise refused(path, f"line {number}", f"it is a row of family {row['family']}, and this is {family}")


def _check_points(family: str, rows: Sequence[Mapping[str, str]], run: Mapping[str, Any], path: Path) -> None:
    """Current rows have as many rounds as a sweep of run.json, and those of a kernel are all that it planned."""
    configs = [run["config"], *(sweep["config"] for sweep in run.get("earlier", []))]
    try:
        rounds = {str(config["rounds"]) for config in configs}
        settings = Settings.of(run["config"], family)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refused(path.with_name(RUN), "", "its config is no sweep section of a configuration") from None
    timed = {
        (row["kernel"], row["toolkit"]) for row in rows if row["status"] == "current" and row["toolkit"] != LIBRARY
    }
    timed -= {(entry["kernel"], entry["toolkit"]) for entry in run.get("skipped", [])}
    for number, row in enumerate(rows, 2):
        if row["status"] == "current" and row["rounds"] not in rounds:
            why = f"{named(row)} has {row['rounds']} rounds, and {RUN} {' or '.join(sorted(rounds))}"
            raise refused(path, f"line {number}", why)
    kernels = [kernel for kernel in registry.kernels(family) if kernel.timing.timed]
    planned, _ = plan_points(
        kernels, settings.sizes, settings.toolkits, settings.caches, lambda *_: None, settings.is_timed_at
    )
    there = {tuple(row[name] for name in ("kernel", "toolkit", "m", "n", "k", "cache")) for row in rows}
    for point in planned:
        axes = (str(axis) for axis in (point.shape.m, point.shape.n, point.shape.k))
        if (point.kernel, point.toolkit) in timed and (point.kernel, point.toolkit, *axes, point.cache) not in there:
            raise refused(path, "", f"it has no row of {point}, and {RUN} does not say that it was skipped")


def ceilings_of(recordings: Path, run: Mapping[str, Any], synthetic: bool = False) -> Ceilings:
    """The ceilings among a GPU's recordings; none if they were measured on another GPU than `run`, or never."""
    ceilings = recordings / CEILINGS
    if not (ceilings / SUMMARY).is_file() or not (ceilings / RUN).is_file():
        return Ceilings()
    of = read_run(ceilings, synthetic)
    return Ceilings.of(read_summary(ceilings), of) if of["gpu"]["name"] == run["gpu"]["name"] else Ceilings()
