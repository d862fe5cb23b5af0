"""FP64 by Chinese remainders on a GPU: errors as stated, and the same bits by rungs that compute the same."""

import numpy as np
import pytest
from crt_kinds import CERTIFIED, KERNELS
from gpu_tools import fp64_operands, load

from gemmrepro import registry
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operations import Shape
from gemmrepro.ozaki import exact, inputs

pytestmark = pytest.mark.gpu

FIXED = [kernel for kernel in KERNELS if kernel not in CERTIFIED]
SHAPE = Shape(300, 265, 330)
"""Several tiles of C with tails, odd columns, and a K that is no multiple of 16."""


def names(kernels) -> list[str]:
    return [kernel.id for kernel in kernels]


def drawn(law: str, seed: int, shape: Shape = SHAPE):
    return inputs.INPUTS[law](np.random.default_rng(seed), shape.m, shape.n, shape.k)


def multiply(loaded: Loaded, session, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    given = fp64_operands(loaded.kernel, a, b)
    loaded.bind(given)()
    session.sync()
    return given.output.get().reshape(a.shape[0], b.shape[1])


@pytest.mark.parametrize("kernel", FIXED, ids=names(FIXED))
def test_errors_are_what_so_many_moduli_leave(kernel, session, built, toolkit) -> None:
    """Against the product in double-double: 14 moduli leave a few u, 15 and 16 little but the last rounding."""
    loaded = load(kernel, session, built, toolkit)
    shape = Shape(130, 257, 2048)
    a, b = drawn("normal", 3, shape)
    c = multiply(loaded, session, a, b)
    error = exact.minus_double_double(c, *exact.product_double_double(a, b))
    scaled = exact.scaled(error, np.abs(a) @ np.abs(b))
    assert scaled < {14: 4.0, 15: 0.4, 16: 0.4}[kernel.params["moduli"]]
    assert scaled > {14: 0.2, 15: 0.0, 16: 0.0}[kernel.params["moduli"]]


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("crt.lockstep", "crt.winograd"),
        ("crt.shared", "crt.winograd"),
        ("crt.certified_shared", "crt.certified"),
        ("crt.first_wave", "crt.certified"),
    ],
)
def test_producers_that_meet_give_the_same_bits_and_leave_their_counters_at_zero(
    name, before, session, built, toolkit
) -> None:
    """With meetings and without, one launch after the other on one workspace; R14's shared tiles take a long K."""
    old, new = (load(registry.kernel(each), session, built, toolkit) for each in (before, name))
    for shape in (SHAPE, Shape(1, 1, 1), Shape(700, 1030, 600), Shape(2048, 2200, 2500), Shape(1300, 1100, 6200)):
        a, b = drawn("phi = 1", 9, shape)
        wanted = multiply(old, session, a, b)
        given = fp64_operands(new.kernel, a, b)
        call = new.bind(given)
        for _ in range(50):
            call()
        session.sync()
        assert (given.output.get().reshape(wanted.shape).view(np.int64) == wanted.view(np.int64)).all(), shape
        assert not new.workspace(shape)["meeting"].get().any(), shape
