"""FP64 by slices on a GPU: the reference's own results bit for bit, launch by launch and as a graph."""

import numpy as np
import pytest
from gpu_tools import fp64_operands, load
from ozaki_matrices import multiply, reference

from gemmrepro import registry
from gemmrepro.operations import Shape
from gemmrepro.ozaki import inputs, pairs, programs

pytestmark = pytest.mark.gpu

KERNELS = [kernel for kernel in registry.kernels("ozaki") if kernel.run.steps]
FUSED = [kernel for kernel in KERNELS if kernel.run.program is None]
SHAPE = Shape(200, 136, 1040)


@pytest.mark.parametrize("kernel", FUSED, ids=lambda kernel: kernel.id)
@pytest.mark.parametrize("law", ["normal", "phi = 2"])
def test_a_fused_kernel_agrees_with_the_reference_bit_for_bit(kernel, law, session, built):
    loaded = load(kernel, session, built, "cuda13")
    a, b = inputs.INPUTS[law](np.random.default_rng(1), SHAPE.m, SHAPE.n, SHAPE.k)
    given = fp64_operands(kernel, a, b)
    loaded.bind(given)()
    session.sync()
    difference = np.abs(given.output.get().reshape(SHAPE.m, SHAPE.n) - reference(kernel, a, b))
    # Sums of one p + q at a time: the order differs, and with it what float64 rounds.
    assert (difference <= 9 * 2.0**-53 * (np.abs(a) @ np.abs(b)) * ("sums" in kernel.run.workspace)).all()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8_e4m3"])
def test_a_naive_kernel_takes_the_references_slices(dtype, session, built):
    kernel = registry.kernel(f"ozaki.naive_{dtype}")
    loaded = load(kernel, session, built, "cuda13")
    a, b = inputs.normal(np.random.default_rng(2), SHAPE.m, SHAPE.n, SHAPE.k)
    given = fp64_operands(kernel, a, b)
    launches = loaded.launches(given)
    fmt = programs.FORMATS[dtype]
    parts = [programs.naive_split(x, SHAPE.k, fmt) for x in (a, b)]
    counts = programs.split(launches, fmt)
    assert counts == tuple(map(len, parts))
    assert len(pairs.select(*counts)) == counts[0] * counts[1]
    programs.multiply(launches, *counts)
    session.sync()
    assert (given.output.get().reshape(SHAPE.m, SHAPE.n) == multiply(*parts)).all()
