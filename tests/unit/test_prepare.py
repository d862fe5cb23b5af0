"""Which binaries a sweep may time: what was not built for its own GPU is left out, with the reason."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import CODE, write_build

from gemmrepro import registry
from gemmrepro.build import stage
from gemmrepro.build.compile import Units
from gemmrepro.build.record import read_build
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.core.architectures import COMPILED
from gemmrepro.errors import UserError
from gemmrepro.gates.stage import refusal_checks
from gemmrepro.measure import prepare

WGMMA = registry.kernel("hopper.wgmma")
NAIVE = registry.kernel("ladder.naive")


def session(*capability: int) -> SimpleNamespace:
    """A session on a GPU of this compute capability, with a driver for CUDA 13."""
    name, driver = "A GPU", {"driver": "580.1", "driver_cuda": (13, 0)}
    arch = "sm_{}{}".format(*capability)
    return SimpleNamespace(gpu=SimpleNamespace(name=name, compute_capability=capability, arch=arch, **driver))


@pytest.mark.parametrize(
    ("kernel", "capability", "toolkit", "reason"),
    [
        (WGMMA, (8, 9), "cuda13", "needs Hopper (sm_90a)"),
        (WGMMA, (9, 0), "cuda13", "it was not built: build.cuda13 in the configuration lists none of its targets"),
        (NAIVE, (7, 5), "cuda13", "needs compute capability 8.0"),
        (NAIVE, (10, 0), "cuda12", "not compiled for sm_100: cuda12 does not know it"),
        (NAIVE, (10, 3), "cuda13", "add 103 to build.cuda13"),
    ],
)
def test_a_kernel_is_left_out_for_its_true_reason_before_its_gate_is_asked(
    tmp_path: Path, kernel: registry.Kernel, capability: tuple[int, int], toolkit: str, reason: str
) -> None:
    """No gate was run at all here. An advice is one that the configuration takes."""
    if kernel is NAIVE:
        write_build(tmp_path, kernel.id, toolkit, "aaaa", {"sm_80": CODE})
    loaded, refused = prepare.load_binaries(session(*capability), {kernel.id: kernel}, (toolkit,), tmp_path, tmp_path)
    assert not loaded and list(refused) == [(kernel.id, toolkit)]
    assert reason in refused[kernel.id, toolkit]
    for number, name in re.findall(r"add (\d+) to build\.(\w+)", refused[kernel.id, toolkit]):
        assert int(number) in COMPILED[name]


def test_what_does_not_compile_for_an_architecture_that_no_record_speaks_of_is_left_out_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_units(kernel, toolkit, archs, threads, folder):
        if "103" in archs:
            raise UserError(f"{kernel.id} does not compile with {toolkit.name} for sm_103:\nfloat8 is not supported")
        return Units(kernel, toolkit, archs, (), {})

    def inspect(units, listed):
        build = tmp_path / "record"
        write_build(build, units.kernel.id, "cuda13", "aaaa", {f"sm_{arch}": CODE for arch in units.archs})
        record = read_build(units.kernel, build, "cuda13")
        refused = {f"sm_{arch}": message for arch, message in units.refused.items()}
        return {".json": replace(record, refused=refused).written()}

    for name, stand_in in (("compile_units", compile_units), ("inspect", inspect), ("disassembled", lambda paths: {})):
        monkeypatch.setattr(stage, name, stand_in)
    toolkit = Toolkit("cuda13", "13.0.88", ())
    stage.build_all({NAIVE.id: ["103"]}, toolkit, 1, None, tmp_path / "cuda13")
    _, left_out = prepare.load_binaries(session(10, 3), {NAIVE.id: NAIVE}, ("cuda13",), tmp_path, tmp_path)
    reason = left_out[NAIVE.id, "cuda13"]
    assert reason.startswith("not built for sm_103: ") and reason.endswith("float8 is not supported")
    made = read_build(NAIVE, tmp_path, "cuda13")
    assert list(made.archs) == ["sm_80"] and not refusal_checks(NAIVE, made.refused)
    with pytest.raises(UserError, match="does not compile"):  # that a record speaks of it is a promise
        monkeypatch.setattr(stage, "compile_units", lambda *_: compile_units(NAIVE, toolkit, ["103"], 1, None))
        stage.build_all({NAIVE.id: ["100"]}, toolkit, 1, None, tmp_path / "cuda13")


def test_a_timed_kernel_is_asked_for_by_its_id() -> None:
    assert list(prepare.timed_kernels("ladder", "ladder.smem,ladder.naive")) == ["ladder.smem", "ladder.naive"]
    with pytest.raises(UserError, match=r"ladder has no timed kernel ladder\.tea; it has ladder\.naive"):
        prepare.timed_kernels("ladder", "ladder.tea")
