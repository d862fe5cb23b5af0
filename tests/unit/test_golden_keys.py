"""Build keys and experiment keys that recordings rest on: a change of structure must leave every one as it is.

A key that is meant to change (a kernel's source was edited, a toolkit updated) is entered here in the same commit, with
the recordings made again or struck out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmrepro import experiments, registry
from gemmrepro.build.key import build_key
from gemmrepro.core.paths import ROOT

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
    installed = PACKAGES.get(kernel.compiler, {name: HEADERS[name] for name in kernel.packages})
    keys = {toolkit: build_key(kernel, TOOLKITS[toolkit], installed) for toolkit in kernel.toolkits}
    assert keys == GOLDEN["kernels"][kernel_id]


@pytest.mark.parametrize("name", sorted(GOLDEN["experiments"]))
def test_experiment_keys_are_as_recorded(name: str) -> None:
    family, experiment = name.split(".")
    assert experiments.fingerprint(experiments.experiment(family, experiment)) == GOLDEN["experiments"][name]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "reports/recorded").glob("*/*/gates.json")), ids=lambda path: path.parent.name
)
def test_recorded_gates_judged_these_binaries(path: Path) -> None:
    for kernel_id, verdict in json.loads(path.read_text()).items():
        for toolkit, judged in verdict["toolkits"].items():
            assert judged["build_key"] == GOLDEN["kernels"][kernel_id][toolkit]
