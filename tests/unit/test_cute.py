"""CuTe's article: its printed order of blocks, and how many blocks an SM holds."""

from types import SimpleNamespace

import pytest

from gemmrepro import registry
from gemmrepro.core.files import load_module
from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.judge.metrics.calculated import Inputs
from gemmrepro.operations import Shape

calculations = load_module("calculations_of_cute", KERNELS_DIR / "cute" / "calculations.py")

SWIZZLED = [kernel for kernel in registry.kernels("cute") if kernel.accepts.multiple_of.get("n") == 1024]


@pytest.mark.parametrize(("side", "lost"), [(7, 0), (8, 0), (9, 19), (12, 24), (16, 0), (20, 56), (33, 154), (64, 0)])
def test_tiles_that_no_block_computes(side, lost):
    assert calculations.dropped(side, side) == lost
    assert calculations.tiles_dropped(Inputs(options={"sides": side})).value == lost


@pytest.mark.parametrize("kernel", SWIZZLED, ids=lambda kernel: kernel.id)
def test_a_rung_with_that_order_takes_only_grids_that_it_covers(kernel):
    for n in range(128, 5000, 128):
        shape = Shape(1024, n, 256)
        if kernel.takes(shape):
            rows, columns, _ = kernel.launch(shape).grid
            assert calculations.dropped(rows, columns) == 0
    assert kernel.takes(Shape(128, 1024, 64)) and not kernel.takes(Shape(1024, 1152, 1024))


@pytest.mark.parametrize(
    ("name", "registers", "static", "arch", "blocks"),
    [
        ("article_base", 168, 32768, "sm_80", 3),  # 3 x 128 x 168 registers are 64,512 of 65,536
        ("article_base", 169, 32768, "sm_80", 2),
        ("article_l2_swizzle", 222, 0, "sm_80", 2),
        ("article_three_stages", 226, 0, "sm_80", 1),  # 2 x 97 KB are more than 164
        ("article_three_stages", 226, 0, "sm_90", 2),
    ],
)
def test_resident_blocks(name, registers, static, arch, blocks):
    code = SimpleNamespace(registers=registers, shared_bytes=static)
    given = Inputs(kernels=(registry.kernel(f"cute.{name}"),), codes=(code,), arch=arch, n=2048)
    assert calculations.resident_blocks(given).value == blocks
