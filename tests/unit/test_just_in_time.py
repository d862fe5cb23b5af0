"""Compiling just in time beside compiling ahead of time: what is compared, and when there is nothing to compare."""

import importlib.metadata
import json
import os
import subprocess
from contextlib import nullcontext

import numpy as np
import pytest

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.build import cutile, cutile_export
from gemmrepro.errors import UserError
from gemmrepro.gpu import device
from gemmrepro.measure import just_in_time
from gemmrepro.measure.just_in_time import verdict

KERNELS = registry.kernels("cutile")
HALF = registry.kernel("cutile.matmul_fp16")


def test_results_are_compared_bit_for_bit_and_from_poisoned_memory():
    output, values = np.ones((300, 408), np.float16), np.zeros((300, 408), np.float16)
    minus = values.copy()
    minus[7, 5] = -0.0

    def writes(written):
        return lambda: output.__setitem__(..., written)

    def compare(other):
        return just_in_time.difference({"one": writes(values), "other": other}, lambda: None, output, {})

    assert compare(writes(values.copy())) == ""
    assert compare(writes(minus)) == "1 of 122400 elements differ between one and other"
    assert compare(lambda: None).startswith("122400 of 122400")


def test_a_kernel_that_the_host_steers_is_skipped_with_the_reason(tmp_path):
    found = just_in_time.check(None, registry.kernel("ozaki.naive_bf16"), tmp_path)
    assert found == verdict("skipped", "the host chooses between its launches as it goes")
    found = just_in_time.check(None, registry.kernel("crt.library"), tmp_path)
    assert found == verdict("skipped", "a library does some of its steps")


def test_without_the_compiler_or_a_gpu_everything_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(cutile, "PACKAGES", ("no-such-package-of-this-name",))
    verdicts = just_in_time.check_all(KERNELS, tmp_path)
    assert len(verdicts) == len(KERNELS)
    assert {found["status"] for found in verdicts.values()} == {"skipped"}
    assert "no-such-package-of-this-name is not installed" in verdicts["cutile.matmul_fp16"]["reason"]

    def open_gpu():
        raise UserError("no usable NVIDIA GPU")

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    monkeypatch.setattr(device, "open_gpu", open_gpu)
    verdicts = just_in_time.check_all([HALF], tmp_path)
    assert verdicts == {HALF.id: verdict("skipped", "no usable NVIDIA GPU")}


@pytest.fixture
def able(monkeypatch):
    """As if compiler and GPU were here."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    monkeypatch.setattr(device, "open_gpu", lambda: None)
    monkeypatch.setattr(device, "shared", nullcontext)


def test_the_compiler_is_shown_no_other_toolkit(able, monkeypatch, tmp_path, name="CUDA_HOME"):
    """It would take an older libNVVM from there, and fail without saying why."""
    monkeypatch.setenv(name, "/usr/local/cuda-12.0")

    monkeypatch.setattr(just_in_time, "check", lambda *_: verdict("passed", os.environ.get(name, "hidden")))
    assert just_in_time.check_all([HALF], tmp_path) == {HALF.id: verdict("passed", "hidden")}
    given = []

    def run(command, **options):
        given.append(options["env"])
        return subprocess.CompletedProcess(command, cutile_export.REFUSED, "", "no")

    monkeypatch.setattr(cutile.subprocess, "run", run)
    cutile.CuTile().refusals(HALF, ["90"], 1, tmp_path)
    assert len(given) == 1 and name not in given[0] and "PATH" in given[0]


def test_one_kernels_error_is_its_verdict_and_the_others_go_on(able, monkeypatch, tmp_path):
    def check(session, kernel, build):
        if kernel is HALF:
            raise RuntimeError("illegal memory access")
        return verdict("passed", same_code=True)

    monkeypatch.setattr(just_in_time, "check", check)
    verdicts = just_in_time.check_all(KERNELS, tmp_path)
    assert verdicts[HALF.id] == verdict("failed", "RuntimeError: illegal memory access")
    assert [name for name, found in verdicts.items() if found["status"] == "failed"] == [HALF.id]


def test_the_command_fails_where_the_two_ways_differ(monkeypatch, tmp_path, capsys):
    verdicts = {"cutile.a": verdict("passed", same_code=False)}
    monkeypatch.setattr(just_in_time, "check_all", lambda *_: verdicts)
    out = tmp_path / "out.json"
    words = ["just-in-time", "--family", "cutile", "--out", "out.json"]
    monkeypatch.chdir(tmp_path)
    assert command.run(words) == 0 and json.loads(out.read_text()) == verdicts
    assert "passed   different machine code" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    verdicts["cutile.b"] = verdict("failed", "they differ")
    assert command.run(words) == 1 and "they differ" in capsys.readouterr().err
    with pytest.raises(UserError, match="family ladder has no kernels in cuTile"):
        command.run(["just-in-time", "--family", "ladder", "--out", str(out)])
