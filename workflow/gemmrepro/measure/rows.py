"""Reads what a sweep or a recording left in ``results/measure/<family>``, for the stages after it.

A family that was not measured reads as empty tables, never as an error: the report must say so, not fail.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.names import TOOLKIT_ORDER
from gemmrepro.errors import UserError

_REMEDY = "restore it from the repository, or record the family again with workflow/scripts/record"
_INTEGERS = {"m", "n", "k", "d", "samples", "rounds"}


def _text(rows: list[dict[str, str]], columns: Sequence[str]) -> str:
    import io

    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def write_nothing(out: Path) -> None:
    """The four files of a measurement that was not made."""
    import pyarrow
    import pyarrow.parquet

    write_atomic(out / "summary.csv", _text([], SUMMARY_COLUMNS))
    write_atomic(out / "counters.csv", _text([], COUNTER_COLUMNS))
    write_json(out / "run.json", {"source": "none"})
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.table({name: pyarrow.array([], pyarrow.null()) for name in SAMPLE_COLUMNS}), buffer
    )
    write_atomic(out / "samples.parquet", buffer.getvalue().to_pybytes())


SUMMARY_COLUMNS = (
    "kernel family rung dtype m n k d cache toolkit arch median_us ci_low_us ci_high_us samples rounds tflops gbps "
    "baseline baseline_median_us ratio ratio_ci_low ratio_ci_high err_scaled_max err_fro clock_mhz power_w temp_c "
    "throttle build_key status"
).split()

COUNTER_COLUMNS = "kernel toolkit m n k metric value unit build_key status".split()
SAMPLE_COLUMNS = "kernel toolkit dtype m n k d cache round index time_us baseline_us build_key".split()

TEXT_COLUMNS = set("kernel family rung dtype cache toolkit arch baseline throttle build_key status metric unit".split())
"""Columns of the tables that hold text; the others hold numbers."""

_SIZES = ("m", "n", "k")


@dataclass(frozen=True)
class Measurements:
    """One family's measurements.

    `summary` has SUMMARY_COLUMNS, `counters` COUNTER_COLUMNS; both may have no rows. `run` is run.json or empty.
    """

    family: str
    summary: pd.DataFrame
    counters: pd.DataFrame
    run: Mapping[str, Any] = field(default_factory=dict)
    samples_path: Path | None = None

    @property
    def source(self) -> str:
        """``live``, ``recorded`` or ``none``."""
        return str(self.run.get("source") or "recorded") if len(self.summary) else "none"

    @property
    def gpu(self) -> str | None:
        """The name of the GPU, or None where nothing was measured."""
        return (self.run.get("gpu") or {}).get("name")

    @property
    def arch(self) -> str | None:
        """The architecture that ran, ``sm_90``, or None."""
        archs = [arch for arch in self.summary["arch"] if arch]
        if archs:
            return archs[0]
        capability = str((self.run.get("gpu") or {}).get("compute_capability") or "")
        digits = re.findall(r"\d+", capability)
        return "sm_" + "".join(digits) if digits else None

    def samples(self) -> pd.DataFrame:
        """Every single time (SAMPLE_COLUMNS), read from samples.parquet; empty where there is none."""
        if self.samples_path is None:
            return pd.DataFrame(columns=list(SAMPLE_COLUMNS))
        try:
            return pd.read_parquet(self.samples_path)
        except Exception as error:
            raise UserError(
                f"{self.samples_path} is not readable Parquet ({error}); remeasure, or restore the recorded file."
            ) from None


def _read_table(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    """A CSV with at least `columns`: text columns as str ('' when empty), sizes as Int64, the rest as float."""
    columns = list(columns)
    if not path.is_file():
        table = pd.DataFrame(columns=columns)
    else:
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path} is not a readable CSV ({error}); remeasure, or restore the recorded file."
            ) from None
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise UserError(
                f"{path} has no column {', '.join(missing)}; it was written by another version: remeasure, or restore "
                "the recorded file."
            )
    table = table[columns].copy()
    for column in columns:
        if column in TEXT_COLUMNS:
            table[column] = table[column].astype(object)
            continue
        numbers = pd.to_numeric(table[column].replace("", None), errors="coerce")
        wrong = numbers.isna() & ~table[column].isin(["", "nan", "NaN"])
        if wrong.any():
            first = int(wrong.idxmax())
            raise UserError(f"{path}, line {first + 2}: {column} is '{table[column][first]}', which is not a number.")
        table[column] = numbers.astype("Int64" if column in _SIZES else float)
    return table.reset_index(drop=True)


def load(measure_dir: Path | str, family: str) -> Measurements:
    """Read ``<measure_dir>/<family>``.

    Raises:
        UserError: a file is there but is not what it should be.
    """
    folder = Path(measure_dir) / family
    run = {}
    if (folder / "run.json").is_file():
        run = read_json(folder / "run.json", "the run manifest", "remeasure, or restore the recorded file")
    samples = folder / "samples.parquet"
    return Measurements(
        family=family,
        summary=_read_table(folder / "summary.csv", SUMMARY_COLUMNS),
        counters=_read_table(folder / "counters.csv", COUNTER_COLUMNS),
        run=run,
        samples_path=samples if samples.is_file() else None,
    )


def is_current(table: pd.DataFrame) -> pd.Series:
    """True for the rows that may support a claim: all but the stale ones."""
    return table["status"] != "stale"


def select(rows: pd.DataFrame, **cells: Any) -> pd.DataFrame:
    """The rows that have these values in these columns; an empty cell equals nothing."""
    for column, value in cells.items():
        rows = rows[(rows[column] == value).fillna(False).astype(bool)]
    return rows


def cubes(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with m = n = k."""
    same = (rows["m"] == rows["n"]) & (rows["n"] == rows["k"])
    return rows[same.fillna(False).astype(bool)]


def toolkit_of(measured: Measurements) -> str | None:
    """The toolkit that stands for a family: the one with current rows of the most kernels, else with any rows.

    Of two with as many, the first of TOOLKIT_ORDER.
    """
    for rows in (measured.summary[is_current(measured.summary)], measured.summary):
        kernels = {toolkit: rows.loc[rows["toolkit"] == toolkit, "kernel"].nunique() for toolkit in TOOLKIT_ORDER}
        if any(kernels.values()):
            return max(TOOLKIT_ORDER, key=lambda toolkit: kernels[toolkit])
    return None


def row_key(row: Mapping[str, Any]) -> str:
    """The name of a summary row: kernel, toolkit, type, shape and cache state."""
    return f"{row['kernel']}/{row['toolkit']}/{row['dtype']}/{row['m']}x{row['n']}x{row['k']}/{row['cache']}"


def counter_key(row: Mapping[str, Any]) -> str:
    """The name of a row of counters.csv."""
    return f"{row['kernel']}/{row['toolkit']}/{row['m']}x{row['n']}x{row['k']}/{row['metric']}"
