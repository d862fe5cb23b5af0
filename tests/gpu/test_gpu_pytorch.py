"""PyTorch's experiments on a GPU: small ones, and the fused kernel under its gate."""

from dataclasses import replace
from pathlib import Path

import pytest
from gpu_tools import gated

from gemmrepro import experiments, registry
from gemmrepro.experiments import results
from gemmrepro.experiments import run as experiments_run

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gates(session, built, toolkit, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gates")
    for kernel in registry.kernels("pytorch"):
        gated(kernel.id, toolkit, built, folder)
    return folder


@pytest.fixture(scope="module")
def run(session, built, toolkit, gates, tmp_path_factory):
    """Runs an experiment with other parameters and settings; returns its rows."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("experiment")

    def once(name: str, parameters: dict, settings: dict) -> results.Results:
        declared = experiments.with_settings(experiments.experiment("pytorch", name), settings)
        small = replace(declared, parameters={**declared.parameters, **parameters})
        said: list[str] = []
        paths = (built, gates, folder / f"journal-{name}", folder / "out" / "pytorch")
        assert experiments_run.run(session, "pytorch", small, [toolkit], *paths, said.append), said
        return results.load(folder / "out", "pytorch")[name]

    return once


def test_five_kernels_become_one_and_bytes_decide(run, toolkit):
    rows = run("gelu", {"sizes": [4096, 1 << 26]}, {"rounds": 2, "seconds_per_round": 0.05}).rows
    by = rows.set_index(["kernel", "elements"])
    assert set(rows["kernel"]) == {"pytorch.gelu", "torch.eager", "torch.jit.script", "torch.compile"}
    assert (rows["error_u"] < 4).all()
    assert by.loc[("torch.eager", 1 << 26)]["launches"] == 5
    assert (rows[rows["kernel"] != "torch.eager"]["launches"] == 1).all()
    assert by.loc[("torch.eager", 1 << 26)]["gain"] == pytest.approx(1, rel=0.05)
    assert 4 < by.loc[("pytorch.gelu", 1 << 26)]["gain"] < 6.5


def test_modes_train_alike(run):
    pytest.importorskip("torchvision")
    settings = {"modes": ["eager", "default"], "iterations": 6, "rounds": 2, "limit_s": 200, "together": True}
    found = run("training", {"batch": 8, "warm_up": 4}, settings)
    steady = found.rows["part"] == "steady"
    rows = found.rows[steady].set_index("kernel")
    assert set(rows.index) == {"torch.eager", "torch.compile.default"}
    assert rows.loc["torch.compile.default"]["graph_breaks"] == 0
    assert rows["first_loss"].iloc[0] == pytest.approx(rows["first_loss"].iloc[1], rel=0.1)
    assert rows.loc["torch.compile.default"]["first_s"] > rows.loc["torch.eager"]["first_s"]
    assert {entry["kernel"] for entry in found.run["skipped"]} >= {"torch.compile.max-autotune"}
    parts = found.rows[~steady].set_index(["kernel", "part", "iteration"])["seconds"]
    assert len(parts) == 2 * 4 * 4
    compiled = parts["torch.compile.default"]
    assert compiled["backward", 1] > 3 * compiled["backward", 4]  # which compiles as the forward pass does


def test_what_was_scripted_on_the_cpu_stays_slow_on_the_gpu_until_caches_are_cleared(run):
    rows = run("gelu_order", {}, {"rounds": 2, "samples": 20}).rows.set_index("order")
    assert rows.loc["cpu"]["gain"] < 1.2 and rows.loc["cpu, cleared"]["gain"] > 2
    assert rows.loc["gpu"]["gain"] > 2 and rows.loc["cpu, new object"]["gain"] > 2
    assert (rows["second_of_median_low"] <= rows["second_of_median"]).all()
    # The second call is the one that compiles.
    assert rows.loc["gpu"]["second_of_median_low"] > rows.loc["gpu"]["first_of_median_high"]
    assert rows.loc["gpu"]["profiled_first"] == 1 and rows.loc["gpu"]["profiled_later"] == 0
