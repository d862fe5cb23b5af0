"""Rings of kernels/ada under every order of events that the programming model allows, with bugs planted in them.

As test_rings.py does for kernels/hopper: the sources run on the CPU under hopper_grid.hpp's model of mbarriers and TMA,
with ldmatrix and mma.sync from mma_grid.hpp.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import hopper_grid
import mma_grid
import pytest
from test_rings import ROUND, WAIT_FULL, Case

from gemmrepro import registry
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

KERNELS = [registry.kernel(f"ada.{name}") for name in ("tma", "stored", "half_tiles")]
SEEDS = range(0, 4)
TRIES = range(0, 12)

CASES = (
    Case(Shape(264, 100, 200), clusters=1),  # more steps than slots, two tiles or more a block, tails of m, n and k
    Case(Shape(100, 136, 64), clusters=3),  # one step; a block without a tile
)


def run(program: Path, case: Case, seeds: range) -> str:
    return hopper_grid.run_model(program, case.shape, (case.clusters, 1), 384, 1, seeds)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_every_order_gives_the_product(kernel: Kernel, tmp_path: Path) -> None:
    program = mma_grid.compile_model(kernel, kernel.source_path.read_text(), tmp_path / "right")
    for case in CASES:
        assert run(program, case, SEEDS) == "", str(case)


WAIT_EMPTY = r"barrier_wait\(&shared\.empty\[slot\], parity \^ 1\);"
WAIT_SLOT = WAIT_FULL.replace("stage", "slot")

PLANTS = [
    # (what, pattern, replacement, occurrence)
    ("no wait for an empty slot", WAIT_EMPTY, "", 0),
    ("no wait for a tile's first slot", WAIT_SLOT, "", 0),
    ("no wait for the next slot", WAIT_SLOT, "", 1),
    ("parity of the consumers stays", ROUND.replace("stage", "slot"), "slot = 0;", 1),
    ("parity of the producer stays", ROUND.replace("stage", "slot"), "slot = 0;", 0),
    ("one warp may release for all", r"empty\[s\], CONSUMERS", "empty[s], 1", 0),
    ("the slot after the one in use released", r"barrier_arrive\(empty\)", "barrier_arrive(&shared.empty[slot])", 0),
    ("bytes of A alone announced", r"shared\.full\[slot\], SLOT", "shared.full[slot], BM * ROW", 0),
    ("the upper half is not fetched again", r"fetch_b\(1, s\);", "if (s == 0) fetch_b(1, s);", 0),
    ("the upper half of the columns from the lower", r"half \* HALF \+ j", "j", 0),
    ("both slices in one set of fragments", r"const int set = s / 2 % 2;", "const int set = 0;", 0),
    ("sums of the tile before", r"sums\[i\]\[j\]\[0\] = sums\[i\]\[j\]\[1\] = 0;", "", 0),
    ("a part staged while the one before it is stored", r"tma_store_wait_read<1>\(\);", "", 0),
    ("a warp leaves while its tile is stored", r"tma_store_wait<0>\(\);", "", 0),
    ("a part at its neighbour's place", r"32 \* part, at\.row", "32 * (part ^ 1), at.row", 0),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant[0])
def test_a_planted_bug_shows(plant: tuple[str, str, str, int], tmp_path: Path) -> None:
    what, pattern, replacement, which = plant
    kernel = registry.kernel("ada.half_tiles")
    planted = hopper_grid.with_plant(kernel.source_path.read_text(), pattern, replacement, which)
    program = mma_grid.compile_model(kernel, planted, tmp_path / "planted")
    assert run(program, CASES[0], TRIES) != "", what
