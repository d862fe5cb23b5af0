"""What a cell of a table may hold, and how a table of another stage is read: a foreign one is refused in one line."""

from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.measure.columns import ROW, SUMMARY_COLUMNS, Column, number
from gemmrepro.measure.rows import load_regimes, read_table

PLAIN = Column("", optional=True)
LEAST = Column("", "number", least=0.0)


@pytest.mark.parametrize(
    ("column", "good", "bad", "why"),
    [
        (LEAST, ["0", "2.5"], ["-1"], "-1 is below 0"),
        (LEAST, [], [""], "it is empty"),
        (Column("", "number", optional=True, above=0), ["", "0.1"], ["0"], "0 is not above 0"),
        (Column("", "integer", least=1), ["4096"], ["04096", "1.5"], "is not of type 'integer'"),
        (Column("", among=("a", "b")), ["a", "b"], ["c"], "'c' is not one of a, b"),
        (Column("", pattern="^[ab]+$"), ["ab"], ["abc"], "'abc' does not match"),
        (PLAIN, ["", "cuBLAS, B K-major"], ["<b>", "a\u202eb", "a\u200bb", "\u0441uBLAS", "a\nb", "ab\n"], "not match"),
    ],
)
def test_what_a_cell_may_hold(column: Column, good: list[str], bad: list[str], why: str) -> None:
    assert not any(map(column.complaint, good))
    assert all(why in column.complaint(cell) for cell in bad)


SPELLED = [("175.5", 175.5), ("-0.5", -0.5), ("5e-05", 5e-5), ("1e+10", 1e10), ("0", 0), ("-4096", -4096)]
NONE = ["1_75.5", "\u0661\u0667\u0665", "\uff11\uff17", " 175.5 ", "+1", ".5", "1.", "01", "0x10", "nan", "inf", "-inf"]
NO_INTEGERS = ["04096", "4096.0", "1e3", "-0", "4_096", "\uff14\uff10", "9" * 5000]


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        *((cell, "integer" if isinstance(value, int) else "number", value) for cell, value in SPELLED),
        *((cell, "number", None) for cell in (*NONE, "1e999", "", "1\n", "9" * 400)),
        *((cell, "integer", None) for cell in NO_INTEGERS),
    ],
)
def test_a_number_has_the_spelling_that_tables_are_written_with(cell, kind, value):
    assert number(cell, kind) == value


def table(folder: Path, header: list[str], **cells: str) -> Path:
    path = folder / "summary.csv"
    path.write_text(",".join(header) + "\n" + ",".join(cells.get(name, "1") for name in header) + "\n")
    return path


def test_cells_have_the_types_of_their_columns(tmp_path: Path) -> None:
    read = read_table(table(tmp_path, SUMMARY_COLUMNS, kernel="ladder.naive", ratio=""), ROW)
    assert (read.kernel[0], read.n[0], str(read.n.dtype)) == ("ladder.naive", 1, "Int64")
    assert read.ratio.isna().all() and read.median_us.tolist() == [1.0]
    missing = read_table(tmp_path / "none.csv", ROW)
    assert missing.empty and list(missing.columns) == SUMMARY_COLUMNS


@pytest.mark.parametrize(
    ("header", "cells", "words"),
    [
        (SUMMARY_COLUMNS[1:], {}, f"has no column {SUMMARY_COLUMNS[0]}; it was written by another version"),
        (SUMMARY_COLUMNS, {"median_us": "12 ms"}, "line 2: median_us is '12 ms', which is not a number"),
        (SUMMARY_COLUMNS, {"m": "\u0664\u0660"}, "line 2: m is '\u0664\u0660', which is not a number"),
        (SUMMARY_COLUMNS, {"kernel": '"'}, "is not a readable CSV"),
    ],
)
def test_a_foreign_table_is_refused(tmp_path: Path, header: list[str], cells: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_table(table(tmp_path, header, **cells), ROW)


def test_regimes_with_damaged_circumstances_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder/run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json"):
        load_regimes(tmp_path, "ladder")
