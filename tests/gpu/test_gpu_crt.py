"""FP64 by Chinese remainders on a GPU: exponents and residues are the reference's, errors as stated, the same bits."""

import sys
from pathlib import Path

import numpy as np
import pytest
from crt_kinds import CERTIFIED, KERNELS, WINOGRAD
from gpu_tools import fp64_operands, load

from gemmrepro import registry
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operations import Shape
from gemmrepro.ozaki import exact, inputs

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import grading
from certified_cases import CASES

pytestmark = pytest.mark.gpu

FIXED = [kernel for kernel in KERNELS if kernel not in CERTIFIED]
FAST = [kernel for kernel in FIXED if kernel.id != "crt.accurate"]
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


def handed_on(loaded: Loaded, session, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """What the launches of a run leave in the workspace."""
    multiply(loaded, session, a, b)
    shape = Shape(a.shape[0], b.shape[1], a.shape[1])
    return {name: array.get() for name, array in loaded.workspace(shape).items()}


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


@pytest.mark.parametrize("kernel", KERNELS, ids=names(KERNELS))
def test_the_same_input_gives_the_same_bits_launched_or_as_a_graph(kernel, session, built, toolkit) -> None:
    loaded = load(kernel, session, built, toolkit)
    given = fp64_operands(kernel, *drawn("phi = 1", 5, Shape(700, 1030, 600)))
    call = loaded.bind(given)
    call()
    first = given.output.get()
    given.output.fill(np.nan)
    loaded.session.stream.begin_capture()
    call()
    graph = loaded.session.stream.end_capture()
    for _ in range(3):
        given.output.fill(np.nan)
        graph.launch(session.stream)
        session.sync()
        assert (given.output.get() == first).all()


@pytest.mark.parametrize("law", grading.INPUTS)
@pytest.mark.parametrize("kernel", WINOGRAD, ids=names(WINOGRAD))
def test_winograds_step_passes_for_a_classical_product(kernel, law, session, built, toolkit) -> None:
    """Where the same step in floating point does not; blocks with tails, and of whole tiles."""
    loaded = load(kernel, session, built, toolkit)
    for shape in (SHAPE, Shape(256, 384, 256)):
        a, b = grading.INPUTS[law](np.random.default_rng(12), shape.m, shape.n, shape.k)
        assert grading.faults(a, b, multiply(loaded, session, a, b)) == [], shape
    assert grading.faults(a, b, grading.strassen(a, b))


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


@pytest.mark.parametrize("kernel", CERTIFIED[1:], ids=names(CERTIFIED[1:]))
@pytest.mark.parametrize("name", CASES)
def test_later_rungs_decide_and_compute_the_bits_of_r10(name, kernel, session, built, toolkit) -> None:
    """Tiles by residues and in double, ragged, several a block."""
    shape = Shape(1000, 2500, 700)
    a, b = CASES[name][0](np.random.default_rng(8), shape.m, shape.n, shape.k)
    loaded = [load(each, session, built, toolkit) for each in (CERTIFIED[0], kernel)]
    old, new = (handed_on(each, session, a, b) for each in loaded)
    for part in ("plan", "kinds", "inner", "gauges_a", "gauges_b"):
        assert np.array_equal(old[part], new[part], equal_nan=True), part
    first, second = (multiply(each, session, a, b) for each in loaded)
    assert (first.view(np.int64) == second.view(np.int64)).all()
