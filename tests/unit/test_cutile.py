"""Kernels in cuTile: what the compiler is promised, what is read of its cubins, and when a refusal is right."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import in_cuda13

from gemmrepro import registry
from gemmrepro.build import compile as build
from gemmrepro.build import cutile, cutile_export, listings
from gemmrepro.build.key import build_key
from gemmrepro.build.record import MachineCode, Usage
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.core import dtypes, paths
from gemmrepro.errors import UserError
from gemmrepro.gates import stage
from gemmrepro.operations import Shape
from gemmrepro.tune import bench

COMPILER = cutile.CuTile()
PLAIN = registry.kernel("cutile.matmul_bf16")
FP8 = registry.kernel("cutile.k_major_fp8_e4m3")
VERSIONS = {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92"}
DATA = Path(__file__).parent / "data"
RECORDS = {
    name: json.loads((DATA / f"cutile.{name}.build.json").read_text()) for name in ("k_major_fp8_e4m3", "matmul_fp64")
}
"""Real build records, without their hot loops."""


STAND_IN = """#!/bin/sh
# Called as the interpreter: -m MODULE SPEC ARCH CUBIN
echo "$4" >> "$(dirname "$0")/calls"
[ "$4" = sm_100 ] && { echo "no such GPU" >&2; exit %d; }
cat "$3" > "$5"
"""


def test_an_entry_point_that_kernels_share_is_compiled_once(monkeypatch, tmp_path):
    interpreter = tmp_path / "python"
    interpreter.write_text(STAND_IN % cutile_export.REFUSED)
    interpreter.chmod(0o755)
    source = tmp_path / "source.py"
    source.write_text("first")
    monkeypatch.setattr(type(PLAIN), "source_path", source)

    def attempts(name: str, kernel: registry.Kernel) -> dict[str, tuple[Path | None, str]]:
        (tmp_path / name).mkdir()
        return cutile.attempts(kernel, ["90", "100"], 2, tmp_path / name, str(interpreter))

    def calls() -> list[str]:
        return sorted((tmp_path / "calls").read_text().split())

    one, two = attempts("one", PLAIN), attempts("two", replace(PLAIN, id="cutile.namesake"))
    assert calls() == ["sm_100", "sm_90"]
    assert [found["90"] for found in (one, two)] == [(tmp_path / name / "sm_90.cubin", "") for name in ("one", "two")]
    assert len({found["90"][0].read_bytes() for found in (one, two)}) == 1
    assert one["100"] == two["100"] == (None, "no such GPU")
    attempts("other constants", registry.kernel("cutile.matmul_fp16"))
    source.write_text("second")
    attempts("edited", PLAIN)
    assert calls() == ["sm_100"] * 3 + ["sm_90"] * 3


def test_the_compiler_is_promised_what_the_record_takes():
    assert COMPILER.flags(FP8) == (
        *("a:float8_e4m3fn/1x16", "b:float8_e4m3fn/16x16", "c:float16/1x16"),
        *("BM=128", "BN=64", "BK=128", "GROUP=8", "FAST=0"),
    )
    assert COMPILER.flags(PLAIN)[:3] == ("a:bfloat16/1x8", "b:bfloat16/8x8", "c:bfloat16/1x8")
    free = registry.kernel("cutile.any_shape")
    assert [one.multiples for one in cutile.arrays(free)] == [(1, 1)] * 3
    assert free.takes(Shape(3, 5, 7)) and not PLAIN.takes(Shape(3, 5, 7)) and PLAIN.takes(Shape(3, 8, 8))
    assert cutile.arrays(registry.kernel("cutile.vector_add"))[0].multiples == (1,)


def test_hints_are_flags_and_unknown_ones_are_refused():
    hinted = PLAIN.with_code(defines={**PLAIN.code.defines, "HINTS": "occupancy=2,num_ctas=1"})
    assert COMPILER.flags(hinted)[-2:] == ("occupancy=2", "num_ctas=1")
    with pytest.raises(UserError, match="warps is no hint for cuTile; known: num_ctas, occupancy"):
        COMPILER.flags(PLAIN.with_code(defines={**PLAIN.code.defines, "HINTS": "warps=4"}))
    with pytest.raises(UserError, match="argument 'a' is no array"):
        cutile.arrays(PLAIN.with_call(arguments=("a", "array:b", "array:c")))


def test_what_the_compiler_does_not_say_is_read_from_its_machine_code():
    usage, elf, code = ((DATA / f"cutile.{name}.txt").read_text() for name in ("usage", "elf", "sass"))
    (function,) = listings.parse(code)
    assert cutile.read_usage("matmul", usage, elf, {"sm_90": function}) == {
        "sm_90": Usage(
            registers=255, stack_bytes=96, shared_bytes=197784, threads=512, spill_store_bytes=12, spill_load_bytes=25
        )
    }
    assert listings.parse_blocks(elf, "other") == {}
    assert listings.local_bytes("STG.E.128", "STL") == 0


def checks(kernel, record):
    codes = {arch: MachineCode(**{"hot_loop": "", **built}) for arch, built in record["archs"].items()}
    found = [check for arch, code in codes.items() for check in stage.static_checks(kernel, arch, code)]
    return found + stage.refusal_checks(kernel, record.get("refused", {}))


def failed(kernel, record):
    return {(check.arch, check.check) for check in checks(kernel, record) if not check.passed}


def test_the_machine_code_of_fp8_passes_with_its_refusals():
    record = RECORDS["k_major_fp8_e4m3"]
    assert failed(FP8, record) == set()
    refused = [check for check in checks(FP8, record) if check.check == "the compiler refuses"]
    assert [check.arch for check in refused] == ["sm_80", "sm_86", "sm_89"]
    assert refused[2].found == "UnsupportedFeatureError: float8_e4m3fn is not supported on sm_89"


@pytest.mark.parametrize("said", [None, "UnsupportedFeatureError: out of memory"])
def test_a_compiler_that_no_longer_refuses_or_says_something_else_fails(said):
    record = {**RECORDS["k_major_fp8_e4m3"], "refused": {"sm_89": said}}
    assert failed(FP8, record) == {("sm_89", "the compiler refuses")}
    assert failed(FP8.with_promises(refusals=()), {**record, "refused": {"sm_89": "no"}}) == {
        ("sm_89", "the compiler refuses")
    }


def test_spills_are_declared_or_a_failure_and_declared_ones_must_be_there():
    kernel, record = registry.kernel("cutile.matmul_fp64"), RECORDS["matmul_fp64"]
    assert {("sm_90", "spilled bytes"), ("sm_90", "stack bytes")} <= failed(kernel.with_promises(spills=()), record)
    assert failed(FP8.with_promises(spills=("90",)), RECORDS["k_major_fp8_e4m3"]) == {("sm_90", "spilled bytes")}


def test_candidates_are_measured_where_their_compiler_is_not(tmp_path, monkeypatch):
    tunable = registry.tunable("cutile.persistent_bf16_tuned")
    every = bench.candidates(tunable)
    for each in every:
        record = {"build_key": build_key(each.kernel, "13.4", VERSIONS), "target": "90"}
        (tmp_path / f"{each.digest}.json").write_text(json.dumps(record))
    listing = {"kernel": tunable.id, "toolkit": "cuda13", "toolkit_version": "13.4", "target": "90"}
    (tmp_path / "candidates.json").write_text(json.dumps(listing | {"packages": VERSIONS}))
    monkeypatch.setattr(cutile.CuTile, "packages", lambda self, kernel: pytest.fail("the compiler is asked for"))
    assert len(bench.Listing.read(tmp_path, tunable).compiled) == len(every)


TAIL = registry.kernel("cutile.tail_bf16")


@pytest.mark.parametrize(
    ("shape", "launched"),
    [
        (Shape.cube(8192), [("full_waves", 132, 4092), ("last_wave", 16, 4092)]),
        (Shape.cube(4096), [("full_waves", 132, 1024)]),  # 100 tiles left over, 400 parts
        (Shape(11 * 128, 12 * 128, 64), [("full_waves", 132, 132)]),  # nothing is
        (Shape(2 * 128, 83 * 128, 64), [("full_waves", 132, 166)]),  # 34 tiles are one too many
        (TAIL.promises.gate_shapes[0], [("full_waves", 132, 132), ("last_wave", 48, 132)]),
        (Shape.cube(512), [("last_wave", 64, 0)]),
    ],
    ids=str,
)
def test_what_full_waves_leave_over_is_cut_in_four_where_that_is_one_wave(shape, launched):
    steps = TAIL.steps_at(shape)
    assert [(step.entry, step.launch(shape).grid[0], step.arguments[3]) for step in steps] == launched
    assert {code.code.entry for code in TAIL.codes} == {"full_waves", "last_wave"}


PAIRS = registry.kernel("cutile.pairs_bf16")
TURNED = registry.kernel("cutile.turned_int8")
PROMOTED = registry.kernel("cutile.promoted_fp8_e4m3")


def multiplied(kernel, shape):
    """C of integers from -4 to 4 by the source on the CPU, and C exactly: as floats that C's type holds."""
    import cpu_tile

    random = np.random.default_rng(1)
    a = random.integers(-4, 5, (shape.m, shape.k)).astype(np.float32)
    b = random.integers(-4, 5, (shape.k, shape.n)).astype(np.float32)
    columns = kernel.compute.layout == "row,col,row"
    product = cpu_tile.Launches(kernel, a, np.ascontiguousarray(b.T) if columns else b).run()
    exact, out = (a.astype(np.float64) @ b).astype(np.float32), kernel.compute.dtype_out
    return product, exact if out == "int32" else dtypes.widen(dtypes.narrow(exact, out), out)


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        (PAIRS, Shape(1500, 1480, 72)),
        (registry.kernel("cutile.pairs_int8"), Shape(330, 400, 144)),
        (TURNED, Shape(330, 400, 208)),
        (PROMOTED, Shape(130, 272, 1024)),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_sources_that_overlap_launches_or_promote_sums_multiply(kernel, shape):
    product, exact = multiplied(kernel, shape)
    assert (product == exact).all()


