"""The static gate passes real machine code and fails it with a planted fault; verdicts are merged by build key."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from records import record as make

from gemmrepro import registry
from gemmrepro.build.compile import build
from gemmrepro.build.record import MachineCode
from gemmrepro.errors import UserError
from gemmrepro.gates import stage as gates_stage
from gemmrepro.gates import static
from gemmrepro.gates.operations import gate_key
from gemmrepro.gates.stage import gate, summary_line
from gemmrepro.paper.gates import gate_view

RECORD = json.loads((Path(__file__).parent / "data" / "warptile.build.json").read_text())
WARPTILE = registry.kernel("ladder.warptile")


@pytest.fixture
def record():
    """A real build record of ladder.warptile (CUDA 13, sm_86 and sm_90), free to doctor."""
    return copy.deepcopy(RECORD)


def write(record, folder: Path) -> Path:
    path = folder / record["toolkit"] / f"{record['kernel']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return folder


def judge(record, folder: Path, numeric=None, recorded=None):
    return gate(WARPTILE, write(record, folder), ["cuda13"], numeric, recorded)


def failures(result):
    checks = result["toolkits"]["cuda13"]["static"]["checks"]
    return {(check["arch"], check["check"]) for check in checks if not check["passed"]}


def test_real_machine_code_passes(record, tmp_path):
    result = judge(record, tmp_path)
    assert result["passed"]
    assert failures(result) == set()
    checks = result["toolkits"]["cuda13"]["static"]["checks"]
    assert {check["arch"] for check in checks} == {"sm_86", "sm_90", "every target"}
    assert all(set(check) == {"arch", "check", "why", "expected", "found", "passed"} for check in checks)


def test_what_was_expected_of_an_opcode_is_said():
    expects = (
        registry.Expect("FFMA", "a", least=2),
        registry.Expect("LDS", "b", 3, 3),
        registry.Expect("BAR", "c", 1, 2),
        registry.Expect("STL", "d", least=0, most=0, archs=("86",)),
    )
    checks = static._opcode_checks(make("ladder.x", expects=expects), "sm_90", {"FFMA": 2, "LDS": 4, "BAR": 0})
    assert [(check.expected, check.found, check.passed) for check in checks] == [
        ("at least 2", "2", True),
        ("3", "4", False),
        ("1 to 2", "0", False),
    ]
    (most,) = static._opcode_checks(make("ladder.x", expects=expects[3:]), "sm_86", {"STL": 1})
    assert (most.expected, most.passed) == ("0", False)


def test_a_toolkit_that_did_not_compile_has_no_static_verdict_and_its_recording_counts_by_its_key(record, tmp_path):
    key, gate_of = record["build_key"], gate_key(WARPTILE, record["build_key"])
    write(record, tmp_path)
    write(record | {"toolkit": "cuda12", "archs": {}, "advisories": []}, tmp_path)
    judged = {"status": "passed", "build_key": key, "gate_key": gate_of, "reason": "", "cases": CASES}
    numeric = tmp_path / "numeric.json"
    numeric.write_text(json.dumps({"gpu": "NVIDIA H200", "toolkits": {"cuda12": judged, "cuda13": judged}}))
    result = gate(WARPTILE, tmp_path, ["cuda12", "cuda13"], numeric, None)
    assert result["passed"]
    assert result["toolkits"]["cuda12"]["static"] == {"passed": None, "checks": []}
    assert result["toolkits"]["cuda12"]["numeric"]["status"] == "passed"
    assert "cuda12 not compiled" in summary_line(result)
    view = gate_view(result, WARPTILE)
    assert [(toolkit.static, toolkit.compiled) for toolkit in view.toolkits] == [
        ("not compiled", False),
        ("passed", True),
    ]
    assert view.static_passed and view.numeric_passed


def test_a_kernel_that_nothing_compiled_cannot_be_judged(record, tmp_path):
    with pytest.raises(UserError, match=r"no toolkit compiled ladder\.warptile"):
        judge(record | {"archs": {}, "advisories": []}, tmp_path)


def rename(instructions, old, new):
    instructions[new] = instructions.get(new, 0) + instructions.pop(old)


def spill(entry):
    entry["spill_store_bytes"], entry["spill_load_bytes"], entry["stack_bytes"] = 8, 16, 8


def spill_in_code_only(entry):
    entry["instructions"]["STL"] = 2


def narrow_loads(entry):
    rename(entry["instructions"], "LDG.E.128", "LDG.E")


def narrow_stores(entry):
    rename(entry["instructions"], "STG.E.128", "STG.E")


def narrow_shared_loads(entry):
    rename(entry["instructions"], "LDS.128", "LDS.64")


def one_narrow_load(entry):
    entry["instructions"]["LDG.E.CONSTANT"] = 1


def no_barrier(entry):
    del entry["instructions"]["BAR.SYNC.DEFER_BLOCKING"]


def one_barrier(entry):
    entry["instructions"]["BAR.SYNC.DEFER_BLOCKING"] = 1


def too_many_registers(entry):
    entry["registers"] = 256


def too_much_shared(entry):
    entry["shared_bytes"] = 48 * 1024 + 4


PLANTS = [
    (spill, "spilled bytes"),
    (spill, "stack bytes"),
    (spill_in_code_only, "local loads and stores"),
    (narrow_loads, r"LDG\.E(\..*)?\.128(\..*)?"),
    (narrow_stores, r"STG\.E(\..*)?\.128(\..*)?"),
    (narrow_shared_loads, r"LDS(\..*)?\.128(\..*)?"),
    (one_narrow_load, r"LDG\.E(\.CONSTANT|\.STRONG.*|\.E[FL])?"),
    (no_barrier, r"BAR\.SYNC(\..*)?"),
    (one_barrier, r"BAR\.SYNC(\..*)?"),
    (too_many_registers, "registers per block"),
    (too_much_shared, "static shared bytes"),
]


@pytest.mark.parametrize(("plant", "check"), PLANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_fault_in_one_architecture_fails(record, tmp_path, plant, check):
    plant(record["archs"]["sm_90"])
    result = judge(record, tmp_path)
    assert not result["passed"]
    assert ("sm_90", check) in failures(result)
    assert not any(arch == "sm_86" for arch, _ in failures(result))


def test_a_request_that_the_assembler_ignored_fails(record, tmp_path):
    record["advisories"] = ["(C7508) Potential Performance Loss: 'setmaxnreg' ignored"]
    assert failures(judge(record, tmp_path)) == {("every target", "compiler advisories")}


def test_registers_are_judged_with_the_block_that_needs_them(record):
    entry = record["archs"]["sm_90"]
    entry["registers"] = 80
    naive = registry.kernel("ladder.naive")  # 1024 threads of 80 registers are 81920 of 65536
    check = next(
        c for c in static.static_checks(naive, "sm_90", MachineCode(**entry)) if c.check == "registers per block"
    )
    assert (check.found, check.passed) == ("81920", False)


def test_dynamic_shared_memory_is_judged_by_architecture(record):
    greedy = replace(WARPTILE, launch=lambda shape: replace(WARPTILE.launch(shape), shared_bytes=150 * 1024))
    verdicts = {}
    for arch in ("sm_80", "sm_86", "sm_90a", "sm_120", "sm_999"):
        checks = static.static_checks(greedy, arch, MachineCode(**record["archs"]["sm_90"]))
        verdicts[arch] = next(check.passed for check in checks if check.check == "shared bytes per block")
    assert verdicts == {"sm_80": False, "sm_86": False, "sm_90a": True, "sm_120": False, "sm_999": False}


def test_a_launch_that_grows_with_the_shape_is_judged_where_it_is_largest(record):
    """At 4096, which is beyond the smallest shape, and at 16384, which is beyond the usual ones."""

    def launch(shape):
        usual = WARPTILE.launch(shape)
        threads, shared = (2048 if shape.k > 1024 else 128), (230 * 1024 if shape.k > 8192 else 0)
        return replace(usual, block=(threads, 1, 1), shared_bytes=shared)

    checks = static.static_checks(replace(WARPTILE, launch=launch), "sm_90", MachineCode(**record["archs"]["sm_90"]))
    failed = {check.check for check in checks if not check.passed}
    assert failed == {"threads per block", "registers per block", "shared bytes per block"}


def case(shape, alpha, beta, inputs, seed, error, gamma):
    """A case of the numerical gate, passed."""
    said = {"shape": shape, "alpha": alpha, "beta": beta, "inputs": inputs, "seed": seed}
    return {**said, "err_scaled_max": error, "gamma": gamma, "passed": True, "message": ""}


CASES = [case("128x128x16", 1, 0, "normal", 1, 1.0, 17.0), case("256x128x32", 2, 1, "wide", 2, 9.0, 33.0)]


GATE_KEY = gate_key(registry.kernel("ladder.warptile"), RECORD["build_key"])


def verdict(status, key=RECORD["build_key"], cases=CASES, gate=GATE_KEY):
    judged = {"status": status, "build_key": key, "gate_key": gate, "reason": "", "cases": cases}
    return {"kernel": "ladder.warptile", "gpu": "NVIDIA H200", "driver": "580", "toolkits": {"cuda13": judged}}


def numeric_file(value, folder: Path) -> Path:
    path = folder / "numeric.json"
    path.write_text(json.dumps(value))
    return path


def test_a_live_verdict_on_this_binary_is_taken_over(record, tmp_path):
    result = judge(record, tmp_path, numeric=numeric_file(verdict("passed"), tmp_path))
    numeric = result["toolkits"]["cuda13"]["numeric"]
    assert (numeric["status"], numeric["source"], numeric["gpu"]) == ("passed", "live", "NVIDIA H200")
    assert numeric["worst"] == {
        "err_scaled_max": 9.0,
        "gamma": 33.0,
        "case": "256x128x32 alpha=2 beta=1 inputs=wide seed=2",
    }
    assert result["passed"]


def test_a_numerical_failure_fails_the_gate(record, tmp_path):
    bad = [*CASES, {**CASES[0], "err_scaled_max": None, "passed": False, "message": "NaN at C[3,4]"}]
    result = judge(record, tmp_path, numeric=numeric_file(verdict("failed", cases=bad), tmp_path))
    assert not result["passed"]
    assert result["toolkits"]["cuda13"]["static"]["passed"]
    assert result["toolkits"]["cuda13"]["numeric"]["worst"]["err_scaled_max"] is None
    assert "NaN at C[3,4]" in summary_line(result)


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_a_verdict_on_another_binary_is_stale_and_says_so(record, tmp_path, status):
    numeric = numeric_file(verdict(status, key="0" * 16), tmp_path)
    result = judge(record, tmp_path, numeric=numeric)
    assert result["toolkits"]["cuda13"]["numeric"]["status"] == "stale"
    assert "0" * 16 in result["toolkits"]["cuda13"]["numeric"]["reason"]
    assert result["passed"]


def test_recorded_verdicts_are_found_by_family(record, tmp_path):
    recorded = tmp_path / "h200"
    (recorded / "ladder").mkdir(parents=True)
    path = recorded / "ladder" / "gates.json"
    path.write_text(json.dumps({"ladder.warptile": verdict("passed")}))
    numeric = judge(record, tmp_path, recorded=recorded)["toolkits"]["cuda13"]["numeric"]
    assert (numeric["status"], numeric["source"]) == ("passed", "recorded")
    path.write_text("{}")
    numeric = judge(record, tmp_path, recorded=recorded)["toolkits"]["cuda13"]["numeric"]
    assert (numeric["status"], numeric["source"]) == ("not run", "none")
    assert "not among the recorded gates" in numeric["reason"]
    path.write_text('{"ladder.warptile": {"tool')
    with pytest.raises(UserError, match=r"the recorded gates .* is corrupt"):
        judge(record, tmp_path, recorded=recorded)


def test_without_any_verdict_the_numbers_are_not_run(record, tmp_path):
    numeric = judge(record, tmp_path)["toolkits"]["cuda13"]["numeric"]
    assert (numeric["status"], numeric["source"], numeric["cases"]) == ("not run", "none", [])


def test_a_missing_or_corrupt_build_record_says_what_to_do(record, tmp_path):
    with pytest.raises(UserError, match=r"the build record .* is missing; run the target 'build' again"):
        gate(WARPTILE, tmp_path, ["cuda13"], None, None)
    for doctor in (
        lambda value: value.pop("archs"),
        lambda value: value["archs"]["sm_90"].pop("registers"),
        lambda value: value.update(archs=None),
        lambda value: value.update(archs={}),
        lambda value: value.update(kernel="ladder.naive"),
    ):
        broken = copy.deepcopy(record)
        path = tmp_path / "cuda13" / "ladder.warptile.json"
        write(broken, tmp_path)
        doctor(broken)
        path.write_text(json.dumps(broken))
        with pytest.raises(UserError, match="run the target 'build' again"):
            gate(WARPTILE, tmp_path, ["cuda13"], None, None)
    path.write_text('{"kernel": "ladder.wa')
    with pytest.raises(UserError, match=r"is corrupt .*run the target 'build' again"):
        gate(WARPTILE, tmp_path, ["cuda13"], None, None)


def test_check_prints_a_line_a_kernel_and_exits_with_1_if_any_failed(record, tmp_path, capsys):
    good = tmp_path / "good.json"
    good.write_text(json.dumps(judge(record, tmp_path)))
    assert gates_stage.check([good]) == 0
    no_barrier(record["archs"]["sm_90"])
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(judge(record, tmp_path)))
    capsys.readouterr()
    assert gates_stage.check([good, bad]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ladder.warptile          passed")
    assert second.startswith("ladder.warptile          FAILED")
    assert "two barriers per tile" in second
    assert last.startswith("1 of 2 kernels failed")
    with pytest.raises(UserError, match=r"the gate .*numeric.json is corrupt"):
        gates_stage.check([numeric_file({"kernel": "x"}, tmp_path)])


# Planted in the source, compiled for real.

# Four floats stored one by one, which the compiler may not join.
SINK = """__device__ void sink(float* to, float4 v) {
    volatile float* p = to;
    p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
}
"""
WALK = "threadIdx.x / BN;\n    const int col = blockIdx.y * BN + threadIdx.x % BN;"
SOURCE_PLANTS = {
    "no barrier": ("ladder.smem", "__syncthreads();  // every reader is done with them", "", r"BAR\.SYNC(\..*)?"),
    "narrow stores": ("ladder.vectorized", "store4(out, {", "sink(out, {", r"STG\.E(\..*)?\.128(\..*)?"),
    "spills": ("ladder.blocktile_2d", "THREADS, BLOCKS)", "THREADS, 4)", "spilled bytes"),
    # What opcodes cannot show: level 2 with level 1's walk is as slow as level 1, and passes.
    "uncoalesced": ("ladder.coalesced", WALK, WALK.replace("/", ":").replace("%", "/").replace(":", "%"), None),
}


@pytest.mark.containers
@pytest.mark.parametrize("plant", SOURCE_PLANTS)
def test_a_fault_planted_in_the_source_is_seen_in_the_machine_code(toolkit, tmp_path, plant):
    kernel_id, text, replacement, check = SOURCE_PLANTS[plant]
    kernel = registry.kernel(kernel_id)
    source = kernel.source_path.read_text()
    assert text in source
    planted = tmp_path / "planted.cu"
    planted.write_text(source.replace(text, replacement).replace('extern "C"', f'{SINK}extern "C"', 1))
    record = build(replace(kernel, source=str(planted)), toolkit, ["80"]).record.to_json()
    code = MachineCode(**record["archs"]["sm_80"])
    failed = {c.check for c in static.static_checks(kernel, "sm_80", code) if not c.passed}
    assert (check in failed) if check else not failed


def test_one_toolkits_failure_is_enough(record, tmp_path):
    kernel = registry.kernel("ladder.warptile")
    for toolkit in ("cuda12", "cuda13"):
        (tmp_path / toolkit).mkdir(exist_ok=True)
        (tmp_path / toolkit / f"{kernel.id}.json").write_text(json.dumps({**record, "toolkit": toolkit}))
    good = verdict("passed")
    bad = [*CASES, {**CASES[0], "err_scaled_max": None, "passed": False, "message": "NaN at C[3,4]"}]
    failed = verdict("failed", cases=bad)["toolkits"]["cuda13"]
    both = {**good, "toolkits": {"cuda12": failed, **good["toolkits"]}}
    result = gate(kernel, tmp_path, ["cuda12", "cuda13"], numeric_file(both, tmp_path), None)
    assert {name: each["numeric"]["status"] for name, each in result["toolkits"].items()} == {
        "cuda12": "failed",
        "cuda13": "passed",
    }
    assert not result["passed"]
