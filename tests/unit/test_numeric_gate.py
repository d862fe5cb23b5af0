"""The numerical gate whole, with NumPy in the GPU's place: kernels in turn, what they share, and who stops them."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm, numeric
from gemmrepro.gates.gate import reference_gemm
from gemmrepro.gates.gemm_cases import Case
from gemmrepro.gates.operations import key_on
from gemmrepro.operations import Problem, Shape

SESSION = SimpleNamespace(sync=lambda: None)
FP64 = Problem("gemm", "fp64", "fp64", "row,row,row")
CASE = Case(Shape(65, 9, 8), 1.0, 0.0, "normal", 3)


@pytest.fixture(autouse=True)
def numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())


def test_kernels_of_one_problem_share_operands_and_reference() -> None:
    one = gemm.References().of(FP64, CASE)
    a, b = one.wide
    wanted = reference_gemm(a, b, 1.0, 0.0, None)
    assert (one.reference == wanted[0]).all() and (one.scale == wanted[1]).all()
    assert all((wide != wide.astype(np.float32)).mean() > 0.9 for wide in (a, b)), "doubles with all their bits"
    cases = [CASE, *(Case(CASE.shape, 1.0, 0.0, "normal", seed) for seed in (4, 5))]
    references = gemm.References(2 * one.nbytes)
    first, second, third = (references.of(FP64, case) for case in cases)
    assert references.of(FP64, cases[2]) is third and references.of(FP64, cases[1]) is second
    assert references.of(FP64, CASE) is not first, "the oldest goes first"
    assert (first.a == one.a).all() and (second.a != one.a).any()


ENDS = """
import json, os, signal, sys
out, ends = sys.argv[sys.argv.index("--out-dir") + 1], json.loads(os.environ["ENDS"])
seeds = [word for word in sys.argv if word.startswith("--seed=")]
for line in sys.stdin:
    unit = line.strip()
    name, toolkit, *entry = unit.split("=")
    end = ends.get(unit, 0)
    if end != -signal.SIGALRM and end != 1:
        verdict = {"status": "passed", "reason": "", "cases": entry, "seeds": seeds, "process": os.getpid()}
        with open(f"{out}/{unit}.json", "w") as file:
            json.dump({"kernel": name, "toolkits": {toolkit: verdict} if toolkit else {}}, file)
    if end < 0:
        os.kill(os.getpid(), -end)
    if end:
        sys.exit(end)
    print("a greeting", flush=True)
    print(unit, flush=True)
"""
"""A program that judges as the gate's processes do, and ends as it is told."""

WANTED = [numeric.Wanted.parse(f"crt.{name}=cuda13") for name in ("library", "batched", "ping_pong", "accurate")]


@pytest.fixture
def ends(monkeypatch, tmp_path):
    """Sets how the processes that judge end, by binary."""
    monkeypatch.setattr(numeric, "WORKER", (sys.executable, "-c", ENDS))
    described = '{"name": "G", "driver": "D", "sm_count": 114, "power_cap_w": null}'
    monkeypatch.setattr(subprocess, "check_output", lambda *given, **options: described)
    for wanted in WANTED:
        write_build(tmp_path, wanted.id, "cuda13", "abc")
    return lambda **given: monkeypatch.setenv(
        "ENDS", json.dumps({f"crt.{name}=cuda13": end for name, end in given.items()})
    )


