"""A recording's files: their names, reading them, refusing them, their hashes, and which rows are of today's builds.

A family's manifest holds the SHA-256 of each of its files, and finds what was damaged, edited or exchanged. Who
rewrites the manifest as well has to satisfy every other check (`gemmrepro.recordings`).
"""

import csv
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import find_build
from gemmrepro.core import schemas
from gemmrepro.core.files import csv_text, parquet, read_json, write_atomic, write_json
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.core.text import hidden_character
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import COUNTER_COLUMNS, ROW, SAMPLE_COLUMNS, SUMMARY_COLUMNS, Table
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel
from gemmrepro.registry.keys import run_key

SUMMARY, SAMPLES, RUN, COUNTERS = FILES = ("summary.csv", "samples.parquet", "run.json", "counters.csv")
"""The files that a sweep writes for a family, and that a recording holds."""

GATES = "gates.json"
"""The numerical gate's verdicts in a recording, by kernel."""

SANITIZERS = "sanitizers.json"
"""The answers of compute-sanitizer in a recording, by kernel and toolkit, with the build key."""

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

CLEAN = "clean"
"""Stands for a tool that found nothing; else its words, line by line."""

MANIFEST = "manifest.json"

CEILINGS = "ceilings"
"""The family whose micro-kernels measure a GPU's highest rates."""

POINT = ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache")
"""The columns that name a point of a summary and of samples."""

TOLERANCE = 1e-5
"""Largest relative distance of a cell from the number computed again: six digits err by 5e-6 at most."""

RATES = 2 * TOLERANCE
"""The same for a rate, which is computed from the median's six digits."""


def refused(path: Path, place: str, why: str) -> UserError:
    """The error for `place` ("line 7", "the case 3 of ladder.naive"; "": all) of the recording `path`."""
    where = f"{place} of the recording {path}" if place else f"the recording {path}"
    return UserError(f"{where} is corrupt: {why}; {RESTORE}.")


def named(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[column]) for column in POINT if row[column] not in ("", None))


def close(cell: str, value: float | None, tolerance: float = TOLERANCE) -> bool:
    """Whether a cell is what was computed, to its digits."""
    if value is None or cell == "":
        return value is None and cell == ""
    return math.isclose(float(cell), value, rel_tol=tolerance, abs_tol=1e-12)


def read_document(path: Path, schema: str) -> Any:
    """A recording's JSON. Raises UserError if it is missing or corrupt, or holds text that does not show as it is."""
    document = read_json(path, "the recording", RESTORE)
    schemas.check(document, schema, f"the recording {path}")
    if hidden := hidden_character(path.read_text()):
        raise refused(path, "", f"it holds the character {hidden}, which does not show")
    return document


SYNTHETIC = False
"""Whether recordings may be made for tests, as ``"synthetic": true`` in a run.json says; only tests set it."""


def check_measured(run: Mapping[str, Any], path: Path) -> None:
    """Raises UserError if the rows that `run` describes were made for tests."""
    if run.get("synthetic") and not SYNTHETIC:
        raise UserError(f"the recording {path} is synthetic: its rows were made for tests; measure on a GPU instead.")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a family's recording: its files by their paths in the folder, with their hashes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    visible = (path for path in paths if not path.name.startswith("."))
    return {"version": 1, "files": {path.relative_to(folder).as_posix(): digest(path.read_bytes()) for path in visible}}


def write_manifest(folder: Path) -> None:
    write_json(folder / MANIFEST, manifest(folder))


def check_manifest(folder: Path, *names: str) -> None:
    """Check a recording's files against its manifest; where none of them is there, there is nothing to check.
    `names`: the only files to check; default: all. Raises UserError if there is no manifest, or a file differs, is
    missing or is not listed."""
    path = folder / MANIFEST
    if not path.is_file() and not any((folder / name).is_file() for name in names or [*manifest(folder)["files"]]):
        return
    files = read_document(path, "manifest.schema.yaml")["files"]
    for name in names or sorted({*files, *manifest(folder)["files"]}):
        there = (folder / name).is_file()
        if there != (name in files):
            raise refused(path, "", f"{name} is {'there and not listed' if there else 'listed and missing'}")
        if there and digest((folder / name).read_bytes()) != files[name]:
            raise refused(folder / name, "", f"it is not the file that {MANIFEST} lists")


