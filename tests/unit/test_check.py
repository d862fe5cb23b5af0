"""``python -m gemmrepro check``: every family passes, and each way to break the contract is named."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.check import check_family
from gemmrepro.core import paths


@pytest.mark.parametrize("family", registry.family_names())
def test_every_family_passes(family: str) -> None:
    assert check_family(family) == []


FAULTS = yaml.safe_load((Path(__file__).parent / "data/faults.yaml").read_text())


@pytest.mark.parametrize(("file", "old", "new", "where", "says"), FAULTS)
def test_a_planted_fault_is_named(file, old, new, where, says, tmp_path, monkeypatch) -> None:
    """In a copy of the family and of what all families share; loading the others would only take time."""
    for name in {family := file.split("/")[0], "common", "ceilings"}:
        shutil.copytree(paths.KERNELS_DIR / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copy(paths.KERNELS_DIR / "chips.yaml", tmp_path)
    shutil.copytree(paths.ARTICLES_DIR, tmp_path / "articles")
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    monkeypatch.setattr(paths, "ARTICLES_DIR", tmp_path / "articles")
    text = (tmp_path / file).read_text() if old else ""
    assert old in text, f"{file} no longer has {old}"
    (tmp_path / file).write_text(text.replace(old, new, 1))
    problems = check_family(family)
    assert any(each.startswith(where) and re.search(says, each) for each in problems), problems


def test_the_command_prints_a_line_for_each_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["check", "pytorch", "ceilings"]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(r"(?:(?:pytorch|ceilings): \d+ kernels, all as the contract says\n){2}", said)
