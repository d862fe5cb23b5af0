"""Files that other programs read, against the schemas that check-jsonschema brings along."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from support import ROOT, call


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", ".github/workflows/ci.yaml"), ("citation-file-format", "CITATION.cff")]
)
def test_a_file_fits_its_schema(schema: str, file: str, validators: Path) -> None:
    checked = call([str(validators / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", file])
    assert checked.returncode == 0, checked.stdout


def test_the_workflow_file_runs_what_ci_runs() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]["test"]["steps"]
    assert all(re.search("@[0-9a-f]{40}$", step["uses"]) for step in steps if "uses" in step), "a tag can be moved"
    commands = [step["run"] for step in steps if "run" in step]
    assert commands == ["sudo .ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
