"""What a stage reads of another one's results: a foreign table is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.measure.columns import Row, columns
from gemmrepro.measure.rows import load_regimes, read_table

HEADER = [column.name for column in columns(Row)]


def table(folder: Path, header: list[str], **cells: str) -> Path:
    path = folder / "summary.csv"
    path.write_text(",".join(header) + "\n" + ",".join(cells.get(name, "1") for name in header) + "\n")
    return path


def test_cells_have_the_types_of_their_columns(tmp_path: Path) -> None:
    read = read_table(table(tmp_path, HEADER, kernel="ladder.naive", ratio=""), Row)
    assert (read.kernel[0], read.n[0], str(read.n.dtype)) == ("ladder.naive", 1, "Int64")
    assert read.ratio.isna().all() and read.median_us.tolist() == [1.0]
    kinds = {"text": "object", "integer": "Int64", "number": "float64"}
    assert {column.name: str(read[column.name].dtype) for column in columns(Row)} == {
        column.name: kinds[column.kind] for column in columns(Row)
    }


def test_a_file_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    read = read_table(tmp_path / "none.csv", Row)
    assert read.empty and list(read.columns) == HEADER


@pytest.mark.parametrize(
    ("header", "cells", "words"),
    [
        (HEADER[1:], {}, f"has no column {HEADER[0]}; it was written by another version"),
        (HEADER, {"median_us": "12 ms"}, "line 2: median_us is '12 ms', which is not a number"),
        (HEADER, {"median_us": "1_75.5"}, "line 2: median_us is '1_75.5', which is not a number"),
        (HEADER, {"m": "\u0664\u0660\u0669\u0666"}, "line 2: m is '\u0664\u0660\u0669\u0666', which is not a number"),
        (HEADER, {"kernel": '"'}, "is not a readable CSV"),
    ],
)
def test_a_foreign_table_is_refused(tmp_path: Path, header: list[str], cells: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_table(table(tmp_path, header, **cells), Row)


def test_regimes_are_read_with_their_circumstances(tmp_path: Path) -> None:
    folder = tmp_path / "ladder"
    folder.mkdir()
    assert load_regimes(tmp_path, "ladder").run == {} and load_regimes(None, "ladder").by_regime() == {}
    (folder / "run.json").write_text(json.dumps({"gpu": {"name": "NVIDIA H200"}}))
    assert load_regimes(tmp_path, "ladder").run["gpu"]["name"] == "NVIDIA H200"
    (folder / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json"):
        load_regimes(tmp_path, "ladder")
