"""The bugs that the tests on a GPU plant still find their places in the sources and in the gate's shapes."""

import math

import pytest
from plants import PLANTS

from gemmrepro import registry
from gemmrepro.gates.gemm_cases import gemm_cases

HOPPER = [kernel for kernel in registry.kernels("hopper") if kernel.compute.op == "gemm"]
ONE_TILE = [part for kernel in HOPPER for part in kernel.parts if {"bm", "bn"} <= set(part.params)]
"""Those with the same tile at every size, and every variant of those that choose one."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_finds_its_place(name):
    kernel, source = PLANTS[name].apply()
    assert kernel != registry.kernel(kernel.id) or source != kernel.source_path.read_text()
    shapes = PLANTS[name].shapes()
    assert shapes != set(), "the kernel has no shapes of its own"
    if (
        shapes is not None and kernel.compute.op == "gemm"
    ):  # an operation on vectors is tried on its own shapes and others
        assert shapes <= {case.shape for case in gemm_cases(registry.kernel(kernel.id), [1])}


@pytest.mark.parametrize("kernel", ONE_TILE, ids=lambda kernel: f"{kernel.id}-{kernel.code.entry}")
def test_blocks_that_stay_take_more_than_one_tile(kernel):
    """On one of the gate's shapes there are more tiles than blocks, and their number is no multiple of the blocks'."""
    box = kernel.params.get("cluster", 1)
    rows, columns = kernel.params["bm"] * box, kernel.params["bn"]

    def turns(shape):
        tiles = math.ceil(shape.m / rows) * math.ceil(shape.n / columns)
        return tiles / math.prod(kernel.launch(shape).grid) * box

    tried = {case.shape: turns(case.shape) for case in gemm_cases(kernel, [1])}
    if "group" in kernel.params:
        assert any(turns > 1 and turns % 1 for turns in tried.values())
    else:
        assert set(tried.values()) == {1}, "a block a tile"


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in HOPPER if "worth" in kernel.params], ids=lambda kernel: kernel.id
)
def test_a_shape_of_its_own_makes_stream_k_cut_tiles(kernel):
    """And nothing else does: the shapes of every kernel are too small for it."""

    def saved(shape):
        tiles = math.ceil(shape.m / 256) * math.ceil(shape.n / 256)
        steps, clusters = math.ceil(shape.k / kernel.params["bk"]), math.prod(kernel.launch(shape).grid) // 2
        return (clusters - tiles % clusters) * steps // clusters if tiles % clusters else 0

    cut = {case.shape for case in gemm_cases(kernel, [1]) if saved(case.shape) >= kernel.params["worth"]}
    assert cut == set(kernel.promises.gate_shapes)
    assert any(shape.k % kernel.params["bk"] for shape in cut), "with a tail along K"
