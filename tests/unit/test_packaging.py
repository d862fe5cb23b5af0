"""One version number, packages that an installation finds, locks, and files that other programs read."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from support import ROOT, call

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


APPTAINER = ROOT / "envs/requirements/apptainer.txt"


@pytest.mark.parametrize(
    ("package", "field", "value", "says"),
    [
        ("apptainer", 2, "0" * 64, "apptainer 1.4.5-2 does not have the hash that the lock gives"),
        ("apptainer", 1, "9.9-1", "apptainer is 9.9-1, not 1.4.5-2"),
        ("apptainer", 0, "other", "other 1.4.5-2 is not in the lock"),
        ("libseccomp2", 0, "", "libseccomp2 is missing"),
        ("", 0, "", ""),
    ],
)
def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path, package, field, value, says):
    """By name, version and hash of what apt downloaded."""
    locked = [line.split() for line in APPTAINER.read_text().splitlines() if not line.startswith("#")]
    assert {"apptainer", "squashfs-tools", "squashfuse", "libc6"} <= {name for name, *_ in locked}
    given = [[*(each[:field]), value, *each[field + 1 :]] if each[0] == package else each for each in locked]
    lines = [f"{digest}  {name}_{version.replace(':', '%3a')}_amd64.deb" for name, version, digest in given if name]
    (listed := tmp_path / "packages.sha256").write_text("\n".join(lines) + "\n")
    done = subprocess.run([ROOT / "envs/check-packages", APPTAINER, listed], capture_output=True, text=True)
    assert done.returncode == bool(says) and (not says or says in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", ".github/workflows/ci.yaml"), ("citation-file-format", "CITATION.cff")]
)
def test_a_file_fits_its_schema(schema: str, file: str, validators: Path) -> None:
    checked = call([str(validators / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", file])
    assert checked.returncode == 0, checked.stdout
