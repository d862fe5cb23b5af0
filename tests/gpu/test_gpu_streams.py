"""Two launches of one kernel at a time, on two streams and on arrays of their own: neither may touch the other's."""

import copy

import numpy as np
import pytest
from gpu_tools import load

from gemmrepro import registry
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.gates import vectors
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape, counts

pytestmark = pytest.mark.gpu

TIMES = 300
"""Launches on each stream, a few microseconds each."""
KERNELS = [kernel for kernel in registry.kernels("memory") if kernel.compute.op in ("histogram", "reduce")]
SPLIT = Shape(256, 256, 8192)
"""Two tiles of a product, each in so many pieces that two launches fit the GPU at once."""


def on_a_stream_of_its_own(session):
    """The session with another stream and with no workspace yet."""
    import cupy
    from cuda import core

    other = copy.copy(session)
    other.stream, other.workspace = cupy.cuda.Stream(non_blocking=True), None
    other.core_stream = core.Stream.from_handle(other.stream.ptr)
    return other


def drawn(op: str, shape: Shape, law: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Inputs, and what must come out bit for bit."""
    if op == "histogram":
        ids = vectors.gate_ids(("uniform", "some outside")[law], shape.n, shape.k, 1)
        return (ids,), vectors.counts_of(ids, shape.k, np)
    if op == "reduce":
        values = vectors.gate_values("integers", shape.n, 1 + law)
        return (values,), values.sum(keepdims=True)
    rng = np.random.default_rng(law)
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    return (a.ravel(), b.ravel()), (a @ b).ravel()


def wrong_results(session, module) -> int:
    """How many results are wrong of those looked at while two streams launch the kernel on inputs of their own.
    Small grids, so that launches of both fit the GPU. One module: what a kernel keeps on the GPU belongs to it."""
    import cupy

    problem = module.kernel.problem
    shape = {"histogram": Shape(1, 300_000, 256), "gemm": SPLIT}.get(problem.op, Shape(1, 300_000, 1))
    calls, outputs, expected, sessions, inputs = [], [], [], [], []
    for law in (0, 1):
        given, right = drawn(problem.op, shape, law)
        expected.append(right)
        outputs.append(cupy.zeros(counts(problem, shape)[1], STORAGE[problem.dtype_out]))
        module.session = on_a_stream_of_its_own(session)
        sessions.append(module.session)
        inputs.append(tuple(map(cupy.asarray, given)))  # a bound call keeps its workspace alive and not its operands
        calls.append(module.bind(Operands(problem, shape, inputs[law], outputs[law])))
    module.session = session
    session.sync()
    wrong = 0
    for time in range(TIMES):
        for call in calls:
            call()
        if time % 10 == 9:
            for each in sessions:
                each.sync()
            wrong += sum((out.get() != right).any() for out, right in zip(outputs, expected, strict=True))
    return wrong


@pytest.mark.parametrize("kernel", [*KERNELS, registry.kernel("ladder.cut")], ids=lambda kernel: kernel.id)
def test_launches_on_two_streams_do_not_mix(session, built, toolkit, kernel):
    """With totals in memory of their own histogram_lanes and reduce_wide failed here."""
    assert wrong_results(session, load(kernel, session, built, toolkit)) == 0