@pytest.fixture
def versions(monkeypatch) -> dict[str, str]:
    """Versions that the compiler seems to have; it is not installed on the host."""
    found = dict(VERSIONS)
    monkeypatch.setattr(cutile.CuTile, "packages", lambda self, kernel: found)
    return found


def test_a_candidate_of_several_entry_points_needs_the_most_of_each(monkeypatch, versions):
    one = Usage(registers=128, stack_bytes=0, spill_store_bytes=0, spill_load_bytes=0, shared_bytes=9, threads=256)
    other = replace(one, registers=90, spill_load_bytes=8, shared_bytes=12)
    assert build.most([one, other]) == replace(one, spill_load_bytes=8, shared_bytes=12)
    monkeypatch.setattr(cutile.CuTile, "compile", lambda self, *rest: str(rest[-1].write_bytes(b"x")))
    monkeypatch.setattr(build, "Listings", lambda path: None)
    uses = {"full_waves": {"sm_90": one}, "last_wave": {"sm_90": other}}
    monkeypatch.setattr(cutile.CuTile, "usage", lambda self, entry, log, listings: uses[entry])
    toolkit = Toolkit("cuda13", "13.4", frozenset({"90"}))
    assert build.compile_one(PAIRS, toolkit, "90") == (b"xx", build.most([one, other]))
    uses["last_wave"] = {}
    assert build.compile_one(PAIRS, toolkit, "90") == (b"xx", None)


