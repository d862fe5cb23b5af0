"""What the hashes of code cover, and what changes them: by module for rules, by definition for keys."""

import ast
import os
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
        "stage.py": "import gemmrepro.low.face as face\nfrom gemmrepro import middle\n"
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
    assert "gemmrepro.spawned:" in reached("gemmrepro.low.late:COMMAND"), "a module started by its name"
    low = frozenset({"gemmrepro.low"})
    assert not [name for name in reached("gemmrepro.stage", without=low) if name.startswith("gemmrepro.low")]
    assert {name.split(":")[0] for name in reached("gemmrepro.low.deep:helper", within=low)} == {
        *("gemmrepro.low.deep", "gemmrepro.low.late")
    }
    (package / "stage.py").write_text("TITLE = 'gemmrepro'\n")
    forget()
    assert reached("gemmrepro.stage") == {"gemmrepro.stage:"}, "the package's name is a word"


@pytest.mark.parametrize(
    ("file", "old", "new", "of_definitions", "of_modules"),
    [
        ("low/deep.py", "LIMIT += 1", "LIMIT += 2", True, True),
        ("low/late.py", "VALUE = 5", "VALUE = 6", True, True),
        ("low/face.py", "0o22", "0o77", True, True),
        ("low/deep.py", "OTHER = 2", "OTHER = 3", False, True),
        ("low/late.py", "VALUE = 5", "VALUE: 'at least 4' = 5", True, True),
        ("middle.py", "return 1", "return 2", False, True),
        ("spawned.py", "return 0", "return 1", False, True),
        ("middle.py", "def work", "# a comment\ndef work", False, False),
        ("middle.py", "def work(x):\n", "def work(x):\n    '''A docstring.'''\n", False, False),
        ("middle.py", "helper(x)", "(helper(x))", False, False),
        ("apart.py", "1", "2", False, False),
    ],
)
def test_an_edit_changes_the_hashes_of_what_rests_on_it(package, file, old, new, of_definitions, of_modules):
    """By definition what reaches it, by module every stage that imports it, at any depth."""
    (package / "apart.py").write_text("ALONE = 1\n")
    low = frozenset({"gemmrepro.low"})

    def hashes() -> list[str]:
        forget()
        of_stage = (dependencies.code_hash("gemmrepro.stage"), dependencies.modules_hash("gemmrepro.stage"))
        return [*of_stage, dependencies.modules_hash("gemmrepro.stage", without=low)]

    before = hashes()
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    moved = [one != other for one, other in zip(before, hashes(), strict=True)]
    assert moved == [of_definitions, of_modules, of_modules and file == "middle.py"]


def test_a_definition_that_moves_changes_no_hash_and_an_unknown_module_has_none(package: Path) -> None:
    before = dependencies.code_hash("gemmrepro.stage")
    limit, deep = "LIMIT = 9\nLIMIT += 1\n", package / "low/deep.py"
    (package / "low/moved.py").write_text(limit)
    deep.write_text(deep.read_text().replace(limit, "from gemmrepro.low.moved import LIMIT\n"))
    forget()
    assert dependencies.code_hash("gemmrepro.stage") == before
    for hashed in (dependencies.code_hash, dependencies.modules_hash):
        with pytest.raises(ValueError, match=r"no module gemmrepro\.nonesuch"):
            hashed("gemmrepro.nonesuch")


def test_names_of_locals_and_messages_of_errors_change_no_text() -> None:
    one = "def f(a: int) -> int:\n    b = a\n    raise UserError(f'{b}; give another.')"
    two = "def f(a):\n    c = a\n    raise UserError('It is wrong.')"
    assert trees.text(ast.parse(one)) == trees.text(ast.parse(two))
    assert trees.text(ast.parse(two)) != trees.text(ast.parse(two.replace("UserError", "ValueError")))


def test_what_follows_from_sources_is_computed_until_one_changes_whatever_its_time(package, tmp_path) -> None:
    path, source, asked = tmp_path / "memo", package / "middle.py", list[str]()

    def value(of: str) -> str:
        def work(name: str) -> str:
            asked.append(name)
            return name.upper()

        memo = dependencies.Memo(path, of)
        found = memo(work)("a") + memo(work)("a")
        memo.save()
        return found

    assert value("h200") == value("h200") == "AA" and asked == ["a"]
    assert value("h100") == "AA" and asked == ["a", "a"], "what else decides"
    source.write_text("")
    os.utime(source, (0, 0))
    assert value("h100") == "AA" and len(asked) == 3
    path.write_text("[1")
    assert value("h100") == "AA" and len(asked) == 4, "a file that is cut short keeps nothing"
