"""The default run as an RO-Crate."""

import json
import sys
from pathlib import Path

import pytest
from support import ROOT, call


@pytest.mark.containers
def test_the_default_run_fits_the_profile_of_provenance_run_crates(
    default_run: str, validators: Path, tmp_path: Path
) -> None:
    out = tmp_path / "crate"
    command = [sys.executable, "-m", "gemmrepro", "crate", "--out", str(out)]
    written = call(command, PYTHONPATH=str(ROOT / "workflow"))
    assert written.returncode == 0, written.stdout
    graph = json.loads((out / "ro-crate-metadata.json").read_text())["@graph"]
    images = [entity["name"] for entity in graph if entity["@type"] == "ContainerImage"]
    assert "report" in images
    profile = [str(out), "provenance-run-crate-0.5", "REQUIRED"]
    checked = call([str(validators / "python"), str(ROOT / "tests/validate_crate.py"), *profile])
    assert checked.returncode == 0, checked.stdout
