"""Adds a sweep to a family's recording, whose other rows stay unless a build here says that they are stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.files import csv_text, parquet, read_json, write_atomic, write_json
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.plan import Settings
from gemmrepro.measure.prepare import is_built, timed_kernels
from gemmrepro.measure.recording import COUNTERS, POINT, RUN, SAMPLES, SUMMARY, mark, read_rows
from gemmrepro.recordings.sweeps import place_of, planned
from gemmrepro.registry import card

_EARLIER = ("date", "git_commit", "gpu", "libraries", "toolkits", "config")


def missing(family: str, settings: Settings, recorded: Path, build: Path) -> list[str]:
    """Ids of the timed kernels of `family` that lack a current row of a point that `settings` ask for.

    Args:
        recorded: the folder of the family's recording; it need not exist.
        build: the folder of build records, whose keys decide what is current.

    Raises:
        UserError: the recording is corrupt.
    """
    rows = _marked(recorded / SUMMARY, SUMMARY_COLUMNS, build) if (recorded / SUMMARY).is_file() else []
    have = {place_of(row) for row in rows if row["status"] == "current"}
    points = planned(list(timed_kernels(family).values()), settings)
    lacking = {point.kernel for place, point in points.items() if point.toolkit != LIBRARY and place not in have}
    return [kernel.id for kernel in registry.kernels(family) if kernel.id in lacking]


def covered(recorded: Path) -> dict[str, list[str]]:
    """Toolkits and cache states of the rows in `recorded`, as settings of a sweep; {} where nothing is recorded.

    Raises:
        UserError: the recording is corrupt.
    """
    if not (recorded / SUMMARY).is_file():
        return {}
    rows = [row for row in read_rows(recorded / SUMMARY, SUMMARY_COLUMNS) if row["toolkit"] != LIBRARY]
    if not rows:
        return {}
    return {
        name: sorted({row[column] for row in rows}) for name, column in (("toolkits", "toolkit"), ("caches", "cache"))
    }


def _marked(path: Path, columns: Sequence[str], build: Path) -> list[dict[str, str]]:
    """Recorded rows with their status, without those of kernels that are gone.

    What is not built here, such as another toolkit's binaries, keeps the status that it has.
    """
    known = {kernel.id: kernel for kernel in registry.kernels()}
    rows = [row for row in read_rows(path, columns) if row["toolkit"] == LIBRARY or row["kernel"] in known]

    def unknown(row: Mapping[str, str]) -> bool:
        if row["toolkit"] == LIBRARY:
            return False
        kernel = known[row["kernel"]]
        return row["toolkit"] in kernel.platform.toolkits and not is_built(kernel, row["toolkit"], build)

    return [row if unknown(row) else marked for row, marked in zip(rows, mark(rows, build), strict=True)]


def _point(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple("" if pd.isna(row[name]) else str(row[name]) for name in POINT)


def merge(measured: Path, recorded: Path, build: Path) -> int:
    """Write into `recorded` the rows of `measured`, and those of its own that are not stale and not measured anew.

    run.json is that of `measured`; its `earlier` says how the other rows were taken. Returns how many these are.

    Raises:
        UserError: one of the two is corrupt.
    """
    new = read_rows(measured / SUMMARY, SUMMARY_COLUMNS)
    gpu = read_json(measured / RUN, "what was measured", "measure again")["gpu"]
    with card.of(gpu):
        old = _marked(recorded / SUMMARY, SUMMARY_COLUMNS, build)
        counters = _counters(measured, recorded, build)
    taken = {_point(row) for row in new}
    kept = [row for row in old if row["status"] == "current" and _point(row) not in taken]
    samples = _samples(measured, recorded, {_point(row) for row in kept})
    run = _run(measured, recorded, kept, {row["kernel"] for row in new})
    write_atomic(recorded / SUMMARY, csv_text(_ordered([*kept, *new]), SUMMARY_COLUMNS))
    write_atomic(recorded / SAMPLES, samples)
    write_atomic(recorded / COUNTERS, csv_text(_ordered(counters), COUNTER_COLUMNS))
    write_json(recorded / RUN, run)
    return len(kept)


def _ordered(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows by size, then in the order of KERNELS, libraries last; their order is otherwise kept."""
    places = {kernel.id: place for place, kernel in enumerate(registry.kernels())}
    return sorted(
        rows, key=lambda row: (int(row["m"]) * int(row["n"]) * int(row["k"]), places.get(row["kernel"], len(places)))
    )


def _samples(measured: Path, recorded: Path, kept: set[tuple[str, ...]]) -> bytes:
    """samples.parquet with all samples of `measured`, and those of the points `kept` of `recorded`."""
    old = pd.read_parquet(recorded / SAMPLES)
    points = old[list(POINT)].drop_duplicates()
    stay = points[[_point(row) in kept for row in points.to_dict("records")]]
    old = old.merge(stay, on=list(POINT), how="inner")
    frames = [frame for frame in (old, pd.read_parquet(measured / SAMPLES)) if len(frame)]
    together = pd.concat(frames, ignore_index=True) if frames else pd.read_parquet(measured / SAMPLES)
    return parquet(together)


def _counters(measured: Path, recorded: Path, build: Path) -> list[dict[str, str]]:
    new = read_rows(measured / COUNTERS, COUNTER_COLUMNS)
    old = _marked(recorded / COUNTERS, COUNTER_COLUMNS, build)

    def run(row: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(row[name] for name in ("kernel", "toolkit", "m", "n", "k"))

    taken = {run(row) for row in new}
    return [*(row for row in old if row["status"] == "current" and run(row) not in taken), *new]


def _run(measured: Path, recorded: Path, kept: list[dict[str, str]], swept: set[str]) -> dict[str, Any]:
    """run.json of `measured`, which timed the kernels `swept`, with what still holds of the one of `recorded`."""
    new = read_json(measured / RUN, "what was measured", "measure again")
    old = read_json(recorded / RUN, "the recording", RESTORE)
    kernels = sorted({row["kernel"] for row in kept if row["toolkit"] != LIBRARY})
    earlier = [
        {**sweep, "kernels": still}
        for sweep in old.get("earlier", [])
        if (still := [kernel for kernel in sweep["kernels"] if kernel in kernels])
    ]
    listed = {kernel for sweep in earlier for kernel in sweep["kernels"]}
    if rest := [kernel for kernel in kernels if kernel not in listed]:
        earlier.append({**{name: old[name] for name in _EARLIER}, "kernels": rest})
    modes = {mode: list(points) for mode, points in new.get("timing_modes", {}).items()}
    names = {row["kernel"] for row in kept}
    new_points = {point for points in modes.values() for point in points}
    for mode, points in old.get("timing_modes", {}).items():
        stay = [point for point in points if point.split()[0] in names and point not in new_points]
        if stay:
            modes.setdefault(mode, []).extend(stay)
    skipped = [entry for entry in old.get("skipped", []) if entry["kernel"] in names - swept]
    return {
        **new,
        "baseline_kernels": {**old["baseline_kernels"], **new["baseline_kernels"]},
        "baseline_algorithms": {**old.get("baseline_algorithms", {}), **new.get("baseline_algorithms", {})},
        "toolkits": {**old["toolkits"], **new["toolkits"]},
        "skipped": [*new.get("skipped", []), *skipped],
        "timing_modes": modes,
        "earlier": earlier,
    }
