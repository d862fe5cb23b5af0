"""What the shipped profile asks SLURM for. Nothing is submitted, and no container is needed."""

import json
import os

import pytest
import yaml
from support import ROOT, copy_sources, snakemake

PROFILE = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())

# Snakemake prints no resources of a rule that has a message of its own.
PRINT_RESOURCES = """
for rule in workflow.rules:
    numbers = {name: each.value for name, each in rule.resources.items() if not each.is_evaluable()}
    print("rule", json.dumps([rule.name, numbers]))
"""


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """By rule of a live plan made with the profile, on a login node: the resources that do not depend on a job."""
    folder = tmp_path_factory.mktemp("profile")
    copy_sources(folder / "gemmrepro")
    with (folder / "gemmrepro/Snakefile").open("a") as file:
        file.write(PRINT_RESOURCES)
    (folder / "cluster.yaml").write_text("measure: live\ngpu: {name: NVIDIA H200, capability: 90}\n")
    runtime = folder / "bin/apptainer"
    runtime.parent.mkdir()
    runtime.write_text("#!/bin/sh\necho apptainer version 1.4.5\n")
    runtime.chmod(0o755)
    listed = snakemake(
        *("--list-rules", "--profile", "profiles/slurm", "--configfile", str(folder / "cluster.yaml")),
        folder=folder / "gemmrepro",
        PATH=f"{runtime.parent}{os.pathsep}{os.environ['PATH']}",
    )
    assert listed.returncode == 0, listed.stdout
    return dict(json.loads(line[5:]) for line in listed.stdout.splitlines() if line.startswith("rule ["))


def test_every_rule_that_the_profile_names_is_one_of_a_live_plan(resources: dict[str, dict[str, int]]) -> None:
    assert PROFILE["set-resources"].keys() - resources.keys() == set()


def test_what_measures_on_a_gpu_asks_for_more_than_the_defaults(resources: dict[str, dict[str, int]]) -> None:
    default = PROFILE["default-resources"]
    on_gpu = {name for name, of in resources.items() if of.get("gpu")}
    assert {"gate_numeric", "measure", "measure_regimes", "tune_measure", "experiments_of_pytorch"} <= on_gpu
    # The check of cuTile compiles on the GPU's node and launches a few kernels at one size.
    small = {name for name in on_gpu if resources[name]["mem_mb"] <= default["mem_mb"]}
    assert small == {"just_in_time_check"}
    experiments = [of for name, of in resources.items() if name.startswith("experiments_of_")]
    assert len(experiments) > 5
    assert all(of["gpu"] == 1 and of["runtime"] > default["runtime"] for of in experiments)
    assert all(resources[name]["runtime"] >= default["runtime"] for name in on_gpu)
