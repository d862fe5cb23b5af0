"""Launches that the gate does not make: grids larger than the problem, two at once, and a port beside its model."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
from gpu_tools import load, on_a_stream_of_its_own

from gemmrepro import registry
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch

pytestmark = pytest.mark.gpu

CUTE = [registry.kernel(f"cute.{name}") for name in ("hopper", "dsl_hopper")]
PERSISTENT = [
    (part, 132)
    for kernel in registry.kernels("hopper")
    if kernel.compute.dtype_in == "bf16"
    for part in kernel.parts
    if math.prod(part.launch(Shape.cube(16384)).grid) <= 132
]
"""Those whose header says "any number of blocks" or "of clusters"."""
PERSISTENT += [(kernel, 8192) for kernel in CUTE]  # the last start after the first has stored its tile
CUT = Shape(2048, 2304, 8000)
"""72 tiles of 256 x 256: 32 clusters share the last eight of them, each walks 125 steps along K."""
AT_ONCE = [(registry.kernel(f"hopper.{name}"), CUT) for name in ("lockstep", "stream_k")]
AT_ONCE += [(registry.kernel("ladder.cut"), Shape(256, 256, 8192))]  # two tiles, each in many pieces
AT_ONCE += [(each, Shape(1, 300_000, 256)) for each in registry.kernels("memory") if each.compute.op == "histogram"]
AT_ONCE += [(each, Shape(1, 300_000, 1)) for each in registry.kernels("memory") if each.compute.op == "reduce"]
NAN = 0xFFFF


def finished() -> None:
    """Wait for everything on the GPU, on whatever stream."""
    import cupy

    cupy.cuda.runtime.deviceSynchronize()


def with_blocks(part: Kernel, blocks: int) -> Kernel:
    """The same kernel, launched with as many of its clusters as `blocks` blocks make, whatever the shape."""

    def launch(shape: Shape) -> Launch:
        usual = part.launch(shape)
        rows, cols, parts = usual.cluster or (1, 1, 1)
        return replace(usual, grid=(blocks // (rows * cols * parts) * rows, cols, parts))

    return replace(part, launch=launch)


def result(loaded: Loaded, operands: Operands, part: Kernel) -> Any:
    """What is stored by one launch into NaN."""
    operands.output[...] = NAN
    call = loaded.bind(operands, part)
    finished()
    call()
    finished()
    return operands.output.copy()


@pytest.mark.parametrize(("part", "blocks"), PERSISTENT, ids=lambda each: getattr(each, "id", each))
def test_blocks_without_a_tile_store_nothing(session, built, toolkit, part, blocks):
    loaded = load(registry.kernel(part.id), session, built, toolkit)
    shape = Shape(256, 256, 64)
    operands = Operands.of(part, shape, *random(part.problem, shape, 1))
    expected = result(loaded, operands, part)
    for _ in range(20):
        assert bool((result(loaded, operands, with_blocks(part, blocks)) == expected).all())


@pytest.mark.parametrize(("kernel", "shape"), AT_ONCE, ids=lambda each: getattr(each, "id", ""))
def test_two_launches_at_once_leave_each_other_alone(session, built, toolkit, kernel, shape):
    """Small enough to run at the same time, of one module, whose memory of its own histogram_lanes once shared."""
    part = with_blocks(kernel, 64) if kernel.family == "hopper" else kernel
    first = load(kernel, session, built, toolkit)
    both = [first, copy.copy(first)]
    for loaded in both:
        loaded.session = on_a_stream_of_its_own(session)
    operands = [Operands.of(part, shape, *random(part.problem, shape, seed)) for seed in (1, 2)]
    expected = [result(loaded, given, part) for loaded, given in zip(both, operands, strict=True)]
    calls = [loaded.bind(given, part) for loaded, given in zip(both, operands, strict=True)]
    for _ in range(30):
        for given in operands:
            given.output[...] = NAN
        finished()
        for call in calls * 10:
            call()
        finished()
        for given, right in zip(operands, expected, strict=True):
            assert bool((given.output == right).all())
    for loaded in both:
        left = [array for name, array in loaded.workspace(shape).items() if part.run.workspace[name].zeroed]
        assert not any(bool(array.any()) for array in left), "the next launch would find it in use"


@pytest.mark.parametrize("shape", [Shape(16, 256, 64), Shape(512, 512, 256), Shape(300, 1000, 200)])
def test_the_python_port_gives_the_bits_of_the_cpp_kernel(session, built, toolkit, shape):
    inputs, output = random(CUTE[0].problem, shape, 7)
    cpp, port = (
        result(load(kernel, session, built, toolkit), Operands.of(kernel, shape, inputs, output), kernel)
        for kernel in CUTE
    )
    assert bool((cpp == port).all())
