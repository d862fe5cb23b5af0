"""The family ozaki: its sources run on the CPU and agree with the reference bit for bit, and its records."""

import cpu_tile
import numpy as np
import pytest
from ozaki_matrices import error_and_scale, multiply, reference

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.ozaki import bounds, inputs, pairs, programs

KERNELS = registry.kernels("ozaki")
FUSED = [
    kernel
    for kernel in KERNELS
    if kernel.run.steps and kernel.run.program is None and "sums" not in kernel.run.workspace
]
"""All pairs in one launch."""
NAIVE = [kernel for kernel in KERNELS if kernel.run.program is not None]
ODD = {"fp16": (37, 70, 88), "bf16": (37, 70, 88), "fp8_e4m3": (33, 38, 80)}


def names(kernels):
    return [kernel.id for kernel in kernels]


def dtype_of(kernel) -> str:
    return kernel.run.workspace["slices_a"].dtype


def operands(kernel, draw=inputs.normal, seed: int = 5):
    m, n, k = ODD[dtype_of(kernel)]
    return draw(np.random.default_rng(seed), m, n + -n % kernel.accepts.multiple_of["n"], k)


@pytest.mark.parametrize("kernel", FUSED, ids=names(FUSED))
def test_a_fused_kernel_agrees_with_the_reference_bit_for_bit(kernel):
    a, b = operands(kernel)
    assert (cpu_tile.multiply(kernel.id, a, b) == reference(kernel, a, b)).all()


@pytest.mark.parametrize("name", ["diagonal", "distributed"])
def test_a_launch_a_diagonal_and_blocks_that_share_a_tile_make_what_one_launch_makes(name):
    """The same sums but for the order in which float64 rounds them."""
    kernel = registry.kernel(f"ozaki.{name}_bf16_d9")
    a, b = operands(kernel)
    c = cpu_tile.multiply(kernel.id, a, b)
    plain = reference(registry.kernel("ozaki.fused_bf16_d9"), a, b)
    assert (np.abs(c - plain) <= 9 * 2.0**-53 * (np.abs(a) @ np.abs(b))).all()
    assert (error_and_scale(c, a, b)[0] <= kernel.promises.error(a, b, np)).all()


@pytest.mark.parametrize("kernel", NAIVE, ids=names(NAIVE))
def test_a_naive_kernel_agrees_with_the_reference_bit_for_bit(kernel):
    a, b = operands(kernel)
    launches = cpu_tile.Launches(kernel, a, b)
    fmt = programs.FORMATS[dtype_of(kernel)]
    found = programs.split(launches, fmt)
    parts = [programs.naive_split(x, a.shape[1], fmt) for x in (a, b)]
    assert found == tuple(map(len, parts))
    programs.multiply(launches, *found)
    assert (launches.operands["c"] == multiply(*parts)).all()


def test_what_the_bound_is_made_of():
    """Dropped pairs and residuals by their largest digits; nothing exact is charged, and what is not exact is."""
    plain = bounds.guaranteed(1024, 8, 7, 7, 9)
    assert bounds.guaranteed(1024, 8, 7, 7, 8) < plain  # fewer roundings than are dropped digits
    assert bounds.guaranteed(1024, 8, 7, 7, 5) > 1000 * plain
    assert bounds.guaranteed(1024, 8, 7, 7, 9, lost=1.0) == plain  # beta = 7, digits of 7 bits at most: exact
    beyond = bounds.guaranteed(16384, 8, 7, 7, 9, lost=2.0**-10)
    assert 2.0**-17 < beyond < 2.0**-14
    dropped = sum(2.0 ** -(8 + (p - 1) * 7 + 8 + (q - 1) * 7) for p, q in pairs.dropped(7, 7, 12) if p and q)
    assert bounds.guaranteed(1024, 8, 7, 7, 12) > dropped > 0
    assert bounds.guaranteed(4096, 4, 3, 14, 16, 14, 64, 1.0) < 1e-9
    assert bounds.guaranteed(4096, 4, 3, 14, 16, 14, 128, 1.0) > 1  # a first pair of 2^15 in 14 bits


def test_inf_and_nan_spoil_their_row_or_column_alone(kernel_id="ozaki.rows_bf16_d9"):
    kernel = registry.kernel(kernel_id)
    assert kernel.promises.spoils
    a, b = operands(kernel)
    plain = cpu_tile.multiply(kernel_id, a, b)
    a, b = a.copy(), b.copy()
    rows, columns = [3, 20], [7]
    a[3, 5], a[20, 0], b[11, 7] = np.inf, np.nan, -np.inf
    c = cpu_tile.multiply(kernel_id, a, b)
    spoiled = np.zeros(c.shape, bool)
    spoiled[rows], spoiled[:, columns] = True, True
    assert np.isnan(c[spoiled]).all()
    assert np.allclose(c[~spoiled], plain[~spoiled], rtol=1e-9, atol=1e-9)


def test_what_the_naive_split_does_not_take_it_names():
    kernel = registry.kernel("ozaki.naive_bf16")
    a, b = operands(kernel)
    with pytest.raises(UserError, match=r"what is left of A reaches 2\^10\d\d"):
        cpu_tile.multiply(kernel.id, np.ldexp(a, 1015), b)
    with pytest.raises(UserError, match="after 32 slices of B something is left"):
        cpu_tile.multiply(kernel.id, a, inputs.graded(400)(np.random.default_rng(1), *ODD["bf16"])[1])
