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


def test_each_column_has_the_type_of_its_kind(tmp_path: Path) -> None:
    kinds = {"text": "object", "integer": "Int64", "number": "float64"}
    table = read_table(written(tmp_path), CounterRow)
    assert {name: str(table[name].dtype) for name in NAMES} == {name: kinds[kind] for name, kind in KINDS.items()}
    assert set(KINDS.values()) == set(kinds), "every kind is tried"


def test_an_empty_cell_is_no_number(tmp_path: Path) -> None:
    (number,) = [name for name, kind in KINDS.items() if kind == "number"][:1]
    assert pd.isna(read_table(written(tmp_path, **{number: ""}), CounterRow)[number][0])


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_cell_that_is_no_number_is_named_by_its_line(kind: str, tmp_path: Path) -> None:
    name = next(name for name, each in KINDS.items() if each == kind)
    with pytest.raises(UserError, match=rf"counters\.csv, line 2: {name} is 'many', which is not a number"):
        read_table(written(tmp_path, **{name: "many"}), CounterRow)


def test_a_table_without_a_column_is_of_another_version(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(NAMES[0], "unheard_of"))
    with pytest.raises(UserError, match=f"has no column {NAMES[0]}; it was written by another version"):
        read_table(path, CounterRow)


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "counters.csv").write_text("")
    with pytest.raises(UserError, match="is not a readable CSV"):
        read_table(tmp_path / "counters.csv", CounterRow)
    assert read_table(tmp_path / "none.csv", CounterRow).empty
