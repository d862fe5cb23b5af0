"""What a stage's code hash covers, and what changes it."""

from __future__ import annotations

import ast

import pytest

from gemmrepro.core import dependencies, trees

STAGES = ("build.stage", "gates.stage", "measure.sweep", "judge.verdicts", "paper.page")


def test_a_closure_reaches_through_packages() -> None:
    assert "gemmrepro.registry.records" in dependencies.closure("gemmrepro.build.stage")
    assert "gemmrepro.ozaki.moduli" in dependencies.closure("gemmrepro.ozaki.scheme2")
    assert "gemmrepro.paper.page" not in dependencies.closure("gemmrepro.build.stage")
    assert all(dependencies.file_of(name) for name in dependencies.closure("gemmrepro.measure.sweep"))


def test_what_no_result_depends_on_is_in_no_closure() -> None:
    for stage in STAGES:
        assert "gemmrepro.errors" not in dependencies.closure(f"gemmrepro.{stage}")


def test_packages_may_be_left_out() -> None:
    named = dependencies.closure("gemmrepro.build.stage", without=frozenset({"gemmrepro.registry"}))
    assert not [name for name in named if name.startswith("gemmrepro.registry")]


def test_an_unknown_module_is_no_stage() -> None:
    with pytest.raises(ValueError, match=r"no module gemmrepro\.nonesuch"):
        dependencies.code_hash("gemmrepro.nonesuch")


BEFORE = '''
"""What it is."""

LIMIT = 9.0
"""In units."""


def area(width: float, *, height: float = 2) -> float:
    """Square metres."""
    if width < 0:
        raise UserError(f"{width} is negative; give another.")
    product = width * height  # both in metres
    return product
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# both in metres", "# both are in metres"),
        ('"""Square metres."""', '"""In square metres."""'),
        ('"""In units."""', '"""In units of the last place."""'),
        ("width: float, *", "width, *"),
        (" -> float", ""),
        ("product", "result"),
        ("is negative; give another.", "is below 0; give a positive one."),
        ("\n\n\ndef", "\n\n\n\ndef"),
    ],
)
def test_what_changes_no_behaviour_changes_no_hash(old: str, new: str) -> None:
    after = BEFORE.replace(old, new)
    assert after != BEFORE
    assert trees.text(ast.parse(after)) == trees.text(ast.parse(BEFORE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("9.0", "9.5"),
        ("height: float = 2", "height: float = 3"),
        ("width < 0", "width <= 0"),
        ("width * height", "height + width"),
        ("height", "length"),
        ("LIMIT", "BOUND"),
        ("return product", "return width"),
        ("raise UserError(", "raise ValueError("),
    ],
)
def test_what_may_change_behaviour_changes_the_hash(old: str, new: str) -> None:
    after = BEFORE.replace(old, new)
    assert after != BEFORE
    assert trees.text(ast.parse(after)) != trees.text(ast.parse(BEFORE))


def test_f_strings_count_by_what_they_say_however_they_are_cut() -> None:
    one, other = (ast.parse(source) for source in ('f"a{x}b" "c"', '"" f"a{x}" f"bc"'))
    one.body[0], other.body[0] = (ast.Assign([ast.Name("y")], tree.body[0].value) for tree in (one, other))  # type: ignore[attr-defined]
    assert trees.text(one) == trees.text(other)
