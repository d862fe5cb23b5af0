"""The real thing: the default run in its containers, and what an edit of each kind reruns."""

import csv
import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from support import ROOT, alone, call, planned, snakemake

from gemmrepro import registry
from gemmrepro.build import record
from gemmrepro.host.plan import Plan
from gemmrepro.judge.judging import REGISTERS, WAYS, unfounded
from gemmrepro.judge.rules import VERDICTS
from gemmrepro.paper.text import anchor

pytestmark = pytest.mark.containers

# A family that the default configuration does not list is neither built nor judged in its run.
CONFIG = yaml.safe_load((ROOT / "config/config.yaml").read_text())
FAMILIES = CONFIG["families"]
KERNELS = [kernel for family in FAMILIES for kernel in registry.kernels(family)]

PLAN = Plan(CONFIG, "recorded", None)
COMPILED = {(kernel.id, toolkit) for kernel in KERNELS for toolkit in PLAN.compiling(kernel)}
"""What the default run compiles; the other kernels and toolkits have a build key."""

RECORDED = ROOT / "reports/recorded/h200"
"""What was measured on the GPU that the report is about. A kernel without a recording is reported as unmeasured."""


@cache
def recorded_gates() -> set[tuple[str, str]]:
    """Kernels and toolkits whose binaries the numerical gate has judged in a recording."""
    paths = [path for family in FAMILIES if (path := RECORDED / family / "gates.json").is_file()]
    assert len(paths) > 5
    verdicts = {name: verdict for path in paths for name, verdict in json.loads(path.read_text()).items()}
    return {
        (name, toolkit)
        for name, verdict in verdicts.items()
        for toolkit, judgement in verdict["toolkits"].items()
        if judgement["status"] != "not run"  # a toolkit that was left out of the build had nothing to judge
    }


def timed_kernels(folder: Path) -> set[str]:
    """Kernels with rows in the summaries below `folder`."""
    paths = [folder / family / "summary.csv" for family in FAMILIES]
    return {row["kernel"] for path in paths if path.is_file() for row in csv.DictReader(path.open(newline=""))}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_every_kernel_is_built_for_the_recorded_gpu_and_gated(kernel: registry.Kernel, default_run: str) -> None:
    gate = json.loads((ROOT / f"results/gates/{kernel.id}.json").read_text())
    assert gate["passed"] is True
    refused = {arch for refusal in kernel.promises.refusals for arch in refusal.archs}
    for toolkit in ("cuda12", "cuda13"):
        if toolkit not in kernel.platform.toolkits:
            assert toolkit not in gate["toolkits"]
            continue
        build = record.read_build(kernel, ROOT / "results/build", toolkit)
        judged = gate["toolkits"][toolkit]
        assert judged["build_key"] == build.build_key
        assert judged["numeric"]["status"] == ("passed" if (kernel.id, toolkit) in recorded_gates() else "not run")
        if (kernel.id, toolkit) not in COMPILED:
            assert build.archs == {} and judged["static"] == {"passed": None, "checks": []}
            assert not (ROOT / f"results/build/{toolkit}/{kernel.id}.fatbin").exists()
            continue
        assert {f"sm_{arch}" for arch in registry.targets(kernel, ["90"]) if arch not in refused} <= set(build.archs)
        for code in kernel.codes:
            for arch, made in build.codes(code.code.entry).items():
                if code.platform.chosen_for in ("", arch[3:]):  # what a search chose must fit its own target alone
                    declared = {arch[3:], f"{toolkit}:{arch[3:]}"} & set(code.promises.spills)
                    assert bool(made.spill_bytes) == bool(declared), f"{code.code.entry} {arch}"
        assert judged["static"]["passed"] is True
        assert {check["arch"] for check in judged["static"]["checks"]} >= set(build.archs)
        binary = (ROOT / f"results/build/{toolkit}/{kernel.id}.fatbin").read_bytes()
        assert str(ROOT).encode() not in binary


def test_recorded_rows_belong_to_todays_binaries(default_run: str) -> None:
    for family in FAMILIES:
        with (ROOT / f"results/measure/{family}/summary.csv").open(newline="") as file:
            assert {row["status"] for row in csv.DictReader(file)} <= {"current"}, family
    assert timed_kernels(ROOT / "results/measure") == timed_kernels(RECORDED) != set()


