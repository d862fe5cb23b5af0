"""Another workflow uses this one by `module:`, from a folder of its own."""

import json
from pathlib import Path

import pytest
import yaml
from support import ROOT, snakemake

OTHER = """
configfile: {config!r}

module gemmrepro:
    snakefile: {snakefile!r}
    config: config["gemmrepro"]

use rule * from gemmrepro as gemmrepro_*

rule ours:
    default_target: True
    input: "results/verdicts.json"
    output: "counted.txt"
    shell: "wc -c < {{input}} > {{output}}"
"""


@pytest.fixture
def other(tree: Path, tmp_path: Path) -> Path:
    """The folder of another workflow, which uses the sources in `tree`, with one family alone."""
    config = yaml.safe_load((tree / "config/config.yaml").read_text()) | {"families": ["ada"], "measure": "recorded"}
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "theirs.yaml").write_text(yaml.safe_dump({"gemmrepro": config}))
    text = OTHER.format(config="theirs.yaml", snakefile=str(tree / "Snakefile"))
    (folder / "Snakefile").write_text(text)
    return folder


def test_a_job_of_the_module_runs_in_the_other_workflows_folder(other: Path) -> None:
    run = snakemake("gemmrepro_settings", folder=other)
    assert run.returncode == 0, run.stdout
    assert json.loads((other / "results/config.json").read_text())["families"] == ["ada"]


def test_the_catalog_finds_what_it_asks_for() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["singularity"] is True
    for name in ("Snakefile", "config/config.yaml", "config/README.md"):
        assert (ROOT / name).is_file(), name
    assert usage["mandatory-flags"]["flags"] in (ROOT / "README.md").read_text()
