"""Compiling just in time beside compiling ahead of time: what is compared, and when there is nothing to compare."""

import importlib.metadata
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support import in_cuda13

from gemmrepro import build_cutile, host, just_in_time, registry
from gemmrepro.errors import UserError
from gemmrepro.operands import Operands

KERNELS = registry.kernels("cutile")
HALF = registry.kernel("cutile.matmul_fp16")


def way(values):
    """Something that writes `values` into C."""

    def launch(operands):
        operands.output[...] = values

    return launch


def operands_of(kernel):
    shape = just_in_time.shape_for(kernel)
    return Operands(kernel.problem, shape, (), np.ones((shape.m, shape.n), np.float16))


def test_results_are_compared_bit_for_bit_and_from_poisoned_memory():
    operands, values = operands_of(HALF), np.zeros((300, 51 * 8), np.float16)
    same = {"ahead of time": way(values), "just in time": way(values.copy())}
    assert just_in_time.compare(HALF, same, lambda: None, operands) == ""
    minus = values.copy()
    minus[7, 5] = -0.0
    other = {"ahead of time": way(values), "just in time": way(minus)}
    said = just_in_time.compare(HALF, other, lambda: None, operands)
    assert said == "1 of 122400 elements at 300x408x520 differ between ahead of time and just in time"
    lazy = {"ahead of time": way(values), "just in time": lambda operands: None}
    assert just_in_time.compare(HALF, lazy, lambda: None, operands).startswith("122400 of 122400")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_the_shape_has_several_tiles_and_a_tail_and_every_kernel_takes_it(kernel):
    shape = just_in_time.shape_for(kernel)
    kernel.check(shape)
    assert all(one.launch(shape).grid[0] > 1 for one in kernel.steps_at(shape) or (kernel,))
    assert kernel.op == "vector_add" or shape.m % kernel.params["bm"]


def test_a_kernel_of_several_launches_is_skipped_with_the_reason(tmp_path):
    verdict = just_in_time.check(registry.kernel("ozaki.fused_bf16_d9"), tmp_path)
    assert verdict == {"status": "skipped", "reason": "a run of it is several launches"}


def test_a_type_without_arrays_is_skipped_with_the_reason(tmp_path):
    verdict = just_in_time.check(registry.kernel("cutile.k_major_fp8_e4m3"), tmp_path)
    assert verdict == {"status": "skipped", "reason": "CuPy has no arrays of fp8_e4m3"}
    named = {kernel.dtype_in for kernel in KERNELS if {kernel.dtype_in, kernel.dtype_out} <= set(just_in_time.ARRAYS)}
    assert named == {"fp16", "fp32", "tf32", "fp64", "int8"}


def test_without_the_compiler_or_a_gpu_everything_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(build_cutile, "PACKAGES", ("no-such-package-of-this-name",))
    verdicts = just_in_time.check_all(KERNELS, tmp_path)
    assert len(verdicts) == len(KERNELS)
    assert {verdict["status"] for verdict in verdicts.values()} == {"skipped"}
    assert "no-such-package-of-this-name is not installed" in verdicts["cutile.matmul_fp16"]["reason"]

    class Failed(Exception):
        pass

    def count():
        raise Failed("no driver")

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=Failed)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(core=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert just_in_time.unable() == "there is no usable NVIDIA GPU (no driver)"
    runtime.getDeviceCount = lambda: 0
    assert just_in_time.unable() == "there is no visible NVIDIA GPU"
    runtime.getDeviceCount = lambda: 1
    assert just_in_time.unable() == ""


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"])
def test_the_compiler_is_shown_no_other_toolkit(monkeypatch, tmp_path, name):
    """It would take an older libNVVM from there, and fail without saying why."""
    monkeypatch.setenv(name, "/usr/local/cuda-12.0")
    monkeypatch.setattr(just_in_time, "unable", lambda: "")
    monkeypatch.setattr(just_in_time, "check", lambda kernel, build: {"status": os.environ.get(name, "hidden")})
    assert just_in_time.check_all([HALF], tmp_path) == {HALF.id: {"status": "hidden"}}
    monkeypatch.setenv(name, "/usr/local/cuda-12.0")
    given = []

    def run(command, **options):
        given.append(options["env"])
        return subprocess.CompletedProcess(command, build_cutile.REFUSED, "", "no")

    monkeypatch.setattr(build_cutile.subprocess, "run", run)
    build_cutile.refusals(HALF, ["90"], 1, tmp_path)
    assert len(given) == 1 and name not in given[0] and "PATH" in given[0]


def test_one_kernels_error_is_its_verdict_and_the_others_go_on(monkeypatch, tmp_path):
    def check(kernel, build):
        if kernel is HALF:
            raise RuntimeError("illegal memory access")
        return {"status": "passed", "reason": "", "same_code": True}

    monkeypatch.setattr(just_in_time, "unable", lambda: "")
    monkeypatch.setattr(just_in_time, "check", check)
    verdicts = just_in_time.check_all(KERNELS, tmp_path)
    assert verdicts[HALF.id] == {"status": "failed", "reason": "RuntimeError: illegal memory access"}
    assert [name for name, verdict in verdicts.items() if verdict["status"] == "failed"] == [HALF.id]


def test_the_command_fails_where_the_two_ways_differ(monkeypatch, tmp_path, capsys):
    found = {"cutile.a": {"status": "passed", "reason": "", "same_code": False}}
    monkeypatch.setattr(just_in_time, "check_all", lambda kernels, build: found)
    out = tmp_path / "out.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["just_in_time", "--family", "cutile", "--out", "out.json"])
    assert just_in_time.main() == 0
    assert json.loads(out.read_text()) == found and "other machine code" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    found["cutile.b"] = {"status": "failed", "reason": "they differ", "same_code": False}
    assert just_in_time.main() == 1 and "they differ" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["just_in_time", "--family", "ladder", "--out", str(out)])
    with pytest.raises(UserError, match="family ladder has no kernels in cuTile"):
        just_in_time.main()


@pytest.mark.containers
def test_in_its_container_the_check_finds_the_compiler_and_says_what_else_is_missing(default_run, tmp_path):
    if host.find_gpu()[0]:
        pytest.skip("here is a GPU, on which the check itself runs")
    out = tmp_path / "out.json"
    answer = in_cuda13(tmp_path, *("python3", "-m", "gemmrepro.just_in_time", "--family", "cutile", "--out", str(out)))
    assert answer.returncode == 0, answer.stdout
    (reason,) = {verdict["reason"] for verdict in json.loads(out.read_text()).values()}
    assert reason.startswith("there is no usable NVIDIA GPU")
