"""Bring a committed recording into results/measure, and mark what no longer belongs to today's binaries.

    python -m gemmrepro.measure.recorded --family ladder --recorded reports/recorded/h200 --build results/build \\
        --out results/measure/ladder
    python -m gemmrepro.measure.recorded --compare FOLDER FOLDER      (do two recordings of a family agree?)

A row is "current" if its build key is that of today's build of the same kernel with the same toolkit, and "stale"
otherwise, also where that toolkit was not built. Rows of libraries have no build and are always current.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmrepro.build.record import today
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.schemas import check
from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure.rows import (
    _INTEGERS,
    _REMEDY,
    COUNTER_COLUMNS,
    SAMPLE_COLUMNS,
    SUMMARY_COLUMNS,
    TEXT_COLUMNS,
    _text,
    write_nothing,
)
from gemmrepro.stats import Interval


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """A CSV's rows as text.

    Raises:
        UserError: the file is missing, or is not a CSV with exactly these columns in every line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file, strict=True))
    except FileNotFoundError:
        raise UserError(f"the recording {path} is missing; {_REMEDY}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"the recording {path} is corrupt ({error}); {_REMEDY}.") from None
    if not lines or lines[0] != list(columns):
        raise UserError(f"the recording {path} does not begin with the columns {', '.join(columns)}; {_REMEDY}.")
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(columns):
            raise UserError(
                f"the recording {path} has {len(line)} cells in line {number} instead of {len(columns)}; {_REMEDY}."
            )
    return [dict(zip(columns, line, strict=True)) for line in lines[1:]]


def typed(row: dict[str, str]) -> dict[str, Any]:
    """A summary row with its numbers as numbers and empty cells as None; text where a number is not one."""

    def value(column: str, cell: str) -> Any:
        if cell == "":
            return None
        if column in TEXT_COLUMNS:
            return cell
        try:
            return int(cell) if column in _INTEGERS else float(cell)
        except ValueError:
            return cell

    return {column: value(column, cell) for column, cell in row.items()}


def check_rows(rows: list[dict[str, str]], path: Path) -> None:
    """Check every summary row: its schema, that its intervals hold their values, and that no point occurs twice."""
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 2):
        what = f"line {number} of the recording {path}"
        data = typed(row)
        check(data, "row.schema.yaml", what)
        for low, value, high in (
            ("ci_low_us", "median_us", "ci_high_us"),
            ("ratio_ci_low", "ratio", "ratio_ci_high"),
        ):
            ends = [data[low], data[value], data[high]]
            if None not in ends and ends != sorted(ends):
                raise UserError(f"{what} is corrupt: {value} lies outside its interval; {_REMEDY}.")
        point = tuple(row[column] for column in ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache"))
        if point in seen:
            raise UserError(f"{what} is corrupt: it repeats {' '.join(filter(None, point))}; {_REMEDY}.")
        seen.add(point)


def check_samples(path: Path) -> bytes:
    """The content of samples.parquet once it was found to be whole. Raises UserError."""
    import pyarrow
    import pyarrow.parquet

    try:
        raw = path.read_bytes()
        columns = pyarrow.parquet.read_table(pyarrow.BufferReader(raw)).column_names
    except FileNotFoundError:
        raise UserError(f"the recording {path} is missing; {_REMEDY}.") from None
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"the recording {path} is corrupt ({error}); {_REMEDY}.") from None
    if columns != list(SAMPLE_COLUMNS):
        raise UserError(f"the recording {path} has the columns {', '.join(columns)}; {_REMEDY}.")
    return raw


def mark(rows: list[dict[str, str]], build: Path) -> list[dict[str, str]]:
    """`rows` of a summary or of counters with their status set by comparing build keys."""
    keys = {
        (row["kernel"], row["toolkit"]): today(row["kernel"], row["toolkit"], build)
        for row in rows
        if row["toolkit"] != LIBRARY
    }

    def status(row: dict[str, str]) -> str:
        current = row["toolkit"] == LIBRARY or keys[row["kernel"], row["toolkit"]] == row["build_key"]
        return "current" if current else "stale"

    return [{**row, "status": status(row)} for row in rows]


