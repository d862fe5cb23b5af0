"""The family ada: what its records say of its sources, what its permutation promises, and its share of the ceiling."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import CEILINGS, World

from gemmrepro import registry
from gemmrepro.core.architectures import shared_limit
from gemmrepro.errors import UserError
from gemmrepro.gates import ceilings
from gemmrepro.judge import judging, rules
from gemmrepro.judge.calculation import Calculated, Inputs, calculation
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel
from gemmrepro.registry.articles import chip_of
from gemmrepro.registry.ladders import steps

STEPS = steps("ada")
ARCHS = ["80", "86", "89", "90", "100", "120"]


def ids(kernels: list[Kernel]) -> list[str]:
    return [kernel.name for kernel in kernels]


AUTHORS = [kernel for kernel in STEPS if kernel.story.article]
OURS = [kernel for kernel in STEPS if not kernel.story.article]


def test_the_ladder_is_the_authors_and_then_ours():
    assert [kernel.rung for kernel in AUTHORS] == ["1.0", "1.1", "2.0", "2.1", *(f"3.{i}" for i in range(5))]
    assert [kernel.rung for kernel in OURS] == [f"4.{i}" for i in range(7)]
    assert [bool(kernel.story.published_system) for kernel in STEPS] == [True] * 6 + [False] * 10
    for kernel in STEPS:
        assert (kernel.compute.dtype_in, kernel.compute.dtype_out) == ("fp16", "fp32")
        assert kernel.timing.baseline == "cublas.gemm"
        assert kernel.compute.layout == ("row,row,row" if kernel.rung[0] == "1" else "row,col,row")
    sums = {kernel.rung: (kernel.compute.dtype_acc, kernel.compute.promoted) for kernel in STEPS}
    assert {rung: kept for rung, kept in sums.items() if kept != ("fp32", 0)} == {
        "3.2": ("fp16", 16),
        "3.3": ("fp16", 0),
        "3.4": ("fp16", 32),
        "4.6": ("fp16", 0),
    }


def test_the_authors_kernels_have_the_authors_constants_and_launches():
    shape = Shape(4096, 4096, 4096)
    tiles = {"1.0": 32, "1.1": 64, "2.0": 64, "2.1": 64, "3.0": 64} | dict.fromkeys(("3.1", "3.2", "3.3", "3.4"), 128)
    for kernel in AUTHORS:
        tile, launch = tiles[kernel.rung], kernel.launch(shape)
        assert (kernel.params["bm"], kernel.params["bn"]) == (tile, tile)
        assert kernel.params["bk"] == (16 if kernel.rung[0] == "1" else 32)
        assert kernel.params.get("stages") == (3 if kernel.rung[0] == "3" else None)
        assert launch.block == (16, 16, 1) and launch.grid == (4096 // tile, 4096 // tile, 1)
        assert launch.shared_bytes == 0, "the author declares shared memory statically"
        assert kernel.accepts.multiple_of == {"m": tile, "n": tile, "k": kernel.params["bk"]}
        assert any(own.k == 4096 for own in kernel.promises.gate_shapes)


@pytest.mark.parametrize("kernel", OURS, ids=ids(OURS))
def test_launches_cover_c_and_fit_every_target(kernel):
    p = kernel.params
    shape = Shape(p["bm"] + 1, 4 * p["bn"], 72)
    launch = kernel.launch(shape)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    assert blocks == 8, "two rows of four tiles"
    warps = p["bm"] * p["bn"] // (16 * 8 * p["mma_m"] * p["mma_n"])
    producers = 128 if "90a" in kernel.platform.targets else 0
    assert warps == 8 and launch.block == (256 + producers, 1, 1)
    ring = p["stages"] * (p["bm"] + p["bn"]) * p["bk"] * 2
    assert ring <= launch.shared_bytes <= ring + 64 * 1024 + 1024
    for target in registry.targets(kernel, ARCHS):
        assert launch.shared_bytes <= shared_limit(target)


def test_blocks_that_stay_are_as_many_as_the_gpu_holds():
    for name in ("tma", "stored", "half_tiles"):
        kernel = registry.kernel(f"ada.{name}")
        assert kernel.launch(Shape.cube(8192)).grid == (132, 1, 1)
        assert kernel.launch(Shape(1, 4, 8)).grid == (1, 1, 1)


def test_what_needs_more_than_99_kb_is_built_for_no_gpu_that_has_less():
    assert {kernel.name for kernel in STEPS if "89" not in registry.targets(kernel, ARCHS)} == {
        *("warp_tiles", "fragments", "l2_order", "tma", "stored", "half_tiles")
    }


def test_iterations_of_the_mma_loop_add_up():
    one, half = ceilings.mma_sum(1, 1.0, 0.0), ceilings.mma_sum(1, 0.5, 0.0)
    assert abs(one) > 10, "one tile more or less shows"
    assert half == pytest.approx(one / 2, rel=1e-3)
    assert ceilings.mma_sum(2, 1.0, -1.0) == 0.0
    assert ceilings.mma_sum(3, 1.0, 0.5) == pytest.approx(2 * one + half)


def judged(folder: Path, **world: bool) -> dict[str, dict]:
    made = World(folder, families=("ada", "ceilings"), sizes=(4096,), **world).write()
    result = judging.judge_all(made.measure, made.gates, made.build, ("ada",)).as_json()
    return {entry["id"]: entry for entry in result["claims"]}


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return judged(tmp_path_factory.mktemp("judged"))


def test_throughput_is_judged_as_a_share_of_what_mma_sync_reaches_here(entries):
    throughput, share = (entries[f"ada.{name}.3_1"]["measured"][0] for name in ("throughput", "peak"))
    ceiling = CEILINGS["ceilings.mma_f16"][1]
    assert share["value"] == pytest.approx(throughput["value"] / ceiling)
    assert share["ci_low"] == pytest.approx(throughput["ci_low"] / ceiling) and share["unit"] == "ratio"
    assert share["label"].endswith("of 600 TFLOP/s") and len(share["from"]) == 2
    held = abs(share["value"] / (153.6 / 165.2) - 1) < 0.1
    assert (entries["ada.throughput.3_1"]["verdict"] == rules.REPRODUCED) == held


def test_what_says_the_same_in_other_units_is_covered(entries):
    for name in ("time.3_1", "peak.3_1", "time.final", "throughput.final", "peak.final", "ratio.final"):
        assert entries[f"ada.{name}"]["verdict"] == rules.COVERED, name
    assert entries["ada.step.1_1"]["published"][0]["value"] == 57.3
    assert "published 1.949" in entries["ada.step.1_1"]["explanation"].lower()


def test_the_authors_table_is_consistent(tmp_path):
    entries = judged(tmp_path, ceilings=False)
    table = {name: entry["verdict"] for name, entry in entries.items() if name.startswith("ada.table.")}
    assert len(table) == 18 and set(table.values()) == {rules.CONSISTENT}


def inputs(*names: str, codes: list[dict[str, int]], **options) -> Inputs:
    """Inputs of a calculation with machine code of these opcodes."""
    made = tuple(SimpleNamespace(instructions=opcodes) for opcodes in codes)
    kernels = tuple(registry.kernel(f"ada.{name}") for name in names)
    return Inputs(kernels, made, "sm_89", "cuda13", 4096, chip=chip_of("ada", "RTX 4090"), options=options)


def calculate(function: str, given: Inputs) -> Calculated:
    return calculation("ada", function)(given)


def test_the_floor_of_the_last_kernel_is_its_mma():
    code = {"HMMA.16816.F32": 64, "BAR.SYNC.DEFER_BLOCKING": 2}
    found = calculate("share_of_floor", inputs("packed_4x", codes=[code], microseconds=895))
    assert (
        found.value == pytest.approx(0.93, abs=0.0005) and "832 µs" in found.working and "32.0 cycles" in found.working
    )


def test_code_that_makes_an_mma_twice_or_not_at_all_is_refused():
    for wrong in (33, 31, 0):
        with pytest.raises(UserError, match="no multiple of 32"):
            calculate("share_of_floor", inputs("packed_4x", codes=[{"HMMA.16816.F32": wrong}], microseconds=895))


def test_larger_tiles_need_a_quarter_of_the_barriers():
    large, small = {"HMMA.16816.F32": 32, "BAR.SYNC": 1}, {"HMMA.16816.F32": 24, "BAR.SYNC": 3}
    assert calculate("fewer_barriers", inputs("packed_4x", "packed_async", codes=[large, small])).value == 4
    twice = {**large, "BAR.SYNC": 2}
    assert calculate("fewer_barriers", inputs("packed_4x", "packed_async", codes=[twice, small])).value == 2


def test_numbers_are_read_from_opcodes():
    code = {"HMMA.16816.F32": 32, "LDG.E.128.CONSTANT": 2}
    assert calculate("number_in_opcode", inputs("packed", codes=[code], pattern=r"LDG\.E\.(\d+)(?:\..*)?")).value == 128
    with pytest.raises(UserError, match="0 different"):
        calculate("number_in_opcode", inputs("packed", codes=[{}], pattern=r"LDG\.E\.(\d+)"))
    assert calculate("tiles_of_a_warp", inputs("packed_4x", codes=[code])).value == 4
