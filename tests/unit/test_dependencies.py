"""What the hashes of code cover, and what changes them: by module for rules, by definition for keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmrepro.core import dependencies, trees


def reached(*start: str, **limits: frozenset[str]) -> set[str]:
    return {f"{module}:{name}" for module, name in dependencies.closure(*start, **limits)}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in the place of ours: a stage that reaches a helper three modules away."""
    files = {
        "__init__.py": "",
        "errors.py": "class UserError(Exception): ...",
        "stage.py": "from gemmrepro.low import face\nfrom gemmrepro import middle\n"
        "def main():\n    return middle.work(face)",
        "middle.py": "from gemmrepro.low import helper\ndef work(x):\n    return helper(x)\n"
        "def unused():\n    return 1",
        "low/__init__.py": "from gemmrepro.low.deep import helper, OTHER",
        "low/face.py": "import os\nos.umask(0o22)\nSIZE = 3\n",
        "low/deep.py": (
            "from gemmrepro.errors import UserError\nLIMIT = 9\nLIMIT += 1\nOTHER = 2\n"
            "def helper(x):\n    from gemmrepro.low import late\n    return late.VALUE + LIMIT\n"
        ),
        "low/late.py": "VALUE = 5\nCOMMAND = ['-m', 'gemmrepro.spawned']\n",
        "spawned.py": "def main():\n    return 0\n",
    }
    root = tmp_path / "gemmrepro"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    monkeypatch.setattr(dependencies, "PACKAGE", root)
    forget()
    yield root
    monkeypatch.undo()
    forget()


def forget() -> None:
    """As in a new process, nothing is parsed yet."""
    for module in (dependencies, trees):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def test_a_helper_three_imports_away_is_reached_and_its_neighbours_are_not(package: Path) -> None:
    assert reached("gemmrepro.stage") == {
        "gemmrepro.stage:",
        "gemmrepro.middle:work",
        "gemmrepro.low.face:",
        "gemmrepro.low.deep:helper",
        "gemmrepro.low.deep:LIMIT",
        "gemmrepro.low.late:VALUE",
    }


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("low/deep.py", "LIMIT += 1", "LIMIT += 2", True),
        ("low/late.py", "VALUE = 5", "VALUE = 6", True),
        ("low/face.py", "0o22", "0o77", True),
        ("low/deep.py", "OTHER = 2", "OTHER = 3", False),
        ("middle.py", "return 1", "return 2", False),
        ("middle.py", "def work", "# a comment\ndef work", False),
        ("errors.py", "...", "pass", False),
        ("spawned.py", "return 0", "return 1", False),
    ],
)
def test_an_edit_changes_the_hash_of_what_reaches_it(
    package: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = dependencies.code_hash("gemmrepro.stage")
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    forget()
    assert (dependencies.code_hash("gemmrepro.stage") != before) is changes


def test_a_module_started_by_its_name_is_reached(package: Path) -> None:
    assert "gemmrepro.spawned:" in reached("gemmrepro.low.late:COMMAND")


def test_the_packages_name_is_a_word(package: Path) -> None:
    (package / "stage.py").write_text("TITLE = 'gemmrepro'\n")
    assert reached("gemmrepro.stage") == {"gemmrepro.stage:"}


def test_a_definition_that_moves_changes_no_hash(package: Path) -> None:
    before = dependencies.code_hash("gemmrepro.stage")
    (package / "low/moved.py").write_text("LIMIT = 9\nLIMIT += 1\n")
    text = (package / "low/deep.py").read_text()
    text = text.replace("LIMIT = 9\nLIMIT += 1\n", "from gemmrepro.low.moved import LIMIT\n")
    (package / "low/deep.py").write_text(text)
    forget()
    assert dependencies.code_hash("gemmrepro.stage") == before


def test_packages_may_be_left_out_or_alone_count(package: Path) -> None:
    low = frozenset({"gemmrepro.low"})
    assert not [name for name in reached("gemmrepro.stage", without=low) if name.startswith("gemmrepro.low")]
    assert {name.split(":")[0] for name in reached("gemmrepro.low.deep:helper", within=low)} == {
        "gemmrepro.low.deep",
        "gemmrepro.low.late",
    }


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("low/deep.py", "LIMIT += 1", "LIMIT += 2", True),
        ("low/deep.py", "OTHER = 2", "OTHER = 3", True),
        ("low/__init__.py", "OTHER", "OTHER as ANOTHER", True),
        ("low/late.py", "VALUE = 5", "VALUE: 'at least 4' = 5", True),
        ("spawned.py", "return 0", "return 1", True),
        ("apart.py", "1", "2", False),
        ("middle.py", "def work", "# a comment\ndef work", False),
        ("middle.py", "def work(x):\n", "def work(x):\n    '''A docstring.'''\n", False),
        ("middle.py", "helper(x)", "(helper(x))", False),
    ],
)
def test_an_edit_changes_the_hash_of_every_stage_that_imports_its_module(
    package: Path, file: str, old: str, new: str, changes: bool
) -> None:
    (package / "apart.py").write_text("ALONE = 1\n")
    before = dependencies.modules_hash("gemmrepro.stage")
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    forget()
    assert (dependencies.modules_hash("gemmrepro.stage") != before) is changes


def test_a_stage_without_a_module_does_not_count_what_only_that_imports(package: Path) -> None:
    without = frozenset({"gemmrepro.low"})
    before = dependencies.modules_hash("gemmrepro.stage", without=without)
    (package / "spawned.py").write_text("")
    forget()
    assert dependencies.modules_hash("gemmrepro.stage", without=without) == before


def test_a_file_outside_the_library_counts_with_what_it_imports(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "experiments.py"
    path.write_text("from gemmrepro.low import face\n")
    before = dependencies.modules_hash(path)
    (package / "low/face.py").write_text("SIZE = 4\n")
    forget()
    assert dependencies.modules_hash(path) != before


def test_an_unknown_module_is_no_stage() -> None:
    with pytest.raises(ValueError, match=r"no module gemmrepro\.nonesuch"):
        dependencies.code_hash("gemmrepro.nonesuch")
    with pytest.raises(ValueError, match=r"no module gemmrepro\.nonesuch"):
        dependencies.modules_hash("gemmrepro.nonesuch")


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