def bring(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set.

    A family that was never recorded on a GPU of which others were has no rows: its claims are "not measured".

    Returns:
        (rows, stale rows).

    Raises:
        UserError: there is no recording of that GPU at all, or a file of this one is missing or corrupt.
    """
    folder, out = Path(recorded) / family, Path(out)
    # Gates and experiments may have been recorded without any times.
    timed = any((folder / name).exists() for name in ("summary.csv", "samples.parquet", "run.json", "counters.csv"))
    if not timed and Path(recorded).is_dir():
        write_nothing(out)
        return 0, 0
    if not folder.is_dir():
        others = sorted(path.name for path in Path(recorded).parent.glob("*") if (path / family).is_dir())
        known = (
            f"family {family} is recorded for {', '.join(others)}" if others else f"family {family} never was recorded"
        )
        raise UserError(
            f"there is no recording {folder}; {known}. Set recorded_gpu, or record with workflow/scripts/record."
        )
    rows = read_rows(folder / "summary.csv", SUMMARY_COLUMNS)
    check_rows(rows, folder / "summary.csv")
    counted = read_rows(folder / "counters.csv", COUNTER_COLUMNS)
    run = read_json(folder / "run.json", "the recording", _REMEDY)
    check(run, "run.schema.yaml", f"the recording {folder / 'run.json'}")
    samples = check_samples(folder / "samples.parquet")
    marked = mark(rows, build)
    write_atomic(out / "summary.csv", _text(marked, SUMMARY_COLUMNS))
    write_atomic(out / "counters.csv", _text(mark(counted, build), COUNTER_COLUMNS))
    write_atomic(out / "samples.parquet", samples)
    write_json(out / "run.json", {**run, "source": "recorded"})
    return len(marked), sum(row["status"] == "stale" for row in marked)


def compare(first: Path, second: Path) -> dict[str, Any]:
    """Whether two recordings of a family agree within their intervals, point by point.

    Returns:
        {points, times_agree, ratios_agree, apart: [points whose intervals do not meet], largest_time_difference,
        largest_ratio_difference (relative)}.
    """
    sides = []
    for folder in (Path(first), Path(second)):
        rows = read_rows(folder / "summary.csv", SUMMARY_COLUMNS)
        check_rows(rows, folder / "summary.csv")
        typed_rows = [typed(row) for row in rows]
        sides.append(
            {" ".join(str(row[c]) for c in ("kernel", "toolkit", "m", "n", "k", "cache")): row for row in typed_rows}
        )
    shared = [point for point in sides[0] if point in sides[1]]
    if not shared:
        raise UserError(f"{first} and {second} share no point; compare recordings of the same family.")
    apart: list[str] = []
    agree, counted, largest = {"time": 0, "ratio": 0}, {"time": 0, "ratio": 0}, {"time": 0.0, "ratio": 0.0}
    for point in shared:
        for quantity, columns in (
            ("time", ("median_us", "ci_low_us", "ci_high_us")),
            ("ratio", ("ratio", "ratio_ci_low", "ratio_ci_high")),
        ):
            one, other = (Interval(*(side[point][column] for column in columns)) for side in sides)
            if one.value is None or other.value is None:
                continue
            counted[quantity] += 1
            difference = other.value / one.value - 1
            largest[quantity] = max(largest[quantity], abs(difference))
            if one.overlaps(other):
                agree[quantity] += 1
            else:
                apart.append(
                    f"{point}: {quantity} {one.value:.6g} [{one.low:.6g}, {one.high:.6g}] and "
                    f"{other.value:.6g} [{other.low:.6g}, {other.high:.6g}], {100 * difference:+.2f}%"
                )
    return {
        "points": len(shared),
        "times_agree": [agree["time"], counted["time"]],
        "ratios_agree": [agree["ratio"], counted["ratio"]],
        "apart": apart,
        "largest_time_difference": largest["time"],
        "largest_ratio_difference": largest["ratio"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.measure.recorded", description=__doc__.split("\n")[0])
    parser.add_argument("--family")
    parser.add_argument("--recorded", type=Path, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FOLDER", help="say whether two recordings agree")
    arguments = parser.parse_args()
    if arguments.compare:
        print(json.dumps(compare(*arguments.compare), indent=2))
        return 0
    if not (arguments.family and arguments.recorded and arguments.out):
        raise UserError("give --family, --recorded and --out, or --compare.")
    count, stale = bring(arguments.family, arguments.recorded, arguments.build, arguments.out)
    if not count:
        print(f"recorded: {arguments.family} was never recorded there; record it with workflow/scripts/record.")
    note = f", {stale} of them stale: today's build differs from the one that was measured" if stale else ""
    print(f"recorded: {arguments.family}: {count} rows{note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)
