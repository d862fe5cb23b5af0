"""Reads samples.parquet as what it must be: every point's samples together, in order, in rounds, finite, in pairs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro.core.names import RESTORE
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import SAMPLE_COLUMNS
from gemmrepro.measure.recording import POINT, refused

MOST_BYTES = 1 << 30
"""The most memory that a file of samples may unfold into; the largest recorded one takes 8 MB."""

_TEXTS = ("kernel", "toolkit", "dtype", "cache", "build_key")
_INTEGERS = ("m", "n", "k", "d", "round", "index")


@dataclass(frozen=True)
class PointSamples:
    """One point's samples in µs, one array a round; `baseline` has those paired with `times`, or None."""

    build_key: str
    times: list[np.ndarray]
    baseline: list[np.ndarray] | None


def read_samples(path: Path) -> tuple[bytes, dict[tuple[str, ...], PointSamples]]:
    """The bytes of a file of samples, and its samples by point (the cells of POINT as text).

    Raises:
        UserError: the file is missing, is no Parquet, has other columns or types, would unfold into over MOST_BYTES,
            or does not hold every point's samples together and in order, each a positive finite time.
    """
    raw, table = read_table(path)
    columns = {name: table.column(name).combine_chunks() for name in SAMPLE_COLUMNS}
    count = table.num_rows
    if not count:
        return raw, {}
    for name, column in columns.items():
        if column.null_count and name not in ("d", "baseline_us"):
            raise refused(path, "", f"samples have no {name}")
    codes = np.empty((count, len(POINT) + 1), dtype=np.int64)
    for place, name in enumerate((*POINT, "build_key")):
        column = columns[name]
        if name in _TEXTS:
            codes[:, place] = column.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        else:
            codes[:, place] = column.fill_null(-1).to_numpy(zero_copy_only=False)
    rounds, index = (columns[name].to_numpy(zero_copy_only=False) for name in ("round", "index"))
    times, baseline = (columns[name].to_numpy(zero_copy_only=False) for name in ("time_us", "baseline_us"))
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]).any(axis=1)])
    found: dict[tuple[str, ...], PointSamples] = {}
    for start, end in zip(starts, np.r_[starts[1:], count], strict=True):
        cells = tuple(_text(columns[name][int(start)].as_py()) for name in POINT)
        if cells in found:
            raise refused(path, "", f"the samples of {' '.join(filter(None, cells))} are in several places")
        part = slice(int(start), int(end))
        try:
            split = _split(rounds[part], index[part], times[part], baseline[part])
        except ValueError as error:
            raise refused(path, "", f"of {' '.join(filter(None, cells))} {error}") from None
        found[cells] = PointSamples(columns["build_key"][int(start)].as_py(), *split)
    return raw, found


@dataclass(frozen=True)
class Form:
    """What a table's columns hold: texts and whole numbers; the others hold real numbers.

    Attributes:
        empty: columns that may have no value at all, and hence no type of their own.
    """

    columns: Sequence[str]
    texts: Collection[str]
    integers: Collection[str]
    empty: Collection[str] = ()


_FORM = Form(SAMPLE_COLUMNS, _TEXTS, _INTEGERS, empty=("d", "baseline_us"))


def read_table(path: Path, form: Form = _FORM) -> tuple[bytes, Any]:
    """The bytes of a file of samples, and its table. Raises UserError as `read_samples` does of the file as a whole."""
    import pyarrow
    import pyarrow.parquet

    try:
        raw = path.read_bytes()
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw))
        meta = file.metadata
        unfolded = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        if max(unfolded, 8 * len(form.columns) * meta.num_rows) > MOST_BYTES:
            raise refused(path, "", f"it would unfold into more than {MOST_BYTES >> 20} MB")
        if file.schema_arrow.names != list(form.columns):
            names = ", ".join(file.schema_arrow.names)
            raise UserError(f"the recording {path} has the columns {names}; {RESTORE}.")
        table = file.read()
    except FileNotFoundError:
        raise UserError(f"the recording {path} is missing; {RESTORE}.") from None
    except (pyarrow.ArrowInvalid, pyarrow.ArrowException, OSError) as error:
        raise UserError(f"the recording {path} is corrupt ({error}); {RESTORE}.") from None
    return raw, table if not table.num_rows else _cast(path, table, form)


def _cast(path: Path, table: Any, form: Form) -> Any:
    """The table with its columns' exact types. Raises UserError where a column holds something else."""
    import pyarrow
    from pyarrow import types

    kinds = (
        (form.texts, pyarrow.string(), lambda kind: types.is_string(kind) or types.is_large_string(kind)),
        (form.integers, pyarrow.int64(), types.is_integer),
        (form.columns, pyarrow.float64(), types.is_floating),
    )
    fields = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        target, fits = next((target, fits(kind)) for names, target, fits in kinds if name in names)
        if not fits and not (name in form.empty and table.column(name).null_count == table.num_rows):
            raise refused(path, "", f"{name} holds {kind}")
        fields.append(pyarrow.field(name, target))
    return table.cast(pyarrow.schema(fields))


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _split(
    rounds: np.ndarray, index: np.ndarray, times: np.ndarray, baseline: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """A point's times and its baseline's by round. Raises ValueError, saying what is wrong with them."""
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("a time is not positive and finite")
    alone = np.isnan(baseline)
    if alone.any() and not alone.all():
        raise ValueError("some samples have no partner of the baseline's")
    if not alone.any() and not (np.isfinite(baseline).all() and (baseline > 0).all()):
        raise ValueError("a baseline's time is not positive and finite")
    cuts = np.flatnonzero(np.r_[True, rounds[1:] != rounds[:-1]])
    if (rounds < 0).any() or (np.diff(rounds[cuts]) <= 0).any():
        raise ValueError("the rounds are not in order")
    ends = np.r_[cuts[1:], len(rounds)]
    if any((index[start:end] != np.arange(end - start)).any() for start, end in zip(cuts, ends, strict=True)):
        raise ValueError("the samples of a round are not counted from 0, each once")
    return np.split(times, cuts[1:]), None if alone.any() else np.split(baseline, cuts[1:])
