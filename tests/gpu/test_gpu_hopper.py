"""Level 8 on a GPU: grids larger than the problem, and two launches at once."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_tools import load

from gemmrepro import registry
from gemmrepro.gpu import device
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch

pytestmark = pytest.mark.gpu

PERSISTENT = [
    part
    for kernel in registry.kernels("hopper")
    if kernel.compute.dtype_in == "bf16"
    for part in kernel.parts
    if math.prod(part.launch(Shape.cube(16384)).grid) <= 132
]
"""Those whose header says "any number of blocks" or "of clusters"."""

CUT = Shape(2048, 2304, 8000)
"""72 tiles of 256 x 256: 32 clusters share the last eight of them, each walks 125 steps along K."""

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
    """The bits of C after one launch into NaN."""
    operands.output[...] = NAN
    call = loaded.bind(operands, part)
    finished()
    call()
    finished()
    return operands.output.copy()


@pytest.mark.parametrize("part", PERSISTENT, ids=lambda part: part.code.entry)
def test_blocks_without_a_tile_store_nothing(session, built, toolkit, part):
    loaded = load(registry.kernel(part.id), session, built, toolkit)
    shape = Shape(256, 256, 64)
    operands = Operands.of(part, shape, *random(part.problem, shape, 1))
    expected = result(loaded, operands, part)
    for _ in range(20):
        assert bool((result(loaded, operands, with_blocks(part, 132)) == expected).all())


@pytest.fixture
def on_two_streams(session, built, toolkit) -> Iterator[Callable[[str], tuple[Loaded, Loaded]]]:
    """A function that loads a kernel once, for two sessions with a stream each."""
    other = device.open_gpu()

    def make(kernel_id: str) -> tuple[Loaded, Loaded]:
        first = load(registry.kernel(kernel_id), session, built, toolkit)
        second = copy.copy(first)
        second.session = other
        return first, second

    yield make
    session.stream.use()


@pytest.mark.parametrize("kernel_id", ["hopper.lockstep", "hopper.stream_k"])
def test_two_launches_at_once_leave_each_other_alone(on_two_streams, kernel_id):
    """Half of the GPU each, so that both run at the same time, with operands of their own."""
    both = on_two_streams(kernel_id)
    part = with_blocks(registry.kernel(kernel_id), 64)
    operands = [Operands.of(part, CUT, *random(part.problem, CUT, seed)) for seed in (1, 2)]
    expected = [result(loaded, given, part) for loaded, given in zip(both, operands, strict=True)]
    calls = [loaded.bind(given, part) for loaded, given in zip(both, operands, strict=True)]
    for _ in range(10):
        for given in operands:
            given.output[...] = NAN
        finished()
        for call in calls * 3:
            call()
        finished()
        for given, right in zip(operands, expected, strict=True):
            assert bool((given.output == right).all())
    for loaded in both:
        left = {name: array for name, array in loaded.workspace(CUT).items() if part.run.workspace[name].zeroed}
        assert left and not any(bool(array.any()) for array in left.values()), "the next launch would find it in use"
