"""What a cell of a table may hold, as text and in the JSON schema."""

from __future__ import annotations

import pytest

from gemmrepro.measure.columns import About, Column, number


def test_what_a_cell_may_hold():
    least = Column("x", "number", False, About("", least=0.0, above=None))
    assert least.allows("0") and least.allows("2.5") and not least.allows("-1") and not least.allows("")
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
    plain = Column("t", "text", True, About(""))
    assert plain.schema["type"] == ["string", "null"] and plain.allows("cuBLAS, B K-major") and plain.allows("")
    for hidden in ("<b>", "a\u202eb", "a\u200bb", "\u0441uBLAS", "a\nb", "ab\n"):
        assert not plain.allows(hidden)


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        *(("175.5", "number", 175.5), ("-0.5", "number", -0.5), ("5e-05", "number", 5e-5), ("1e+10", "number", 1e10)),
        *(("0", "integer", 0), ("-4096", "integer", -4096)),
        *(
            (cell, "number", None)
            for cell in (
                "1_75.5",
                "\u0661\u0667\u0665",
                "\uff11\uff17\uff15",
                " 175.5 ",
                "+1",
                ".5",
                "1.",
                "01",
                "0x10",
            )
        ),
        *((cell, "number", None) for cell in ("nan", "inf", "-inf", "1e999", "", "1\n", "9" * 400)),
        *(
            (cell, "integer", None)
            for cell in ("04096", "4096.0", "1e3", "-0", "4_096", "\uff14\uff10\uff19\uff16", "9" * 5000)
        ),
    ],
)
def test_a_number_has_the_spelling_that_tables_are_written_with(cell, kind, value):
    assert number(cell, kind) == value
