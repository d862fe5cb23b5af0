"""Which architectures kernels are compiled for."""

import json
from pathlib import Path

import pytest
import yaml
from support import ROOT

from gemmrepro import registry
from gemmrepro.core.architectures import COMPILED, pick_arch
from gemmrepro.experiments import results
from gemmrepro.host import plan
from gemmrepro.host.places import HostGpu
from gemmrepro.host.plan import LONGEST, Plan
from gemmrepro.judge import claims
from gemmrepro.judge.metrics import METRICS
from gemmrepro.measure import rows
from gemmrepro.measure.plan import Settings
from gemmrepro.registry.requirements import requirement, tally

CONFIG = yaml.safe_load((ROOT / "config/config.yaml").read_text())


def compiled_for(kernel: str, toolkit: str, plan: Plan) -> list[str]:
    record = registry.kernel(kernel)
    return registry.targets(record, plan.architectures(record, toolkit))


def test_every_machine_code_that_a_claim_names_is_compiled():
    plan = Plan(CONFIG, "recorded", None)
    named = [
        (kernel, claim.compute["arch"])
        for claim in claims.load(judged=True)
        if "arch" in claim.compute and METRICS[claim.compute["metric"]].way == "count"
        for kernel in claim.compute["kernels"]
    ]
    assert len(named) > 20
    for kernel, arch in named:
        for toolkit in plan.toolkits_of(registry.kernel(kernel)):
            assert arch in {f"sm_{made}" for made in compiled_for(kernel, toolkit, plan)}, kernel


CAPABILITIES = (70, 86, 88, 90, 100, 121, 130)
"""Of GPUs that the toolkits know, of some that only one does, and of one that none does."""


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_a_gpu_can_run_is_compiled_for_it_and_measured_and_the_rest_has_a_reason(capability):
    plan, here = Plan(CONFIG, "live", HostGpu("A GPU", capability)), divmod(capability, 10)
    counts = tally(plan.kernels.values(), here)
    assert sum(counts.values()) == len(list(registry.kernels()))
    for kernel in plan.kernels.values():
        made = {toolkit: set(map(int, plan.architectures(kernel, toolkit))) for toolkit in plan.toolkits_of(kernel)}
        assert all(archs <= set(COMPILED[toolkit]) for toolkit, archs in made.items()), kernel.id
        able = [
            toolkit
            for toolkit in made
            if pick_arch([f"sm_{each}" for each in compiled_for(kernel.id, toolkit, plan)], here)
        ]
        needs = requirement(kernel, here)
        assert plan.runs(kernel) == ([] if needs else able), kernel.id
        assert set(plan.measured_with(kernel)) <= set(plan.compiling(kernel)), kernel.id
        used = kernel.timing.timed or any(kernel.id in each.kernels for of in plan.experiments.values() for each in of)
        assert bool(plan.measured_with(kernel)) == (used and not needs), kernel.id
    assert counts.get("", 0) == sum(bool(plan.runs(kernel)) for kernel in plan.kernels.values())
    for family in plan.families:  # a sweep, or the word that there is none
        swept = [each for each in plan.kernels_of(family) if each.timing.timed and plan.measured_with(each)]
        assert not swept or family not in plan.idle.sweeps


@pytest.mark.parametrize(("capability", "toolkit"), [(89, "cuda12"), (90, "cuda12"), (100, "cuda13"), (121, "cuda13")])
def test_a_family_is_timed_with_the_next_toolkit_where_its_own_does_not_compile_for_the_gpu(capability, toolkit):
    plan = Plan(CONFIG, "live", HostGpu("A GPU", capability))
    pinned = {"ladder", "hopper", "ada"}
    assert {plan.timed_with(family) for family in pinned} == {(toolkit,)}
    assert Settings.of(plan.settings["sweep"], "ladder").toolkits == (toolkit,)
    instead = plan.settings["sweep"].get("instead_of", {})
    assert instead == ({} if toolkit == "cuda12" else dict.fromkeys(pinned, "cuda12"))


def test_a_listed_architecture_is_joined_by_one_that_the_toolkit_knows_and_the_gpu_runs():
    listed = CONFIG | {"build": {"cuda12": [80], "cuda13": [80]}}
    kernel = registry.kernel("ladder.naive")
    for capability, expected in ((88, (["80", "87"], ["80", "88"])), (100, (["80"], ["80", "100"]))):
        plan = Plan(listed, "live", HostGpu("A GPU", capability))
        assert tuple(plan.architectures(kernel, name) for name in plan.toolkits) == expected
    plan = Plan(CONFIG | {"build": {"cuda12": [], "cuda13": [80, 120]}}, "recorded", None)
    assert plan.toolkits == ["cuda13"]
    assert compiled_for("ada.scalar", "cuda13", plan) == ["80", "120"]
    assert "hopper.sketch" not in plan.kernels


@pytest.mark.parametrize(
    ("kernel", "capability", "needs"),
    [
        ("hopper.wgmma", 100, "Hopper (sm_90a)"),
        ("ada.warp_tiles", 86, "144 KiB of shared memory a block, where sm_86 has 99"),
        ("ada.warp_tiles", 87, ""),
        ("cutile.matmul_fp8_e5m2", 87, "Hopper, data-center Blackwell or RTX Blackwell (its compiler refuses sm_86)"),
        ("ladder.naive", 75, "compute capability 8.0"),
        ("ladder.naive", 130, "a toolkit that compiles for sm_130"),
        ("ozaki.fused_bf16_d5", 103, ""),
    ],
)
def test_what_a_kernel_needs_is_told_by_its_record(kernel, capability, needs):
    assert requirement(registry.kernel(kernel), divmod(capability, 10)) == needs


