"""Which GPUs a host has, and what a run makes of them. A program called nvidia-smi answers as the driver's would."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import slots
from gemmrepro.host.encoding import check_encoding
from gemmrepro.host.gpu_probe import HostGpu, find_gpus
from gemmrepro.host.target import VARIABLE, Target, resolve, resolve_measure

GPU = HostGpu("NVIDIA H200", 90, "GPU-1")
FOUR = "".join(f"NVIDIA H200, 9.0, GPU-{i}a\n" for i in range(4))
MIXED = "NVIDIA RTX A6000, 8.6, GPU-0a\nNVIDIA T4, 7.5, GPU-1a\nNVIDIA RTX A6000, 8.6, GPU-2a\n"
CLUSTER = {"name": "NVIDIA A100", "capability": 80}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes nvidia-smi print a text, or fail with it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in (slots.VISIBLE, VARIABLE, slots.EXPECTED):
        monkeypatch.delenv(name, raising=False)

    def answers(text: str, code: int = 0) -> None:
        program = tmp_path / "nvidia-smi"
        lines = "".join(f"echo '{line}'\n" for line in text.splitlines())
        program.write_text(f"#!/bin/sh\n{lines}exit {code}\n")
        program.chmod(0o755)

    return answers


@pytest.mark.parametrize(
    ("wanted", "gpu", "resolved"),
    [
        ("auto", GPU, "live"),
        ("auto", None, "recorded"),
        ("live", GPU, "live"),
        ("recorded", GPU, "recorded"),
        ("recorded", None, "recorded"),
    ],
)
def test_measure_resolves(wanted, gpu, resolved):
    assert resolve_measure(wanted, gpu, "nvidia-smi is not on PATH") == resolved


def test_live_without_gpu_names_the_reason_and_the_way_out():
    with pytest.raises(UserError, match=r"nvidia-smi is not on PATH.*auto or recorded.*compute nodes"):
        resolve_measure("live", None, "nvidia-smi is not on PATH")


@pytest.mark.parametrize(
    ("listing", "visible", "found"),
    [
        (FOUR, None, ["GPU-0a", "GPU-1a", "GPU-2a", "GPU-3a"]),
        (FOUR, "1,3", ["GPU-1a", "GPU-3a"]),
        (FOUR, "GPU-2", ["GPU-2a"]),
        (FOUR, "2,-1,3", ["GPU-2a"]),
        (MIXED, None, ["GPU-0a", "GPU-2a"]),
        (MIXED, "1", ["GPU-1a"]),
    ],
)
def test_jobs_are_spread_over_the_visible_gpus_of_one_model(listing, visible, found, driver):
    driver(listing)
    gpus, why_not = find_gpus({} if visible is None else {slots.VISIBLE: visible})
    assert ([gpu.uuid for gpu in gpus], why_not) == (found, "")


@pytest.mark.parametrize(
    ("text", "code", "visible", "reason"),
    [
        ("", 0, None, "lists no GPU"),
        ("No devices were found", 0, None, "nvidia-smi failed"),
        ("Failed to initialize NVML: Driver/library version mismatch", 9, None, "version mismatch"),
        (FOUR, 0, "", "CUDA_VISIBLE_DEVICES= leaves no GPU"),
        (FOUR, 0, "7", "CUDA_VISIBLE_DEVICES=7 leaves no GPU"),
    ],
)
def test_no_usable_gpu_has_its_reason(text, code, visible, reason, driver):
    driver(text, code)
    gpus, why_not = find_gpus({} if visible is None else {slots.VISIBLE: visible})
    assert gpus == [] and reason in why_not


def test_jobs_take_the_target_of_the_run_wherever_they_run(driver):
    """Planned without a GPU, run beside one; and the reverse."""
    environ: dict[str, str] = {}
    planned = resolve({"measure": "auto"}, environ, main=True)
    assert planned == Target("recorded", None, "nvidia-smi is not on PATH", 1)
    driver(FOUR)
    assert resolve({"measure": "auto"}, environ, main=False) == planned
    live = resolve({"measure": "auto"}, environ, main=True)
    assert (live.measure, live.gpu, live.slots) == ("live", HostGpu("NVIDIA H200", 90, "GPU-0a"), 8)
    driver("", 1)
    assert resolve({"measure": "auto"}, environ, main=False) == live
    assert resolve({"measure": "auto"}, {}, main=False).measure == "recorded"  # nothing was handed on


@pytest.mark.parametrize("measure", ["auto", "live"])
def test_a_login_node_plans_for_the_configured_gpu(measure, driver):
    environ: dict[str, str] = {}
    target = resolve({"measure": measure, "gpu": CLUSTER}, environ, main=True)
    assert (target.measure, target.gpu) == ("live", HostGpu("NVIDIA A100", 80))
    assert environ[slots.EXPECTED] == "NVIDIA A100"
    resolve({"measure": "auto", "gpu": None}, environ, main=True)
    assert slots.EXPECTED not in environ


def test_a_job_on_another_model_than_planned_is_refused(monkeypatch):
    monkeypatch.setenv(slots.EXPECTED, "NVIDIA A100")
    slots.check_expected("NVIDIA A100")
    with pytest.raises(UserError, match=r"NVIDIA H200.*gpu\.name: NVIDIA A100"):
        slots.check_expected("NVIDIA H200")


def test_a_shell_that_does_not_read_utf8_is_told_how_to() -> None:
    check_encoding()
    check_encoding("UTF8")
    with pytest.raises(UserError, match=r"reads text as ANSI_X3\.4-1968, .*; run `export LC_ALL=C\.UTF-8`"):
        check_encoding("ANSI_X3.4-1968")
