"""One version number, and packages that an installation finds."""

from __future__ import annotations

import re
import tomllib

import yaml
from support import ROOT

import gemmrepro


def test_every_file_names_the_librarys_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest_release = re.search(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert newest_release is not None
    assert newest_release[1] == gemmrepro.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == gemmrepro.__version__

    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in pyproject["project"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "gemmrepro.__version__"}


def test_every_folder_of_the_library_is_a_package() -> None:
    """Without its `__init__.py` a folder imports from the checkout and is missing from an installation."""
    folders = {path.parent for path in (ROOT / "workflow" / "gemmrepro").rglob("*.py")}
    assert len(folders) > 10
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []
