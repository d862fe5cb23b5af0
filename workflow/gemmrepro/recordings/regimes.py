"""A family's recording of the regimes, read and checked: every cell that can be is computed again from its blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.measure.columns import (
    REGIME_COLUMNS,
    REGIME_POINT,
    SET,
    RegimeReading,
    RegimeRow,
    RegimeSample,
    kinds,
)
from gemmrepro.measure.derived import regime_cells
from gemmrepro.measure.recording import CEILINGS, check_cells, check_manifest, close, mark, read_rows, refused
from gemmrepro.measure.regimes import FILES, READINGS, RUN, SAMPLES, SUMMARY
from gemmrepro.measure.rows import RegimePoint, Subject, by_point
from gemmrepro.recordings.limits import check_limits
from gemmrepro.recordings.samples import Form, read_table
from gemmrepro.recordings.sweeps import ceilings_of, check_family, check_rates, mismatch, read_run
from gemmrepro.registry import card

Rows = Sequence[Mapping[str, str]]


def _form(table: type, empty: Sequence[str] = ()) -> Form:
    by_kind = kinds(table)
    texts, integers = ([name for name, kind in by_kind.items() if kind == wanted] for wanted in ("text", "integer"))
    return Form(list(by_kind), texts, integers, empty)


_SENSORS = ("clock_mhz", "power_w", "temp_c", "throttle", "energy_j")
_SAMPLES, _READINGS = _form(RegimeSample), _form(RegimeReading, _SENSORS)


@dataclass(frozen=True)
class RegimeRecording:
    """A take that passed every check; its rows carry the status they have today. The bytes are those of its files."""

    rows: list[dict[str, str]]
    samples: bytes
    readings: bytes
    run: Mapping[str, Any]


def read_take(family: str, folder: Path, build: Path, synthetic: bool = False) -> RegimeRecording:
    """Read and check one take of `family`: a folder that `takes` lists.

    Args:
        build: the folder of build records, whose keys decide which rows are current.
        synthetic: whether it may have been made for tests.

    Raises:
        UserError: a file is missing or corrupt, or names the first thing in it that cannot be.
    """
    recorded = folder.parent.parent
    check_manifest(recorded, *((folder / name).relative_to(recorded).as_posix() for name in FILES))
    run = read_run(folder, synthetic)
    _check_gpu(run, recorded, folder / RUN)
    ceilings = ceilings_of(recorded.parent, run, synthetic)
    path = folder / SUMMARY
    rows = read_rows(path, REGIME_COLUMNS)
    check_cells(RegimeRow, rows, path)
    raw_samples, samples = read_table(folder / SAMPLES, _SAMPLES)
    raw_readings, readings = read_table(folder / READINGS, _READINGS)
    _check_readings(readings.to_pandas(), folder / READINGS)
    try:
        found = by_point(samples.to_pandas(), readings.to_pandas())
    except ValueError as error:
        raise refused(folder / SAMPLES, "", str(error)) from None
    _check_rows(family, rows, found, path)
    with card.of(run["gpu"]):
        rows = mark(rows, build)
        # A point of one regime is none of the other's.
        apart = [{**row, "cache": row["regime"]} for row in rows]
        check_rates(family, apart, path)
    check_limits(family, apart, run, ceilings, path)
    return RegimeRecording(rows, raw_samples, raw_readings, run)


def point_of(row: Mapping[str, str]) -> RegimePoint:
    """The point of a row."""
    return tuple(row[name] for name in REGIME_POINT)


def chosen(found: Sequence[RegimeRecording]) -> dict[RegimePoint, int]:
    """The number of the take in `found` whose row of a point counts: the last one with a current row.

    The rows of that point in other takes are superseded.
    """
    takes: dict[RegimePoint, int] = {}
    statuses: dict[RegimePoint, str] = {}
    for number, take in enumerate(found):
        for row in take.rows:
            point = point_of(row)
            if (statuses.get(point), row["status"]) != ("current", "stale"):
                takes[point], statuses[point] = number, row["status"]
    return takes


def _check_gpu(run: Mapping[str, Any], recorded: Path, path: Path) -> None:
    """A take is of the model of its neighbours: without their ceilings no rate of it would be limited."""
    gpu = run["gpu"]["name"]
    for folder in (recorded, recorded.parent / CEILINGS):
        if (folder / RUN).is_file() and (other := read_run(folder, True)["gpu"]["name"]) != gpu:
            raise refused(path, "", f"it was taken on {gpu}, and {folder.name} was recorded on {other}")


def _check_readings(readings: pd.DataFrame, path: Path) -> None:
    """Within a block, time advances and the energy counter never goes back."""
    for name, part in readings.groupby([*REGIME_POINT, "block"], sort=False):
        for column, strict in (("at_s", True), ("energy_j", False)):
            steps = part[column].astype(float).dropna().diff().dropna()
            if (steps <= 0).any() if strict else (steps < 0).any():
                where = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
                raise refused(path, "", f"{column} goes back in block {where}")


def _check_rows(family: str, rows: Rows, found: Mapping[RegimePoint, Subject], path: Path) -> None:
    """Rows and blocks are of the same points, in balanced passes, and every cell is what the blocks give."""
    check_family(family, rows, path)
    seen: set[RegimePoint] = set()
    for number, row in enumerate(rows, 2):
        place, point = f"line {number}", tuple(row[name] for name in REGIME_POINT)
        if point in seen:
            raise refused(path, place, f"it repeats {' '.join(point)}")
        if point not in found:
            raise refused(path, place, f"{' '.join(point)} has no samples")
        seen.add(point)
        if found[point].build_keys != {row["build_key"]}:
            keys = ", ".join(sorted(found[point].build_keys))
            raise refused(path, place, f"its build key is {row['build_key']}, and that of its samples {keys}")
        _check_row(row, point, found, path, place)
    if lost := found.keys() - seen:
        raise refused(path, "", f"it has no row of {' '.join(min(lost))}, of which there are samples")
    _check_order(found, _operations(family, rows), path)


def _check_row(
    row: Mapping[str, str], point: RegimePoint, found: Mapping[RegimePoint, Subject], path: Path, place: str
) -> None:
    baseline = None
    if row["baseline"]:
        other = found.get((row["baseline"], LIBRARY, *(row[name] for name in SET)))
        if other is None or len(other.blocks) != len(found[point].blocks):
            raise refused(path, place, f"{row['baseline']} was not measured in the same passes")
        baseline = other.blocks
    for column, value in regime_cells(row["regime"], found[point].blocks, baseline).items():
        same = row[column] == value if isinstance(value, str) else close(row[column], value)
        if not same:
            why = mismatch(row[column], value) if not isinstance(value, str) else f"is {row[column]}"
            raise refused(path, place, f"{column} of {' '.join(point)} {why}")


def _operations(family: str, rows: Rows) -> dict[RegimePoint, str]:
    """The operation of each point, a library's by the kernels that it is compared with; "" if none is declared."""
    declared = {kernel.id: kernel.compute.op for kernel in registry.kernels(family)}
    found: dict[RegimePoint, str] = {}
    for row in rows:
        if row["toolkit"] != LIBRARY:
            members, operation = tuple(row[name] for name in SET), declared.get(row["kernel"], "")
            found[row["kernel"], row["toolkit"], *members] = operation
            found[row["baseline"], LIBRARY, *members] = operation
    return found


def _check_order(found: Mapping[RegimePoint, Subject], operations: Mapping[RegimePoint, str], path: Path) -> None:
    """Every pass over a set visits each subject once, and every second pass the other way round.

    A set is of one operation: products with and without scales may have the same types and sizes.
    """
    orders: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for point, subject in found.items():
        blocks = orders.setdefault((operations.get(point, ""), *point[2:]), [])
        blocks.extend((number, " ".join(point[:2])) for number in subject.numbers)
    for members, blocks in orders.items():
        order = [name for _, name in sorted(blocks)]
        count = len(set(order))
        passes = [order[start : start + count] for start in range(0, len(order), count)]
        whole = sorted(number for number, _ in blocks) == list(range(len(order))) and len(passes) % 2 == 0
        if not whole or any(each != passes[0][:: -1 if number % 2 else 1] for number, each in enumerate(passes)):
            raise refused(path, "", f"the blocks of {' '.join(members[1:])} are not in a balanced order")
