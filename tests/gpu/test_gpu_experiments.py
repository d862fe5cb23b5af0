"""Experiments on a GPU: small ones, continued from their journal, and refusing what must not run."""

from dataclasses import replace
from pathlib import Path

import pytest
from gpu_tools import gated, runs

from gemmrepro import experiments, registry
from gemmrepro.experiments import run as experiments_run
from gemmrepro.experiments.results import Results, load

pytestmark = pytest.mark.gpu

SMALL = {"m": 100, "n": 72, "ks": [64, 4096], "laws": ["uniform", "integers"], "seeds": [5]}


@pytest.fixture(scope="module")
def accumulation() -> experiments.Experiment:
    declared = experiments.experiment("ada", "accumulation")
    return replace(declared, parameters={**declared.parameters, **SMALL})


@pytest.fixture(scope="module")
def gates(session, built, toolkit, tmp_path_factory) -> Path:
    """Gates of the kernels that ada's experiments run here."""
    folder = tmp_path_factory.mktemp("gates")
    ids = {name: None for each in experiments.declared("ada") for name in each.kernels}
    for kernel in map(registry.kernel, ids):
        if runs(kernel, session):
            gated(kernel.id, toolkit, built, folder)
    return folder


@pytest.fixture(scope="module")
def run(session, built, toolkit, gates, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")

    def once(which: experiments.Experiment, out: str, gates: Path = gates) -> tuple[Results, list[str]]:
        said: list[str] = []
        paths = (built, gates, folder / f"journal-{out}", folder / out / "ada")
        assert experiments_run.run(session, "ada", which, [toolkit], *paths, said.append)
        return load(folder / out, "ada")[which.name], said

    return once


def test_sums_err_as_they_should(run, accumulation):
    results, _ = run(accumulation, "whole")
    rows = results.rows.set_index(["kernel", "law", "k"])
    assert len(rows) == (len(accumulation.kernels) + 1) * 4
    assert (rows["status"] == "current").all()
    # Sums of integers under 2^24 are exact wherever they are kept.
    assert (results.rows[results.rows["law"] == "integers"]["right"] == 1).all()
    inside, outside, compensated = (
        rows.loc[(f"ada.accumulate_{name}", "uniform", 4096)] for name in ("inside", "outside", "compensated")
    )
    assert compensated["rms_u"] < outside["rms_u"] < inside["rms_u"]
    assert inside["bias_u"] < -10 * abs(outside["bias_u"]), "the tensor core truncates"


def test_probes_tell_one_story(run):
    """Whatever a tensor core keeps: a mma.sync's terms count alike wherever they stand, and sums lose, never gain."""
    results, _ = run(experiments.experiment("ada", "alignment"), "probes")
    rows = results.rows
    assert set(rows["kernel"]) >= {"ada.accumulate_inside"}
    assert not rows["found"].str.contains("differ").any()
    assert (rows["kept"] >= 22).all()
    for _, row in rows.iterrows():
        found = [float(value) for value in row["found"].split()]
        assert all(abs(value) <= abs(row["exact"]) for value in found), "truncated, not rounded up"