def read_sanitizers(path: Path) -> dict[str, Any]:
    """The outcomes of compute-sanitizer in a file, by kernel; none without the file. Raises UserError if corrupt."""
    return read_document(path, "sanitizers.schema.yaml") if path.is_file() else {}


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """A CSV's rows as text. Raises UserError if the file is missing, or a line has other than these columns."""
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


class CurrentKeys:
    """Build keys and run keys of the binaries in a folder of build records, as they are now; each is found once."""

    def __init__(self, build: Path) -> None:
        self._record = cache(lambda kernel, toolkit: find_build(kernel, Path(build), toolkit))
        self._run_key = cache(lambda kernel, key, shape: run_key(registry.kernel(kernel), key, shape))

    def build_key(self, kernel: str, toolkit: str) -> str | None:
        """The build key of a binary; None where there is none."""
        record = self._record(kernel, toolkit)
        return None if record is None else record.build_key

    def run_key(self, kernel: str, toolkit: str, shape: Shape | None = None) -> str | None:
        """The run key of a binary on `shape` (None: on the usual shapes); None if it was not built."""
        key = self.build_key(kernel, toolkit)
        return None if key is None else self._run_key(kernel, key, shape)


def kernels_behind(family: str, row: Mapping[str, str]) -> list[Kernel]:
    """The kernel of a row; of a library's, those of the family that are compared with it on these types.
    Empty if today's family declares no such kernel or library with these types, slices, toolkits and baseline."""
    kernels = [kernel for kernel in registry.kernels(family) if kernel.compute.dtype_in == row["dtype"]]
    if row["toolkit"] == LIBRARY:
        alike = row["d"] == "" and row["baseline"] in ("", row["kernel"])
        return [kernel for kernel in kernels if alike and kernel.timing.baseline == row["kernel"]]
    return [
        kernel
        for kernel in kernels
        if kernel.id == row["kernel"]
        and row["toolkit"] in kernel.platform.toolkits
        and row["d"] == str(kernel.compute.d or "")
        and row["baseline"] == (kernel.timing.baseline or "")
    ]


def mark(rows: Iterable[Mapping[str, str]], build: Path) -> list[dict[str, str]]:
    """Rows of a summary or of counters with their status set.
    "current" if its run key is today's: the same binary, launched identically on the same shape. Else, or without a
    kernel as declared today (`kernels_behind`), "stale". Rows of libraries have no build."""
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
    return [{**row, "status": "current" if is_current(row) else "stale"} for row in rows]


def stale(rows: Iterable[Mapping[str, str]]) -> int:
    return sum(row["status"] == "stale" for row in rows)


def check_cells(table: Table, rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Raises UserError for an invalid cell, naming its line and column. Each distinct cell is checked once."""
    for name, column in table.items():
        cells = [row[name] for row in rows]
        for cell in dict.fromkeys(cells):
            if why := column.complaint(cell):
                raise refused(path, f"line {cells.index(cell) + 2}", f"{name}: {why}")


def check_rows(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Raises UserError, naming the line, for an invalid cell of a summary, or a point that occurs twice."""
    check_cells(ROW, rows, path)
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 2):
        point = tuple(row[column] for column in POINT)
        if point in seen:
            raise refused(path, f"line {number}", f"it repeats {named(row)}")
        seen.add(point)


def write_nothing(out: Path) -> None:
    """Write the four files of a family that was not measured; they hold no rows."""
    import pandas as pd

    write_atomic(out / SUMMARY, csv_text([], SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, csv_text([], COUNTER_COLUMNS))
    write_json(out / RUN, {"source": "none"})
    write_atomic(out / SAMPLES, parquet(pd.DataFrame(columns=SAMPLE_COLUMNS)))
