"""Tables of rows as they are read: kinds of columns, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gemmrepro.errors import UserError
from gemmrepro.measure.columns import CounterRow, columns
from gemmrepro.measure.rows import read_table

NAMES = [column.name for column in columns(CounterRow)]
KINDS = {column.name: column.kind for column in columns(CounterRow)}


def written(folder: Path, **cells: str) -> Path:
    """A table of two rows, whose first holds `cells`."""
    path = folder / "counters.csv"
    plain = {name: "x" if kind == "text" else "4" for name, kind in KINDS.items()}
    rows = [",".join((plain | more)[name] for name in NAMES) for more in (cells, {})]
    path.write_text("\n".join([",".join(NAMES), *rows]) + "\n")
    return path


def test_each_column_has_the_type_of_its_kind_and_an_empty_cell_is_no_number(tmp_path: Path) -> None:
    kinds = {"text": "object", "integer": "Int64", "number": "float64"}
    table = read_table(written(tmp_path, value=""), CounterRow)
    assert {name: str(table[name].dtype) for name in NAMES} == {name: kinds[kind] for name, kind in KINDS.items()}
    assert set(KINDS.values()) == set(kinds) and pd.isna(table["value"][0])
    assert read_table(tmp_path / "none.csv", CounterRow).empty


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\nx,x,4,", "\nx,x,many,", r"counters\.csv, line 2: m is 'many', which is not a number"),
        ("kernel", "unheard_of", "has no column kernel; it was written by another version"),
        (None, "", "is not a readable CSV"),
    ],
)
def test_what_is_no_table_of_these_rows_is_named(old: str | None, new: str, complaint: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(new if old is None else path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=complaint):
        read_table(path, CounterRow)
