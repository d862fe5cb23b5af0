"""The ladder on a GPU: launches on two streams at once."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gpu_tools import load

from gemmrepro import registry
from gemmrepro.gpu import device
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape

pytestmark = pytest.mark.gpu

SPLIT = Shape(256, 256, 8192)
"""Two tiles, each in so many pieces that two launches fit the GPU at once."""


def test_level_7_6_may_run_on_two_streams_at_once(session, built, toolkit):
    """Each launch has a workspace of its own: neither adds the other's partial sums."""
    import cupy

    kernel = registry.kernel("ladder.cut")
    one = load(kernel, session, built, toolkit)
    two = copy.copy(one)  # the same code on the GPU, and so the same memory of its module
    two.session = device.open_gpu()
    assert kernel.launch(SPLIT).grid[0] > 2
    rng, runs = np.random.default_rng(1), []
    for loaded in (one, two):
        a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((256, 8192), (8192, 256)))
        arrays = cupy.asarray(a), cupy.asarray(b)
        c = cupy.zeros((256, 256), cupy.float32)
        # A bound call does not keep its operands alive.
        runs.append((loaded.bind(Operands(kernel.problem, SPLIT, arrays, c)), c, a @ b, arrays))
    cupy.cuda.Device().synchronize()
    for _ in range(50):
        for _ in range(4):
            for call, *_ in runs:
                call()
        one.session.sync()
        two.session.sync()
        for _, c, expected, _ in runs:
            np.testing.assert_array_equal(c.get(), expected)
            c.fill(0)
        cupy.cuda.Device().synchronize()
