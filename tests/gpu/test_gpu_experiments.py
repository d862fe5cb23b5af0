"""Experiments on a GPU, small ones: sums err as tensor cores make them, and PyTorch's modes do what is said of them."""

import pytest

pytestmark = pytest.mark.gpu


def test_sums_err_as_they_should(experiment):
    small = {"m": 100, "n": 72, "ks": [64, 4096], "laws": ["uniform", "integers"], "seeds": [5]}
    table = experiment("ada", "accumulation", small, {}).rows
    rows = table.set_index(["kernel", "law", "k"])
    assert (rows["status"] == "current").all()
    # Sums of integers under 2^24 are exact wherever they are kept.
    assert (table[table["law"] == "integers"]["right"] == 1).all()
    inside, outside, compensated = (
        rows.loc[(f"ada.accumulate_{name}", "uniform", 4096)] for name in ("inside", "outside", "compensated")
    )
    assert compensated["rms_u"] < outside["rms_u"] < inside["rms_u"]
    assert inside["bias_u"] < -10 * abs(outside["bias_u"]), "the tensor core truncates"


def test_five_kernels_become_one_and_bytes_decide(experiment):
    pytest.importorskip("torch")
    settings = {"rounds": 2, "seconds_per_round": 0.05}
    rows = experiment("pytorch", "gelu", {"sizes": [4096, 1 << 26]}, settings).rows
    by = rows.set_index(["kernel", "elements"])
    assert set(rows["kernel"]) == {"pytorch.gelu", "torch.eager", "torch.jit.script", "torch.compile"}
    assert (rows["error_u"] < 4).all()
    assert by.loc[("torch.eager", 1 << 26)]["launches"] == 5
    assert (rows[rows["kernel"] != "torch.eager"]["launches"] == 1).all()
    assert by.loc[("torch.eager", 1 << 26)]["gain"] == pytest.approx(1, rel=0.05)
    assert 4 < by.loc[("pytorch.gelu", 1 << 26)]["gain"] < 6.5


def test_modes_train_alike(experiment):
    pytest.importorskip("torchvision")
    settings = {"modes": ["eager", "default"], "iterations": 6, "rounds": 2, "limit_s": 200, "together": True}
    found = experiment("pytorch", "training", {"batch": 8, "warm_up": 4}, settings)
    rows = found.rows[found.rows["part"] == "steady"].set_index("kernel")
    assert set(rows.index) == {"torch.eager", "torch.compile.default"}
    assert rows.loc["torch.compile.default"]["graph_breaks"] == 0
    assert rows["first_loss"].iloc[0] == pytest.approx(rows["first_loss"].iloc[1], rel=0.1)
    assert rows.loc["torch.compile.default"]["first_s"] > rows.loc["torch.eager"]["first_s"]
    assert {entry["kernel"] for entry in found.run["skipped"]} >= {"torch.compile.max-autotune"}
