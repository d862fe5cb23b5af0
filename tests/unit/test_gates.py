"""The static gate passes real machine code and fails it with a planted fault; verdicts are merged by build key."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmrepro import registry
from gemmrepro.build.record import MachineCode
from gemmrepro.errors import UserError
from gemmrepro.gates import stage
from gemmrepro.gates.operations import gate_key
from gemmrepro.gates.stage import gate, summary_line
from gemmrepro.paper.kernel import gate_view

RECORD = json.loads((Path(__file__).parent / "data" / "warptile.build.json").read_text())
"""A real build record of ladder.warptile (CUDA 13, sm_86 and sm_90)."""
WARPTILE = registry.kernel("ladder.warptile")
KEY, GATE_KEY = RECORD["build_key"], gate_key(WARPTILE, RECORD["build_key"])
Record = dict[str, Any]


@pytest.fixture
def record() -> Record:
    """A copy of RECORD to doctor."""
    return copy.deepcopy(RECORD)


def write(record: Record, folder: Path) -> Path:
    path = folder / record["toolkit"] / f"{record['kernel']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return folder


def judge(record: Record, folder: Path, numeric=None, recorded=None):
    return gate(WARPTILE, write(record, folder), ["cuda13"], numeric, recorded)


def failures(result) -> set[tuple[str, str]]:
    checks = result["toolkits"]["cuda13"]["static"]["checks"]
    return {(check["arch"], check["check"]) for check in checks if not check["passed"]}


def test_real_machine_code_passes(record, tmp_path):
    result = judge(record, tmp_path)
    assert result["passed"] and failures(result) == set()
    checks = result["toolkits"]["cuda13"]["static"]["checks"]
    assert {check["arch"] for check in checks} == {"sm_86", "sm_90", "every target"}
    assert all(set(check) == {"arch", "check", "why", "expected", "found", "passed"} for check in checks)


def renamed(old: str, new: str) -> Callable[[Record], None]:
    return lambda entry: entry["instructions"].__setitem__(new, entry["instructions"].pop(old))


def set_to(**fields: int) -> Callable[[Record], None]:
    return lambda entry: entry.update(fields)


def counted(**opcodes: int) -> Callable[[Record], None]:
    return lambda entry: entry["instructions"].update({name.replace("_", "."): n for name, n in opcodes.items()})


def no_barrier(entry: Record) -> None:
    del entry["instructions"]["BAR.SYNC.DEFER_BLOCKING"]


BARRIER = r"BAR\.SYNC(\..*)?"
PLANTS = [
    ("spilled", set_to(spill_store_bytes=8, spill_load_bytes=16), "spilled bytes"),
    ("stack", set_to(stack_bytes=8), "stack bytes"),
    ("spilled in code only", counted(STL=2), "local loads and stores"),
    ("narrow loads", renamed("LDG.E.128", "LDG.E.64"), r"LDG\.E(\..*)?\.128(\..*)?"),
    ("one narrow load", counted(LDG_E_CONSTANT=1), r"LDG\.E(\.CONSTANT|\.STRONG.*|\.E[FL])?"),
    ("one barrier", lambda entry: entry["instructions"].update({"BAR.SYNC.DEFER_BLOCKING": 1}), BARRIER),
    ("too many registers", set_to(registers=256), "registers per block"),
    ("too much shared memory", set_to(shared_bytes=48 * 1024 + 4), "static shared bytes"),
]


@pytest.mark.parametrize(("plant", "check"), [pytest.param(plant, check, id=name) for name, plant, check in PLANTS])
def test_a_planted_fault_in_one_architecture_fails(record, tmp_path, plant, check):
    plant(record["archs"]["sm_90"])
    result = judge(record, tmp_path)
    assert not result["passed"] and ("sm_90", check) in failures(result)
    assert not any(arch == "sm_86" for arch, _ in failures(result))


def test_a_request_that_the_assembler_ignored_fails(record, tmp_path):
    record["advisories"] = ["(C7508) Potential Performance Loss: 'setmaxnreg' ignored"]
    assert failures(judge(record, tmp_path)) == {("every target", "compiler advisories")}


def failed(kernel: registry.Kernel, arch: str, **fields: int) -> set[str]:
    code = MachineCode(**{**RECORD["archs"]["sm_90"], **fields})
    return {check.check for check in stage.static_checks(kernel, arch, code) if not check.passed}


def test_registers_and_shared_memory_are_judged_with_the_launch_that_needs_most():
    # 1024 threads of 80 registers are 81920 of 65536.
    assert "registers per block" in failed(registry.kernel("ladder.naive"), "sm_90", registers=80)
    greedy = replace(WARPTILE, launch=lambda shape: replace(WARPTILE.launch(shape), shared_bytes=150 * 1024))
    fits = {arch: not failed(greedy, arch) for arch in ("sm_80", "sm_86", "sm_90a", "sm_120", "sm_999")}
    assert fits == {"sm_80": False, "sm_86": False, "sm_90a": True, "sm_120": False, "sm_999": False}

    def launch(shape):
        """Grows at 4096, which is beyond the smallest shape, and at 16384, which is beyond the usual ones."""
        threads, shared = (2048 if shape.k > 1024 else 128), (230 * 1024 if shape.k > 8192 else 0)
        return replace(WARPTILE.launch(shape), block=(threads, 1, 1), shared_bytes=shared)

    grown = failed(replace(WARPTILE, launch=launch), "sm_90")
    assert grown == {"threads per block", "registers per block", "shared bytes per block"}


def case(shape, alpha, beta, inputs, seed, error, gamma, message=""):
    said = {"shape": shape, "alpha": alpha, "beta": beta, "inputs": inputs, "seed": seed}
    return {**said, "err_scaled_max": error, "gamma": gamma, "passed": not message, "message": message}


CASES = [case("128x128x16", 1, 0, "normal", 1, 1.0, 17.0), case("256x128x32", 2, 1, "wide", 2, 9.0, 33.0)]
BAD = [*CASES, case("128x128x16", 1, 0, "normal", 1, None, 17.0, "NaN at C[3,4]")]


def judged(status, key=KEY, cases=CASES):
    return {"status": status, "build_key": key, "gate_key": GATE_KEY, "reason": "", "cases": cases}


def numeric_file(folder: Path, **toolkits) -> Path:
    path = folder / "numeric.json"
    path.write_text(json.dumps({"kernel": WARPTILE.id, "gpu": "NVIDIA H200", "driver": "580", "toolkits": toolkits}))
    return path


def test_a_numerical_failure_of_one_toolkit_fails_the_gate(record, tmp_path):
    write(record | {"toolkit": "cuda12"}, write(record, tmp_path))
    numeric = numeric_file(tmp_path, cuda12=judged("failed", cases=BAD), cuda13=judged("passed"))
    result = gate(WARPTILE, tmp_path, ["cuda12", "cuda13"], numeric, None)
    statuses = {name: each["numeric"]["status"] for name, each in result["toolkits"].items()}
    assert statuses == {"cuda12": "failed", "cuda13": "passed"} and not result["passed"]
    assert all(each["static"]["passed"] for each in result["toolkits"].values())
    assert result["toolkits"]["cuda12"]["numeric"]["worst"]["err_scaled_max"] is None
    assert "NaN at C[3,4]" in summary_line(result)


def test_a_toolkit_that_did_not_compile_has_no_static_verdict_and_its_recording_counts_by_its_key(record, tmp_path):
    write(record | {"toolkit": "cuda12", "archs": {}, "advisories": []}, write(record, tmp_path))
    numeric = numeric_file(tmp_path, cuda12=judged("passed"), cuda13=judged("passed"))
    result = gate(WARPTILE, tmp_path, ["cuda12", "cuda13"], numeric, None)
    assert result["passed"] and "cuda12 not compiled" in summary_line(result)
    assert result["toolkits"]["cuda12"]["static"] == {"passed": None, "checks": []}
    assert result["toolkits"]["cuda12"]["numeric"]["status"] == "passed"
    view = gate_view(result, WARPTILE)
    seen = [(toolkit.static, toolkit.compiled) for toolkit in view.toolkits]
    assert seen == [("not compiled", False), ("passed", True)] and view.static_passed and view.numeric_passed
    result["toolkits"]["cuda12"]["numeric"] = {"status": "not run"}
    view = gate_view(result, WARPTILE)
    assert view.numeric_passed and not view.open, "there is no binary to run"
    result["toolkits"]["cuda12"]["static"]["passed"] = True
    assert gate_view(result, WARPTILE).open == "not run"


AGAIN = "run the target 'build' again"


@pytest.mark.parametrize(
    ("doctor", "says"),
    [
        (lambda value: None, rf"the build record .* is missing; {AGAIN}"),
        (lambda value: json.dumps(value)[:20], rf"is corrupt .*{AGAIN}"),
        (lambda value: value.pop("archs") and value, AGAIN),
        (lambda value: value | {"archs": {}}, AGAIN),
        (lambda value: value | {"kernel": "ladder.naive"}, "is of another kernel or toolkit"),
        (lambda value: value | {"archs": {}, "advisories": []}, r"no toolkit compiled ladder\.warptile"),
    ],
)
def test_a_missing_or_corrupt_build_record_says_what_to_do(record, tmp_path, doctor, says):
    broken = doctor(record)
    path = tmp_path / "cuda13" / "ladder.warptile.json"
    path.parent.mkdir()
    if broken:
        path.write_text(broken if isinstance(broken, str) else json.dumps(broken))
    with pytest.raises(UserError, match=says):
        gate(WARPTILE, tmp_path, ["cuda13"], None, None)


def test_check_prints_a_line_a_kernel_and_exits_with_1_if_any_failed(record, tmp_path, capsys):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(judge(record, tmp_path)))
    assert stage.check([good]) == 0
    no_barrier(record["archs"]["sm_90"])
    bad.write_text(json.dumps(judge(record, tmp_path)))
    capsys.readouterr()
    assert stage.check([good, bad]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ladder.warptile          passed")
    assert second.startswith("ladder.warptile          FAILED") and "two barriers per tile" in second
    assert last.startswith("1 of 2 kernels failed")
    bad.write_text('{"kernel": "x"}')
    with pytest.raises(UserError, match=r"the gate .*bad.json is corrupt"):
        stage.check([bad])