def test_every_claim_has_a_verdict_and_the_report_shows_it(default_run: str) -> None:
    verdicts = json.loads((ROOT / "results/verdicts.json").read_text())
    page = (ROOT / "reports/claims.html").read_text()
    assert verdicts["claims"] and unfounded(verdicts["claims"]) == []
    for claim in verdicts["claims"]:
        assert claim["verdict"] in VERDICTS
        assert claim["register"] in REGISTERS and claim["way"] in WAYS
        assert claim["explanation"]
        assert claim["id"] in page
    for kernel in KERNELS:
        assert f'id="{anchor(kernel.id)}"' in (ROOT / f"reports/kernels/{kernel.id}.html").read_text()


def test_nothing_is_left_to_do(default_run: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with alone("checkout", tmp_path_factory):
        assert planned(ROOT, "--use-singularity") == {}


def test_an_edit_that_loses_the_rungs_point_fails_its_gate_and_strikes_its_rows(finished: Path) -> None:
    """The vectorized rung without its vectors: the gate must see it, the rows are stale, nothing rests on them."""
    source = finished / "kernels/ladder/6_vectorized.cu"
    text = source.read_text()
    spoiled = (finished / "kernels/ladder/5_blocktile_2d.cu").read_text()
    spoiled = spoiled.replace(
        f"{registry.kernel('ladder.blocktile_2d').code.entry}(", f"{registry.kernel('ladder.vectorized').code.entry}("
    )
    assert spoiled != text
    source.write_text(spoiled)

    ladder = ("--use-singularity", "--config", "families=[ladder,ceilings]")
    stage = snakemake(*ladder, "--", "gates", folder=finished)
    assert stage.returncode != 0
    assert re.search(r"ladder\.vectorized +failed", stage.stdout, re.IGNORECASE)

    run = snakemake(*ladder, folder=finished)
    assert run.returncode == 0, run.stdout[-4000:]
    verdicts = json.loads((finished / "results/verdicts.json").read_text())
    resting = [claim for claim in verdicts["claims"] if "ladder.vectorized" in claim["kernels"]]
    assert resting
    for claim in resting:
        assert claim["verdict"] in {"not measured", "not testable here"}, claim["id"]
        assert claim["verdict"] == "not testable here" or re.search(r"stale|failed its gate", claim["explanation"])
    assert "stale" in (finished / "reports/families/ladder.html").read_text()


def test_a_kernel_that_does_not_compile_gets_the_compilers_words(finished: Path) -> None:
    source = finished / "kernels/ladder/1_naive.cu"
    source.write_text(source.read_text().replace("float sum", "flaot sum", 1))
    assert "flaot" in source.read_text()
    run = snakemake("--use-singularity", "results/build/cuda12/ladder.naive.json", folder=finished)
    assert run.returncode != 0
    assert re.search(r'identifier "flaot" is undefined', run.stdout)
    assert "gemmrepro: " in run.stdout
    assert "Traceback (most recent call last)" not in run.stdout
    # The others are kept, so that the corrected source is all there is to compile.
    source.write_text(source.read_text().replace("flaot sum", "float sum", 1))
    run = snakemake("--use-singularity", "results/build/cuda12/ladder.coalesced.json", folder=finished)
    assert run.returncode == 0, run.stdout[-4000:]
    assert re.search(r"^ladder\.coalesced .* kept$", run.stdout, re.M)
    assert (finished / "results/build/cuda12/ladder.coalesced.fatbin").is_file()


def test_snakemake_writes_its_own_report(finished: Path) -> None:
    run = snakemake("--report", "run.html", folder=finished)
    assert run.returncode == 0, run.stdout[-4000:]
    page = (finished / "run.html").read_text()
    assert [name for name in ("Figures", "Verdicts", "Gates", "Measurements", "Paper") if name not in page] == []


def test_the_default_run_fits_the_profile_of_provenance_run_crates(
    default_run: str, validators: Path, tmp_path: Path
) -> None:
    out = tmp_path / "crate"
    command = [sys.executable, "-m", "gemmrepro", "crate", "--out", str(out)]
    written = call(command, PYTHONPATH=str(ROOT / "workflow"))
    assert written.returncode == 0, written.stdout
    graph = json.loads((out / "ro-crate-metadata.json").read_text())["@graph"]
    images = [entity["name"] for entity in graph if entity["@type"] == "ContainerImage"]
    assert "report" in images
    profile = [str(out), "provenance-run-crate-0.5", "REQUIRED"]
    checked = call([str(validators / "python"), str(ROOT / "tests/validate_crate.py"), *profile])
    assert checked.returncode == 0, checked.stdout
