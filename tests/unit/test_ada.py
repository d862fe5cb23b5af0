"""The family ada: what its records say of its sources, what its permutation promises, and its share of the ceiling."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import CEILINGS, World

from gemmrepro import registry
from gemmrepro.gates import ceilings, static
from gemmrepro.judge import judging, rules
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel
from gemmrepro.registry.ladders import steps

STEPS = steps("ada")
ARCHS = ["80", "86", "89", "90", "100", "120"]


def ids(kernels: list[Kernel]) -> list[str]:
    return [kernel.name for kernel in kernels]


def test_the_ladder_is_the_articles_and_then_ours():
    assert [kernel.rung for kernel in STEPS] == [f"1.{i}" for i in (0, 1)] + ["2.0", "2.1"] + [
        f"3.{i}" for i in range(7)
    ]
    assert [bool(kernel.story.published_system) for kernel in STEPS] == [True] * 6 + [False] * 5
    for kernel in STEPS:
        assert (kernel.compute.dtype_in, kernel.compute.dtype_acc, kernel.compute.dtype_out) == ("fp16", "fp32", "fp32")
        assert kernel.compute.layout == "row,col,row" and kernel.timing.baseline == "cublas.gemm"
        assert kernel.accepts.multiple_of["k"] in (2, 8) and "m" not in kernel.accepts.multiple_of


@pytest.mark.parametrize("kernel", STEPS, ids=ids(STEPS))
def test_a_source_says_in_its_first_line_which_rung_it_is(kernel):
    assert kernel.rung in kernel.source_path.read_text().splitlines()[0]


@pytest.mark.parametrize("kernel", STEPS, ids=ids(STEPS))
def test_launches_cover_c_and_fit_every_target(kernel):
    p = kernel.params
    shape = Shape(p["bm"] + 1, 4 * p["bn"], 72)
    launch = kernel.launch(shape)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    assert blocks == 8, "two rows of four tiles"
    warps = p["bm"] * p["bn"] // (16 * 8 * p["mma_m"] * p["mma_n"])
    producers = 128 if "90a" in kernel.platform.targets else 0
    assert warps == 8 and launch.block == (256 + producers, 1, 1)
    ring = p.get("stages", 0) * (p["bm"] + p["bn"]) * p["bk"] * 2
    assert ring <= launch.shared_bytes <= ring + 64 * 1024 + 1024
    for target in registry.targets(kernel, ARCHS):
        assert launch.shared_bytes <= static.shared_limit(target)


def test_blocks_that_stay_are_as_many_as_the_gpu_holds():
    for name in ("tma", "stored"):
        kernel = registry.kernel(f"ada.{name}")
        assert kernel.launch(Shape.cube(8192)).grid == (132, 1, 1)
        assert kernel.launch(Shape(1, 4, 8)).grid == (1, 1, 1)


def test_what_needs_more_than_99_kb_is_built_for_no_gpu_that_has_less():
    assert {kernel.name for kernel in STEPS if "89" not in registry.targets(kernel, ARCHS)} == {
        *("warp_tiles", "fragments", "l2_order", "tma", "stored")
    }


def place(row: int, piece: int) -> int:
    """Where the kernels put a 16-byte piece of a row of 128 bytes, in pieces."""
    return row * 8 + (piece ^ row % 8)


def test_the_permutation_spreads_reads_and_writes_over_all_banks():
    for piece in range(8):
        for first in range(0, 64, 8):  # ldmatrix reads one piece of eight rows at once
            assert {place(first + row, piece) % 8 for row in range(8)} == set(range(8))
    for row in range(64):  # eight threads write the pieces of a row
        assert {place(row, piece) % 8 for piece in range(8)} == set(range(8))
        for piece in (0, 1):  # the place of slice s is the first one's with the bits of s flipped
            assert [place(row, piece + s) for s in (0, 2, 4, 6)] == [place(row, piece) ^ s for s in (0, 2, 4, 6)]


def test_unpermuted_rows_of_the_naive_kernel_share_banks():
    banks = [(row * 16 // 2 + t) % 32 for row in range(8) for t in range(4)]  # words; a row is 16 elements
    assert len(banks) == 32 and len(set(banks)) == 16


def test_iterations_of_the_mma_loop_add_up():
    one, half = ceilings.mma_sum(1, 1.0, 0.0), ceilings.mma_sum(1, 0.5, 0.0)
    assert abs(one) > 10, "one tile more or less shows"
    assert half == pytest.approx(one / 2, rel=1e-3)
    assert ceilings.mma_sum(2, 1.0, -1.0) == 0.0
    assert ceilings.mma_sum(3, 1.0, 0.5) == pytest.approx(2 * one + half)


@pytest.fixture
def judged(tmp_path: Path):
    def judge(**world) -> dict[str, dict]:
        made = World(tmp_path, families=("ada", "ceilings"), sizes=(4096,), **world).write()
        result = judging.judge_all(made.measure, made.gates, made.build, ("ada",)).as_json()
        return {entry["id"]: entry for entry in result["claims"]}

    return judge


def test_the_share_of_the_peak_is_taken_of_the_measured_ceiling(judged):
    entries = judged()
    throughput, share = (entries[f"ada.{name}.final"]["measured"][0] for name in ("throughput", "peak"))
    ceiling = CEILINGS["ceilings.mma_f16"][1]
    assert share["value"] == pytest.approx(throughput["value"] / ceiling)
    assert share["ci_low"] == pytest.approx(throughput["ci_low"] / ceiling) and share["unit"] == "ratio"
    assert share["label"].endswith("of 600 TFLOP/s") and len(share["from"]) == 2
    verdict = rules.REPRODUCED if abs(share["value"] / 0.93 - 1) < 0.1 else rules.NOT
    assert entries["ada.peak.final"]["verdict"] in (verdict, rules.PARTLY)


def test_without_the_ceiling_no_share_is_claimed(judged):
    entry = judged(ceilings=False)["ada.peak.final"]
    assert entry["verdict"] == rules.NOT_MEASURED
    assert "The ceiling ceilings.mma_f16 was not measured" in entry["explanation"]


def test_absolute_figures_wait_for_the_articles_gpu(judged):
    entries = judged()
    for name in ("time", "throughput"):
        assert entries[f"ada.{name}.3_1"]["verdict"] == rules.NOT_TESTABLE
    assert entries["ada.step.1_1"]["published"][0]["value"] == 57.3
    assert "published 1.949" in entries["ada.step.1_1"]["explanation"].lower()
