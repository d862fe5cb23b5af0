"""The FP8 kernels' sources on the CPU, under every order of events, and with a tensor core that keeps 14 bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import fp8_grid
import hopper_grid
import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

KERNELS = registry.kernels("fp8")
SEEDS = range(0, 4)
"""Three fixed orders (latest, earliest, latest in reverse), and a random one."""
TRIES = [range(first, first + 3) for first in range(0, 24, 3)]
"""For a planted bug, until it shows."""

# (shape, blocks): more steps than stages and fewer, one and an odd number; several tiles a block; tails.
CASES = [
    (Shape(136, 264, 128 * 6 + 16), 1),
    (Shape(264, 136, 128 * 2), 2),
    (Shape(264, 200, 112), 1),
]
LONG = (Shape(136, 264, 128 * 7), 1)
"""More steps than stages, more tiles than consumers."""


def entries(kernel: Kernel) -> list[tuple[str, dict[str, object] | None]]:
    """Its entry points with their tensor maps."""
    return [(each.entry, dict(each.tensor_maps)) for each in kernel.run.variants] or [("", None)]


def right(got: np.ndarray, shape: Shape, drawn: dict[str, np.ndarray]) -> bool:
    return bool((got == fp8_grid.product(shape, drawn).astype(np.float16)).all())


def outcome(program: Path, folder: Path, case: tuple[Shape, int], seeds: range, scaled: bool = True) -> str:
    """The first problem on exact operands, under any of `seeds`; "" if there is none."""
    shape, blocks = case
    drawn = fp8_grid.draw(shape, "small", 1, scaled)
    problem, results = fp8_grid.run_model(program, folder, shape, drawn, blocks, seeds)
    wrong = [seed for seed, got in zip(seeds, results, strict=False) if not right(got, shape, drawn)]
    return problem or (f"wrong under seeds {wrong}" if wrong else "")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_every_order_gives_the_product(kernel: Kernel, tmp_path: Path) -> None:
    for entry, maps in entries(kernel):
        program = fp8_grid.compile_model(kernel, kernel.source_path.read_text(), tmp_path / "model", entry, maps)
        for case in CASES:
            assert outcome(program, tmp_path / "data", case, SEEDS, scaled=scaled(kernel)) == "", f"{entry} {case}"


def scaled(kernel: Kernel) -> bool:
    return kernel.compute.op == "gemm_scaled"


PLANTS = [
    # (kernel, what, pattern, replacement, occurrence)
    ("fast", "turn not handed over", r"barrier_arrive\(&shared\.turn\[warpgroup \^ 1\]\);", ";", 0),
    ("fast", "consumers walk the same stages", r"first \+= CONSUMERS \* steps", "first += steps", 0),
    ("fast", "staging reused while it is stored", r"tma_store_wait_read<0>\(\);", "", 0),
    ("promoted", "a stage released before its wgmma are done", r"wgmma_finish\(fresh\);", "", 0),
    ("promoted", "one consumer may release for both", r"empty\[s\], CONSUMERS", "empty[s], 1", 0),
    ("promoted", "fresh sums go on", r"left < every \|\| s > 0", "true", 0),
    ("hidden", "a half added before it is done", r"wgmma_arrived<1>\(fresh\[0\]\);", "", 1),
    ("hidden", "the other half added before it is done", r"wgmma_arrived<0>\(fresh\[1\]\);", "", 0),
    ("hidden", "the stage in use released", r"empty\[before\]", "empty[stage]", 0),
    ("hidden", "both halves of the left columns", r"b \+ NEXT_HALF", "b", 0),
    ("hidden", "sums of the tile before kept", r"d\[i\] = 0;", ";", 0),
    ("hidden", "no fence before the store", r"shared_fence\(\);", "", 0),
    ("hidden", "warp leaves while its tile is stored", r"tma_store_wait<0>\(\);", "", 0),
    ("by_size", "a step released while it is multiplied", r"wgmma_arrived<1>\(fresh\[0\]\);", "", 1),
    ("by_size", "the second step of a round kept", r"release\(before\);", ";", 0),
    ("by_size", "no step of zeros", r"2 \* rounds : rounds", "(k + BK - 1) / BK : rounds", 0),
    ("scaled", "scales of the step before", r"fetch\(scales\[1\], next \+ 1\)", "fetch(scales[1], next)", 0),
    ("scaled", "scales of the tile before", r"begin\(tile_at\(t \+ blocks", "begin(tile_at(t", 0),
    ("scaled", "one row's scale for both", r"i % 4 < 2 \? upper : lower", "upper", 0),
    ("scaled", "scales of B unpadded", r"pitch = \(depth \+ 3\) / 4 \* 4", "pitch = depth", 0),
    ("scaled_ring", "scales of the step before", r"\[stage\]\[warp \* 16", "[(stage + 5) % 6][warp * 16", 0),
    ("scaled_ring", "scales of the tile above", r"scale_a \+ min\(tile\.row", "scale_a + min((tile.row - 1)", 0),
    ("scaled_ring", "one row's scale for both", r"\[i % 4 / 2\]", "[0]", 0),
    (
        "scaled_ring",
        "every tile begins with the first buffer",
        r"shared\.C\[warp\]\[buffer\]",
        "shared.C[warp][piece % BUFFERS]",
        0,
    ),
    ("scaled_ring", "one block of B for a half of 192", r"of_b\[stage\]\[half \+ side\]", "of_b[stage][half]", 0),
    ("scaled_ring", "tiles arrive without scales", r"barrier_arrive_copied\(", "barrier_arrive(", 0),
    ("scaled_ring", "scales of B unpadded", r"pitch = \(depth \+ 3\) / 4 \* 4", "pitch = depth", 0),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_planted_bug_shows(plant: tuple[str, str, str, str, int], tmp_path: Path) -> None:
    name, what, pattern, replacement, which = plant
    kernel = registry.kernel(f"fp8.{name}")
    planted = hopper_grid.with_plant(kernel.source_path.read_text(), pattern, replacement, which)
    entry, maps = entries(kernel)[-1 if "of 192" in what else 0]
    program = fp8_grid.compile_model(kernel, planted, tmp_path / "planted", entry, maps)
    case = CASES[0] if "zeros" in what else LONG
    assert any(outcome(program, tmp_path / "data", case, seeds, scaled(kernel)) for seeds in TRIES), what


def test_scaled_products_get_the_wide_tile_where_it_takes_fewer_cycles() -> None:
    choose = registry.kernel("fp8.scaled_ring").run.choose
    assert choose is not None
    wide = [n for n in (1024, 2048, 4096, 8192, 16384) if choose(Shape(n, n, n)).entry == "tile_128x192"]
    assert wide == [4096, 8192, 16384]