def test_what_the_gpu_cannot_run_starts_nothing_there_and_reads_as_no_rows(tmp_path):
    ada, hopper = (Plan(CONFIG, "live", HostGpu("A GPU", capability)) for capability in (89, 90))
    assert {"hopper", "crt", "pytorch"} <= set(ada.idle.sweeps) and hopper.idle.sweeps == ("pytorch",)
    assert "hopper" in ada.idle.regimes and not hopper.idle.regimes
    assert "layouts" not in ada.experiments_here("hopper") and "layouts" in hopper.experiments_here("hopper")
    assert ada.numbers_of("hopper") == [] and ada.evidence("hopper") == "--gpu 8.9"
    assert set(ada.nothing_of(ada.families)) >= {
        "results/measure/hopper/run.json",
        "results/regimes/hopper/summary.csv",
        "results/experiments/hopper/layouts.json",
    }
    assert not Plan(CONFIG, "recorded", None).nothing_of(CONFIG["families"])
    plan.write_nothing(tmp_path, ["hopper"], ["hopper"], {"hopper": ["layouts"]})
    assert rows.load(tmp_path / "measure", "hopper").source == "none"
    assert results.load(tmp_path / "experiments", "hopper")["layouts"].source == "none"


def test_a_family_compiled_once_has_machine_code_of_one_toolkit_and_build_keys_of_all():
    plan = Plan(CONFIG | {"compiled_once": ["cute"]}, "recorded", None)
    base = registry.kernel("cute.base")
    assert plan.builds_of(base) == ["results/build/cuda12/cute.base.json", "results/build/cuda13/cute.base.json"]
    assert plan.builds_of(base, "fatbin") == ["results/build/cuda13/cute.base.fatbin"]
    assert (plan.wanted(base, "cuda12"), plan.wanted(base, "cuda13")) == ("cute.base=", "cute.base=90")
    # Claims count the instructions of these two; nvcc takes long for the first.
    slow, counted = registry.kernel("cute.article_three_stages"), registry.kernel("ladder.smem")
    assert [plan.wanted(slow, name) for name in ("cuda12", "cuda13")] == [f"{slow.id}=", f"{slow.id}=80,90"]
    plan = Plan(CONFIG | {"compiled_once": ["ladder"]}, "recorded", None)
    assert plan.compiling(counted) == ["cuda12", "cuda13"] and plan.compiling(base) == ["cuda12", "cuda13"]
    assert plan.compiling(registry.kernel("ada.scalar")) == ["cuda12", "cuda13"]


H200 = HostGpu("NVIDIA H200", 90, "")


def test_one_job_reads_recorded_verdicts_and_judges_no_more_than_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recordings = {"recorded_gpu": "h200"}
    every = Plan(CONFIG | recordings, "recorded", None)
    assert every.judged_together() == {"recorded": list(every.kernels.values())}
    alone = Plan(CONFIG | recordings, "recorded", None, frozenset({"ladder.smem"}))
    assert alone.judged_together() == {"recorded": [registry.kernel("ladder.smem")]}
    for path in every.builds_in(every.families):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert alone.judged_together() == every.judged_together()
    assert list(Plan(CONFIG, "live", H200).judged_together()) == every.families


def test_binaries_that_the_sweep_the_regimes_or_an_experiment_run_are_measured_and_judged():
    plan = Plan(CONFIG, "live", H200)
    measured = {
        name: plan.measured_with(registry.kernel(name)) for name in ("ladder.smem", "ladder.cut", "crt.library")
    }
    # The regimes measure with cuda13 first, the ladder's sweep with cuda12.
    assert measured == {"ladder.smem": ["cuda12"], "ladder.cut": ["cuda12", "cuda13"], "crt.library": ["cuda13"]}
    assert plan.measured_with(registry.kernel("pytorch.gelu")) == ["cuda13"], "only experiments run it"
    assert all(set(plan.judged_with(kernel)) <= set(plan.compiling(kernel)) for kernel in plan.kernels.values())
    every = Plan(CONFIG | {"gates": {"seeds": 2, "binaries": "all"}}, "live", H200)
    assert all(every.judged_with(kernel) == every.compiling(kernel) for kernel in every.kernels.values())


def test_the_capability_of_recordings_is_read_from_them(tmp_path: Path):
    assert plan.recorded_capability(tmp_path) is None
    for family, text in (("ada", "{"), ("crt", json.dumps({"gpu": {"compute_capability": "8.6"}}))):
        (tmp_path / family).mkdir()
        (tmp_path / family / "run.json").write_text(text)
    assert plan.recorded_capability(tmp_path) == 86


def test_a_family_that_takes_minutes_is_built_by_jobs_of_about_the_same_length():
    plan = Plan(CONFIG, "recorded", None)
    for family in plan.families:
        for toolkit in plan.toolkits:
            parts = plan.batches(family, toolkit)
            assert [kernel for part in parts for kernel in part] == plan.together(family, toolkit)
            efforts = [sum(plan.effort(kernel, toolkit) for kernel in part) for part in parts]
            assert all(effort <= LONGEST for effort in efforts)
            assert family != "cute" or len(efforts) < 2 or min(efforts) > 0.8 * max(efforts)
