"""The keys that recordings rest on: a change of structure must leave every one as it is.

A key that is meant to change (a kernel's source was edited, a toolkit updated) is entered here in the same commit, with
the recordings made again or struck out.
"""

import csv
import json
from pathlib import Path

import pytest

from gemmrepro import experiments, registry
from gemmrepro.build.key import build_key
from gemmrepro.core.dependencies import PACKAGE
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.paths import ROOT
from gemmrepro.core.trees import digest, parse, text
from gemmrepro.gates.operations import gate_key
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import TIMING_METHOD, run_key

GOLDEN = json.loads((Path(__file__).parent / "data/golden_keys.json").read_text())

# The versions that the images pin (envs/requirements/cuda*.txt).
TOOLKITS = {"cuda12": "12.4.131", "cuda13": "13.4.92"}
PACKAGES = {
    "cute_dsl": {
        "nvidia-cutlass-dsl": "4.8.1",
        "nvidia-cutlass-dsl-libs-base": "4.8.1",
        "nvidia-cutlass-dsl-libs-core": "4.8.1",
        "nvidia-cutlass-dsl-libs-cu13": "4.8.1",
    },
    "cutile": {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92"},
}
HEADERS = {"nvidia-cutlass": "4.2.0.0"}


@pytest.mark.parametrize("kernel_id", sorted(GOLDEN["kernels"]))
def test_build_keys_are_as_recorded(kernel_id: str) -> None:
    kernel = registry.kernel(kernel_id)
    installed = PACKAGES.get(kernel.code.compiler, {name: HEADERS[name] for name in kernel.code.packages})
    keys = {toolkit: build_key(kernel, TOOLKITS[toolkit], installed) for toolkit in kernel.platform.toolkits}
    assert keys == GOLDEN["kernels"][kernel_id]


@pytest.mark.parametrize("name", sorted(GOLDEN["experiments"]))
def test_experiment_keys_are_as_recorded(name: str) -> None:
    family, experiment = name.split(".")
    assert experiments.fingerprint(experiments.experiment(family, experiment)) == GOLDEN["experiments"][name]


def test_the_method_of_timing_is_raised_with_its_code() -> None:
    """Rows of another method are not comparable: raise TIMING_METHOD on purpose, or leave it if times stay the same."""
    assert (TIMING_METHOD, digest(text(parse(PACKAGE / "timing.py")))) == (1, GOLDEN["timing"])


def recordings(name: str) -> list[Path]:
    return sorted((ROOT / "reports/recorded").glob(f"*/*/{name}"))


@pytest.mark.parametrize("path", recordings("gates.json"), ids=lambda path: path.parent.name)
def test_recorded_gates_judged_these_runs_by_this_gate(path: Path) -> None:
    for kernel_id, verdict in json.loads(path.read_text()).items():
        for toolkit, judged in verdict["toolkits"].items():
            build_key = GOLDEN["kernels"][kernel_id][toolkit]
            assert judged["build_key"] == build_key
            assert judged["gate_key"] == gate_key(registry.kernel(kernel_id), build_key), kernel_id


OF_A_RUN = ("kernel", "toolkit", "m", "n", "k", "build_key", "run_key")


@pytest.mark.parametrize(
    "path",
    [*recordings("summary.csv"), *recordings("counters.csv")],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_recorded_rows_are_of_these_runs(path: Path) -> None:
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["toolkit"] != LIBRARY]
    assert rows or path.stem == "counters"
    # Of one launch there are many counters.
    for kernel, toolkit, m, n, k, *keys in {tuple(row[name] for name in OF_A_RUN) for row in rows}:
        build_key = GOLDEN["kernels"][kernel][toolkit]
        shape = Shape(int(m), int(n), int(k))
        assert keys == [build_key, run_key(registry.kernel(kernel), build_key, shape)], kernel


STALE = {"h100-80gb-hbm3/ozaki/experiments/products.json", "h100-80gb-hbm3/pytorch/experiments/gelu_order.json"}
"""Recorded before these experiments had intervals; the report says that they are stale."""


@pytest.mark.parametrize("path", recordings("experiments/*.json"), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_recorded_experiments_are_of_these_runs(path: Path) -> None:
    if path.relative_to(ROOT / "reports/recorded").as_posix() in STALE:
        assert json.loads(path.read_text())["declared"] != GOLDEN["experiments"][f"{path.parts[-3]}.{path.stem}"]
        return
    run = json.loads(path.read_text())
    assert run["declared"] == GOLDEN["experiments"][f"{run['family']}.{run['experiment']}"]
    for name, key in run["run_keys"].items():
        kernel_id, toolkit = name.split()
        assert key == run_key(registry.kernel(kernel_id), GOLDEN["kernels"][kernel_id][toolkit]), name
