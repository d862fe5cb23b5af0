"""gemmrepro.dgemm on a Hopper GPU: layouts, scalars, and inputs that take residues, double, and both."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gemmrepro
from gemmrepro.blas import certified, program

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from certified_cases import CASES, U

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cp():
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.Device().compute_capability != "90":
        pytest.skip("dgemm runs on Hopper")
    if not (program.BUILT / f"{program.KERNEL}.fatbin").is_file():
        pytest.skip("crt.certified is not built")
    return cupy


@pytest.mark.parametrize("small", [0, certified.SMALL])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(3, 5, 0), (1, 1, 1), (129, 97, 33), (700, 1030, 600)])
def test_layouts_and_scalars(cp, monkeypatch, shape, turned, small) -> None:
    """C lies in longer rows and is NaN where beta is 0; A holds a NaN where alpha is."""
    monkeypatch.setattr(certified, "SMALL", small)
    (m, n, k), rng = shape, np.random.default_rng(1)
    for alpha, beta in ((0.75, -1.5), (0.0, 2.0), (0.3, 0.0), (0.0, 0.0)):
        a, b, c0 = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
        wanted, scale = alpha * (a @ b) + beta * c0, abs(alpha) * (abs(a) @ abs(b)) + abs(beta * c0)
        if alpha == 0.0:
            a[:1, :1] = np.nan
        c = cp.full((m, n + 3), np.nan)[:, :n]
        if beta:
            c[...] = cp.asarray(c0)
        on_a, on_b = (cp.asarray(x.T if turn else x) for x, turn in zip((a, b), turned, strict=True))
        got = gemmrepro.dgemm(on_a, on_b, c, alpha=alpha, beta=beta, transpose_a=turned[0], transpose_b=turned[1])
        assert (abs(got.get() - wanted) <= (2 * k + 4) * U * scale).all()


@pytest.mark.parametrize("name", CASES)
def test_hard_inputs_keep_the_bound(cp, name) -> None:
    """2048 x 2112 x 2048, sampled, against exact sums; equal bits in a second run."""
    from gemmrepro.ozaki import exact

    m, n, k = 2048, 2112, 2048
    a, b = CASES[name][0](np.random.default_rng(3), m, n, k)
    on_a, on_b = cp.asarray(a), cp.asarray(b)
    c, how = gemmrepro.dgemm(on_a, on_b, details=True)
    again = gemmrepro.dgemm(on_a, on_b)
    assert (c.view(np.int64) == again.view(np.int64)).all()
    rows, columns = np.r_[:2, m // 2 + 3], np.r_[:4, 7, n - 1]
    part_a, part_b = a[rows], b[:, columns]
    error = exact.product(part_a, part_b).minus(c.get()[np.ix_(rows, columns)])
    allowed = (max(how.gamma, k * U) + U) * exact.product(abs(part_a), abs(part_b)).nearest()
    assert (error <= allowed + k * 2.0**-1074).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["A", "B"])
def test_a_prepared_factor_gives_the_same_bits(cp, name, turned) -> None:
    """Elements of like size, so that inner exponents are zero either way; then another number of moduli, and Inf."""
    m, n, k, rng = 2048, 2112, 2176, np.random.default_rng(9)
    a, b = cp.asarray(rng.standard_normal((m, k))), cp.asarray(rng.standard_normal((k, n)))
    shared, other = (a, b) if name == "A" else (b, a)
    prepared = gemmrepro.prepare(cp.asfortranarray(shared) if turned else shared, name=name)
    spread = other * cp.asarray(np.exp(rng.standard_normal(other.shape)))
    spoiled = other.copy()
    spoiled[5, 7] = np.inf
    for one, accuracy in ((other, "sqrt"), (other, "worst"), (spread, "sqrt"), (spoiled, "sqrt"), (other, "sqrt")):
        pair, held = ((shared, one), (prepared, one)) if name == "A" else ((one, shared), (one, prepared))
        wanted, how = gemmrepro.dgemm(*pair, accuracy=accuracy, details=True)
        got, same = gemmrepro.dgemm(*held, accuracy=accuracy, details=True)
        assert how == same and cp.array_equal(got, wanted, equal_nan=True)
    assert len(prepared.stretches[0].residues) > 1


@pytest.mark.parametrize("case", CASES)
def test_a_prepared_factor_keeps_the_bound(cp, case) -> None:
    from gemmrepro.ozaki import exact

    m, n, k = 2048, 2112, 2048
    a, b = CASES[case][0](np.random.default_rng(3), m, n, k)
    c, how = gemmrepro.dgemm(cp.asarray(a), gemmrepro.prepare(cp.asarray(b)), details=True)
    rows, columns = np.r_[:2, m // 2 + 3], np.r_[:4, 7, n - 1]
    part_a, part_b = a[rows], b[:, columns]
    error = exact.product(part_a, part_b).minus(c.get()[np.ix_(rows, columns)])
    allowed = (max(how.gamma, k * U) + U) * exact.product(abs(part_a), abs(part_b)).nearest()
    assert (error <= allowed + k * 2.0**-1074).all()


def test_the_callers_stream_stays_current(cp) -> None:
    """Set by `use`; what the caller does next waits for the product."""
    own = cp.cuda.Stream(non_blocking=True)
    before = cp.cuda.get_current_stream()
    own.use()
    try:
        a = cp.asarray(np.random.default_rng(11).standard_normal((2048, 2048)))
        held = gemmrepro.prepare(a)
        assert cp.cuda.get_current_stream() == own
        gemmrepro.dgemm(a, held)
        assert cp.cuda.get_current_stream() == own
    finally:
        before.use()


def test_products_on_other_streams_wait_for_what_is_prepared(cp) -> None:
    rng = np.random.default_rng(10)
    a, b = cp.asarray(rng.standard_normal((2048, 2048))), cp.asarray(rng.standard_normal((2048, 2112)))
    wanted = gemmrepro.dgemm(a, b)
    prepared = gemmrepro.prepare(b)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    found = []
    for stream in streams:
        with stream:
            found.append(gemmrepro.dgemm(a, prepared))
    for stream, c in zip(streams, found, strict=True):
        stream.synchronize()
        assert (c.view(np.int64) == wanted.view(np.int64)).all()


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("case", ["normal", "outlier", "phi = 2", "complementary halves"])
def test_the_next_kernels_give_the_same_bits(cp, case, turned) -> None:
    """R11 instead of R10: by residues, in double, and both."""
    binary = program.BUILT / f"{program.NEXT}.fatbin"
    if not binary.is_file():
        pytest.skip(f"{program.NEXT} is not built")
    a, b = CASES[case][0](np.random.default_rng(3), 2048, 2112, 2048)
    on_a, on_b = (cp.asarray(x.T).T if turn else cp.asarray(x) for x, turn in zip((a, b), turned, strict=True))
    wanted, how = gemmrepro.dgemm(on_a, on_b, details=True)
    got, same = gemmrepro.dgemm(on_a, on_b, details=True, binary=binary)
    assert how == same and cp.array_equal(got.view(np.int64), wanted.view(np.int64))
