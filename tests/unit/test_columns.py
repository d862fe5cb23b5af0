"""What a cell of a table may hold, as text and in the JSON schema."""

from __future__ import annotations

from dataclasses import fields

from gemmrepro.measure.columns import About, Column, Row, columns, kinds


def test_what_a_cell_may_hold():
    number = Column("x", "number", False, About("", least=0.0, above=None))
    assert number.allows("0") and number.allows("2.5") and not number.allows("-1") and not number.allows("")
    assert not number.allows("nan") and not number.allows("inf") and not number.allows("much")
    above = Column("x", "number", True, About("", above=0.0))
    assert above.allows("") and above.allows("0.1") and not above.allows("0")
    whole = Column("n", "integer", False, About("", least=1))
    assert whole.allows("4096") and not whole.allows("04096") and not whole.allows("1.5") and not whole.allows("0")
    text = Column("t", "text", False, About("", among=("a", "b")))
    assert text.allows("a") and not text.allows("c") and not text.allows("")
    pattern = Column("t", "text", False, About("", pattern="^[ab]+$"))
    assert pattern.allows("ab") and not pattern.allows("abc")
    assert text.schema == {"enum": ["a", "b"]}
    assert whole.schema["type"] == "integer" and whole.schema["minimum"] == 1 and "minLength" not in whole.schema
    assert above.schema["type"] == ["number", "null"] and above.schema["exclusiveMinimum"] == 0.0
    assert Column("t", "text", False, About("")).schema["minLength"] == 1
    assert Column("t", "text", True, About("")).schema["type"] == ["string", "null"]


def test_columns_are_the_fields_of_a_table_in_order_with_their_kinds():
    found = columns(Row)
    assert [column.name for column in found] == [field.name for field in fields(Row)]
    by_name = {column.name: column for column in found}
    assert (by_name["m"].kind, by_name["m"].optional) == ("integer", False)
    assert (by_name["ratio"].kind, by_name["ratio"].optional) == ("number", True)
    assert kinds(Row)["kernel"] == "text"