# The smallest cases of what the compiler does not do on Hopper: that it still does not, in machine code.
CASES = paths.KERNELS_DIR / "cutile" / "cases"
READ = """
import subprocess, sys
from dataclasses import replace
from pathlib import Path
from gemmrepro import registry
from gemmrepro.build import cutile
like, source, constant, hint, folder = sys.argv[1:]
defines = {"PARAMETERS": constant, "HINTS": hint} if hint else {"PARAMETERS": constant}
kernel = replace(registry.kernel(like), source=source).with_code(entry=Path(source).stem, defines=defines)
images = cutile.compile_cubins(kernel, ["90"], 1, Path(folder))
print(subprocess.run(["cuobjdump", "-sass", str(images["90"])], capture_output=True, text=True, check=True).stdout)
"""


def machine_code(folder, like: str, case: str, constant: str, hint: str = "") -> str:
    """The listing of a case, compiled for sm_90 with the types and promises of the kernel `like`."""
    folder.mkdir()
    answer = in_cuda13(folder, "python3", "-c", READ, like, str(CASES / f"{case}.py"), constant, hint, str(folder))
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@pytest.mark.containers
def test_with_two_blocks_a_multiprocessor_no_wgmma_stays_in_flight(default_run, tmp_path):
    waits = {}
    for hint in ("", "num_worker_warps=8", "occupancy=2"):
        code = machine_code(tmp_path / f"hint{hint}", "cutile.matmul_bf16", "occupancy", "STEPS=64", hint)
        assert re.search(r"HGMMA\.64x\d+x16\.F32\.BF16", code)
        waits[hint] = set(re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)", code))
    assert waits == {"": {"0x0", "0x1"}, "num_worker_warps=8": {"0x0", "0x1"}, "occupancy=2": {"0x0"}}


@pytest.mark.containers
def test_mma_on_fp64_is_not_fused_and_outer_products_are(default_run, tmp_path):
    code = machine_code(tmp_path / "mma", "cutile.matmul_fp64", "fused", "FUSED=0")
    assert len(re.findall(r"\bDMUL\b", code)) >= 64 and len(re.findall(r"\bDADD\b", code)) >= 64
    assert not re.search(r"\bDFMA\b|\bDMMA\b", code)
    code = machine_code(tmp_path / "outer", "cutile.matmul_fp64", "fused", "FUSED=1")
    assert len(re.findall(r"\bDFMA\b", code)) >= 64 and not re.search(r"\bDMUL\b|\bDADD\b", code)
