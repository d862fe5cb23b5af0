"""CuTe's persistent kernels, in C++ and in Python, on a GPU with more clusters than there are tiles."""

from dataclasses import replace

import pytest
from gpu_tools import load

from gemmrepro import registry
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape

pytestmark = pytest.mark.gpu

CLUSTERS = 4096
"""So many that the last ones start after the first has stored its tile."""

SHAPES = (Shape(256, 256, 64), Shape(16, 256, 64), Shape(512, 512, 256))

HOPPER, IN_PYTHON = (registry.kernel(f"cute.{name}") for name in ("hopper", "dsl_hopper"))


def crowded(kernel: registry.Kernel, clusters: int = CLUSTERS) -> registry.Kernel:
    """`kernel`, launched with `clusters` clusters on every shape."""
    return replace(kernel, launch=lambda shape: replace(kernel.launch(shape), grid=(2 * clusters, 1, 1)))


def product(loaded: Loaded, kernel: registry.Kernel, shape: Shape):
    """C of one launch over NaN."""
    inputs, output = random(kernel.problem, shape, seed=7)
    held = output.view("u2")
    held.fill(0xFFFF)  # NaN
    loaded.bind(Operands.of(kernel, shape, inputs, output), kernel)()
    loaded.session.sync()
    return held.get()


@pytest.mark.parametrize("kernel", [HOPPER, IN_PYTHON], ids=lambda kernel: kernel.id)
@pytest.mark.parametrize("shape", SHAPES)
def test_clusters_without_a_tile_store_nothing(session, built, toolkit, kernel, shape):
    loaded = load(kernel, session, built, toolkit)
    expected = product(loaded, kernel, shape)
    for _ in range(3):
        assert (product(loaded, crowded(kernel), shape) == expected).all()


@pytest.mark.parametrize("shape", [*SHAPES, Shape(300, 1000, 200), Shape(2816, 1800, 520)])
def test_the_python_port_gives_the_bits_of_the_cpp_kernel(session, built, toolkit, shape):
    port, cpp = (load(kernel, session, built, toolkit) for kernel in (IN_PYTHON, HOPPER))
    assert (product(port, IN_PYTHON, shape) == product(cpp, HOPPER, shape)).all()