@pytest.mark.parametrize("processes", [1, 3])
def test_a_kernel_that_hangs_or_breaks_the_gpu_fails_alone(ends, tmp_path, processes) -> None:
    ends(batched=numeric.BROKEN, ping_pong=-signal.SIGALRM)
    (tmp_path / "crt.library.json").write_text("of another day")
    numeric.judge_side_by_side(WANTED, tmp_path, [7, 8], tmp_path, 5.0, processes)
    found = {each.id: json.loads((tmp_path / f"{each.id}.json").read_text()) for each in WANTED}
    judged = [name for name, verdict in found.items() if "seeds" in verdict["toolkits"]["cuda13"]]
    assert judged == ["crt.library", "crt.batched", "crt.accurate"]
    assert found["crt.library"]["toolkits"]["cuda13"]["seeds"] == ["--seed=7", "--seed=8"]
    hung = found["crt.ping_pong"]
    assert [hung[name] for name in ("gpu", "driver", "sm_count", "power_cap_w")] == ["G", "D", 114, None]
    gate_key = key_on(hung, registry.kernel("crt.ping_pong"), "abc")
    verdict = {"status": "failed", "build_key": "abc", "gate_key": gate_key, "reason": "it did not end within 5 s"}
    assert hung["toolkits"] == {"cuda13": verdict | {"cases": []}}
    pids = [found[f"crt.{name}"]["toolkits"]["cuda13"]["process"] for name in ("library", "batched", "accurate")]
    assert processes > 1 or pids[2] not in pids[:2], "a new process after one that ended"


def test_a_kernels_entry_points_are_judged_side_by_side_and_filed_together(ends, tmp_path) -> None:
    ends()
    wanted = [numeric.Wanted.parse(text) for text in ("hopper.wgmma=cuda12", "hopper.by_energy", "hopper.sketch=")]
    for name, toolkit in (("by_energy", "cuda12"), ("by_energy", "cuda13"), ("wgmma", "cuda12")):
        write_build(tmp_path, f"hopper.{name}", toolkit, "abc")
    out = tmp_path / "new/verdicts"
    numeric.judge_side_by_side(wanted, tmp_path, [7], out, 5.0, 2)
    found = {each.id: json.loads((out / f"{each.id}.json").read_text())["toolkits"] for each in wanted}
    entries = [variant.entry for variant in registry.kernel("hopper.by_energy").run.variants]
    assert len(entries) > 5 and list(found["hopper.wgmma"]) == ["cuda12"] and found["hopper.sketch"] == {}
    judged = {toolkit: verdict["cases"] for toolkit, verdict in found["hopper.by_energy"].items()}
    assert judged == {"cuda12": entries, "cuda13": entries}
    assert not list(out.glob(".*")), "parts are gone"
    numeric.judge_side_by_side([], tmp_path, [7], tmp_path, 5.0, 3)


def test_an_entry_point_that_hangs_fails_its_binary_and_keeps_the_cases_of_the_others(ends, tmp_path, monkeypatch):
    ends()
    kernel = registry.kernel("hopper.by_energy")
    first, second, *others = (variant.entry for variant in kernel.run.variants)
    monkeypatch.setenv("ENDS", json.dumps({f"{kernel.id}=cuda13={second}": -signal.SIGALRM}))
    write_build(tmp_path, kernel.id, "cuda13", "abc")
    numeric.judge_side_by_side([numeric.Wanted.parse(f"{kernel.id}=cuda13")], tmp_path, [7], tmp_path, 5.0, 2)
    verdict = json.loads((tmp_path / f"{kernel.id}.json").read_text())["toolkits"]["cuda13"]
    assert (verdict["status"], verdict["reason"]) == ("failed", f"{second} did not end within 5 s")
    assert verdict["cases"] == [first, *others]


@pytest.mark.parametrize("statuses", [("passed", "failed", "not run"), ("not run", "passed"), ("passed", "passed")])
def test_a_binary_passes_if_all_its_entry_points_do(statuses) -> None:
    parts = [{"status": name, "reason": "", "cases": [name]} for name in statuses]
    found = {"status": {3: "failed", 2: min(statuses)}[len(statuses)], "reason": "", "cases": [*statuses]}
    assert numeric.merged(parts) == found


@pytest.mark.parametrize("code", [1, 2], ids=["before its verdict", "after it"])
def test_another_failure_ends_the_gate_and_keeps_the_verdicts_so_far(ends, tmp_path, code) -> None:
    ends(ping_pong=code)
    with pytest.raises(UserError, match=rf"crt\.ping_pong ended with exit code {code}"):
        numeric.judge_side_by_side(WANTED, tmp_path, [7], tmp_path, 5.0, 1)
    judged = [each.id for each in WANTED if (tmp_path / f"{each.id}.json").is_file()]
    assert judged == ["crt.library", "crt.batched"]
