"""The workflow as it is written: targets, lint, configuration. Nothing is built here."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from support import ROOT, call, copy_sources, snakemake


def test_linters_are_clean(tmp_path: Path) -> None:
    """Those of .pre-commit-config.yaml, and Snakemake's own, which is too slow for every commit."""
    for command in (["pre-commit", "run", "--all-files", "--color=never"], ["snakemake", "--lint"]):
        result = call(command, PRE_COMMIT_HOME=str(tmp_path))
        assert result.returncode == 0, f"{command}:\n{result.stdout}"


@pytest.mark.parametrize("name", ["full.yaml", "record.yaml"])
def test_the_longer_configurations_fit_the_schema(name: str) -> None:
    from snakemake.utils import update_config

    from gemmrepro.host.config import check

    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    update_config(config, yaml.safe_load((ROOT / "config" / name).read_text()))
    check(config)


@pytest.mark.containers
def test_images_see_the_library_alone_and_no_settings_of_the_users(tmp_path: Path) -> None:
    """On the host the user's module path stays: Snakemake itself may lie there."""
    copy_sources(tmp_path)
    with (tmp_path / "Snakefile").open("a") as file:
        file.write("print('given', json.dumps(dict(os.environ)))\n")
    dropped = ("PYTHONSTARTUP", "BASH_ENV", "APPTAINERENV_PYTHONHOME", "TORCHINDUCTOR_MAX_AUTOTUNE")
    settings = dict.fromkeys(("PYTHONPATH", *dropped), "/elsewhere")
    listed = snakemake("--list-rules", "--use-singularity", folder=tmp_path, **settings)
    assert listed.returncode == 0, listed.stdout
    given = json.loads(re.search("^given (.*)$", listed.stdout, re.M)[1])
    library = str(tmp_path / "workflow")
    assert given["PYTHONPATH"] == f"{library}{os.pathsep}/elsewhere"
    assert given["APPTAINERENV_PYTHONPATH"] == given["SINGULARITYENV_PYTHONPATH"] == library
    assert not {*dropped} & given.keys()
    assert listed.stdout.count("ignoring TORCHINDUCTOR_MAX_AUTOTUNE from the environment") == 1


def test_kernels_of_ones_own_are_planned_beside_the_report(tree: Path, tmp_path: Path) -> None:
    """On a machine with a GPU they are measured in PyTorch's image; without one the result says so."""
    mine = tmp_path / "my_gemm.py"
    mine.write_text('KERNEL = {"dtype_in": "fp16"}\n\n\ndef bind(a, b, c, stream):\n    return print\n')
    live = tmp_path / "live.yaml"
    live.write_text(f"measure: live\ngpu: {{name: NVIDIA RTX A6000, capability: 86}}\nkernels: [{mine}]\n")
    plan = snakemake("--dry-run", "--configfile", str(live), "--", "own", "reports/own.html", folder=tree)
    assert plan.returncode == 0, plan.stdout
    assert f"Judging and timing {mine}" in plan.stdout and "Drawing your kernels" in plan.stdout
    config = ("--config", "measure=recorded", f'kernels=["{mine}"]')
    unmeasured = snakemake("--quiet", "all", *config, "--", "results/own/my_gemm.json", folder=tree)
    assert unmeasured.returncode == 0, unmeasured.stdout
    assert "not measured here: " in json.loads((tree / "results/own/my_gemm.json").read_text())["ended"]
    mine.write_text('KERNEL = {"dtypin": "fp16"}\n\n\ndef bind(a, b, c, stream):\n    return print\n')
    wrong = snakemake("--dry-run", *config, "--", "own", folder=tree)
    assert wrong.returncode == 1 and f"gemmrepro: {mine}, line 1: dtypin: " in wrong.stdout, wrong.stdout
    nothing = snakemake("--config", "measure=recorded", "--", "own", folder=tree)
    assert nothing.returncode == 1 and "there is no kernel of your own: name a file with --config" in nothing.stdout
