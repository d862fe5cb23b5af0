"""Reads, checks and marks recordings: the four files of a sweep, and the rows of experiments."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gemmrepro import registry
from gemmrepro.build.record import find_build
from gemmrepro.core import schemas
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.errors import UserError
from gemmrepro.measure.checks.refusal import POINT
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS, Row, first_wrong, schema, typed
from gemmrepro.measure.subjects import kernels_behind
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import run_key

SUMMARY, SAMPLES, RUN, COUNTERS = FILES = ("summary.csv", "samples.parquet", "run.json", "counters.csv")
"""The files that a sweep writes for a family, and that a recording holds."""


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """A CSV's rows as text.

    Raises:
        UserError: the file is missing, or is not a CSV with exactly these columns in every line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file, strict=True))
    except FileNotFoundError:
        raise UserError(f"the recording {path} is missing; {RESTORE}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"the recording {path} is corrupt ({error}); {RESTORE}.") from None
    if not lines or lines[0] != list(columns):
        raise UserError(f"the recording {path} does not begin with the columns {', '.join(columns)}; {RESTORE}.")
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(columns):
            raise UserError(
                f"the recording {path} has {len(line)} cells in line {number} instead of {len(columns)}; {RESTORE}."
            )
    return [dict(zip(columns, line, strict=True)) for line in lines[1:]]


def rows_text(rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> str:
    """Rows of text as a CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


class CurrentKeys:
    """Build keys and run keys of the binaries in a folder of build records, as they are now."""

    def __init__(self, build: Path) -> None:
        self._build = Path(build)
        self._build_keys: dict[tuple[str, str], str | None] = {}
        self._run_keys: dict[tuple[str, str, Shape | None], str | None] = {}

    def build_key(self, kernel: str, toolkit: str) -> str | None:
        """The build key of a binary; None where there is none."""
        if (kernel, toolkit) not in self._build_keys:
            record = find_build(kernel, self._build, toolkit)
            self._build_keys[kernel, toolkit] = None if record is None else record.build_key
        return self._build_keys[kernel, toolkit]

    def run_key(self, kernel: str, toolkit: str, shape: Shape | None = None) -> str | None:
        """The run key of a binary on `shape` (None: on the usual shapes); None if it was not built."""
        run = (kernel, toolkit, shape)
        if run not in self._run_keys:
            key = self.build_key(kernel, toolkit)
            self._run_keys[run] = None if key is None else run_key(registry.kernel(kernel), key, shape)
        return self._run_keys[run]


def mark(rows: Iterable[Mapping[str, str]], build: Path) -> list[dict[str, str]]:
    """Rows of a summary or of counters with their status set.

    A row is "current" if its run key is today's: the same binary, launched identically on the same shape. Otherwise it
    is "stale", also if that toolkit was not built, and so is a row of a summary that belongs to no kernel as it is
    declared (`subjects.kernels_behind`). Rows of libraries have no build.
    """
    keys = CurrentKeys(build)

    def is_current(row: Mapping[str, str]) -> bool:
        if "baseline" in row and not kernels_behind(row["family"], row):
            return False
        if row["toolkit"] == LIBRARY:
            return True
        shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
        binary = row["kernel"], row["toolkit"]
        return (keys.build_key(*binary), keys.run_key(*binary, shape)) == (row["build_key"], row["run_key"])

    return with_status(rows, is_current)


def with_status(
    rows: Iterable[Mapping[str, str]], is_current: Callable[[Mapping[str, str]], bool]
) -> list[dict[str, str]]:
    """`rows` with their status set to what `is_current` returns."""
    return [{**row, "status": "current" if is_current(row) else "stale"} for row in rows]


def stale(rows: Iterable[Mapping[str, str]]) -> int:
    """How many of `rows` are marked stale."""
    return sum(row["status"] == "stale" for row in rows)


def check_cells(table: type, rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Raises UserError for the first row with an invalid cell, naming its line and column."""
    index = first_wrong(table, rows)
    if index is not None:
        schemas.check(typed(table, rows[index]), schema(table), f"line {index + 2} of the recording {path}")


def check_rows(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Check a summary by itself: its cells, and that no point occurs twice.

    Raises:
        UserError: names the line and what is wrong with it.
    """
    check_cells(Row, rows, path)
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 2):
        what = f"line {number} of the recording {path}"
        point = tuple(row[column] for column in POINT)
        if point in seen:
            raise UserError(f"{what} is corrupt: it repeats {' '.join(filter(None, point))}; {RESTORE}.")
        seen.add(point)


def write_nothing(out: Path) -> None:
    """Write the four files of a family that was not measured; they hold no rows."""
    import pyarrow
    import pyarrow.parquet

    write_atomic(out / SUMMARY, rows_text([], SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, rows_text([], COUNTER_COLUMNS))
    write_json(out / RUN, {"source": "none"})
    buffer = pyarrow.BufferOutputStream()
    empty = pyarrow.table({name: pyarrow.array([], pyarrow.null()) for name in SAMPLE_COLUMNS})
    pyarrow.parquet.write_table(empty, buffer)
    write_atomic(out / SAMPLES, buffer.getvalue().to_pybytes())
