"""FP64 by Chinese remainders on a GPU: exponents and residues are the reference's, errors as stated, the same bits."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from crt_kinds import CERTIFIED, KERNELS, WINOGRAD
from gpu_tools import fp64_operands, load

from gemmrepro import registry
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operations import Shape
from gemmrepro.ozaki import exact, inputs, moduli, residues

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


def residues_of(found: dict[str, np.ndarray], kernel: registry.Kernel, side: str, rows: int) -> np.ndarray:
    """Residues [moduli, rows, K and beyond] of A or of the transpose of B."""
    count = kernel.params["moduli"]
    if f"factors_{side}" not in found:
        unsigned = kernel.accepts.at_most["k"] == 2**16
        held = found[f"residues_{side}"][: count * rows].reshape(count, rows, -1)
        return held.view(np.uint8 if unsigned else np.int8).astype(int)
    factors = found[f"factors_{side}"].view(np.uint8).astype(int)
    factors = factors.reshape(count, 7, -1, factors.shape[1])
    p = np.array(moduli.moduli(count))[:, None, None]
    if side == "a":  # x11, x12, x21 + x22 less x22, x22
        blocks = [[factors[:, 0], factors[:, 1]], [(factors[:, 4] - factors[:, 3]) % p, factors[:, 3]]]
    else:  # the transposes of y11, y21, y12 - y11 and y11, y22
        blocks = [[factors[:, 0], factors[:, 1]], [(factors[:, 4] + factors[:, 0]) % p, factors[:, 2]]]
    return np.concatenate([np.concatenate(halves, axis=2) for halves in blocks], axis=1)


@pytest.mark.parametrize("kernel", FIXED, ids=names(FIXED))
def test_residues_are_those_of_the_scaled_integers(kernel, session, built, toolkit) -> None:
    """Of A and of B, modulo each number, exactly; zeros beyond K; and integers that no radius is too small for."""
    loaded = load(kernel, session, built, toolkit)
    a, b = drawn("phi = 2", 1)
    a[7], b[:, 3] = 0.0, 0.0
    found = handed_on(loaded, session, a, b)
    count = kernel.params["moduli"]
    radius = Fraction(residues.radius(count))
    for x, side in ((a, "a"), (np.ascontiguousarray(b.T), "b")):
        exponents = found[f"exponents_{side}"]
        assert exponents.shape == (len(x),)
        held = residues_of(found, kernel, side, len(x))
        assert not held[:, :, SHAPE.k :].any()
        for i in (0, 3, 7, 129, len(x) - 1):
            whole = [round(Fraction(value) * Fraction(2) ** int(exponents[i])) for value in x[i]]
            if kernel in FAST:
                assert sum(value * value for value in whole) <= radius * radius
            for p, row in zip(moduli.moduli(count), held[:, i, : SHAPE.k], strict=True):
                assert not any((int(have) - want) % p for have, want in zip(row, whole, strict=True))


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


@pytest.mark.parametrize("kernel", FIXED, ids=names(FIXED))
def test_integers_are_exact_and_what_is_not_finite_spoils_its_row_and_column(kernel, session, built, toolkit) -> None:
    loaded = load(kernel, session, built, toolkit)
    rng = np.random.default_rng(6)
    a, b = rng.integers(-8, 9, (131, 77)).astype(float), rng.integers(-8, 9, (77, 46)).astype(float)
    a[3], b[:, 5] = 0.0, -0.0
    a[7], b[:, 2] = np.ldexp(a[7], -1040), np.ldexp(b[:, 2], 1000)
    assert (multiply(loaded, session, a, b) == a @ b).all()
    wrong_a, wrong_b = a.copy(), b.copy()
    wrong_a[11, 76], wrong_b[0, 45] = np.inf, np.nan
    c = multiply(loaded, session, wrong_a, wrong_b)
    spoiled = np.zeros(c.shape, bool)
    spoiled[11], spoiled[:, 45] = True, True
    assert (np.isnan(c) == spoiled).all()
    assert (c[~spoiled] == (a @ b)[~spoiled]).all()


@pytest.mark.parametrize("law", grading.INPUTS)
@pytest.mark.parametrize("kernel", WINOGRAD, ids=names(WINOGRAD))
def test_winograds_step_passes_for_a_classical_product(kernel, law, session, built, toolkit) -> None:
    """Where the same step in floating point does not; blocks with tails, and of whole tiles."""
    loaded = load(kernel, session, built, toolkit)
    for shape in (SHAPE, Shape(256, 384, 256)):
        a, b = grading.INPUTS[law](np.random.default_rng(12), shape.m, shape.n, shape.k)
        assert grading.faults(a, b, multiply(loaded, session, a, b)) == [], shape
    assert all(grading.faults(a, b, control(a, b)) for control in grading.CONTROLS.values())


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
