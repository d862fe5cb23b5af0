"""The histogram experiment on a GPU, small: every version that takes the bins, the window off and on, and its peers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_tools import gated, runs

from gemmrepro import experiments, registry
from gemmrepro.experiments import results, run

pytestmark = pytest.mark.gpu

BINS = 1_000_000


@pytest.fixture(scope="module")
def rows(session, built, toolkit, tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("histogram")
    declared = experiments.experiment("memory", "histogram")
    for kernel in map(registry.kernel, declared.kernels):
        assert runs(kernel, session)
        gated(kernel.id, toolkit, built, folder / "gates")
    small = replace(declared, parameters={"n": 1 << 24, "laws": [[256, ["constant"]], [BINS, ["uniform", "skewed"]]]})
    said: list[str] = []
    paths = (built, folder / "gates", folder / "journal", folder / "out" / "memory")
    assert run.run(session, "memory", small, [toolkit], *paths, said.append), said
    return results.load(folder / "out", "memory")["histogram"].rows


def test_every_version_that_takes_the_bins_has_rows(rows):
    many, few = rows[rows["bins"] == BINS], rows[rows["bins"] == 256]
    own = {kernel for kernel in few["kernel"] if kernel.startswith("memory.")}
    assert own == set(experiments.experiment("memory", "histogram").kernels)
    assert (rows["most_kept"] < 1).all()
    assert {kernel for kernel in many["kernel"] if kernel in own} == {
        "memory.histogram_global",
        "memory.histogram_ranges",
    }
    assert {"cub.histogram", "torch.bincount", "torch.histc"} <= set(many["kernel"])
    assert set(rows["status"]) == {"current"} and (rows["time_us"] > 0).all()


def test_sorting_by_ranges_does_not_mind_uneven_ids(rows):
    off = rows[(rows["bins"] == BINS) & (rows["window"] == "off")].set_index(["kernel", "law"])["time_us"]
    assert off["memory.histogram_ranges", "skewed"] < off["memory.histogram_global", "skewed"] / 2
    assert off["memory.histogram_ranges", "skewed"] < 3 * off["memory.histogram_ranges", "uniform"]
