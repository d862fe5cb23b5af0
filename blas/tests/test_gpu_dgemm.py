"""gemmrepro_blas.dgemm on a Hopper GPU: layouts, scalars, and inputs that take residues, double, and both."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro_blas import certified

sys.path.append(str(Path(__file__).parents[2] / "tests/unit"))

from certified_cases import CASES, U
from ozaki_matrices import exact_product

pytestmark = pytest.mark.gpu

HARD = 2048, 2112, 2048
"""m, n and k of the hard inputs: large enough for residues to pay."""


def exceeding(a: np.ndarray, b: np.ndarray, c: np.ndarray, relative: float) -> int:
    """Elements of C[m,n] that err by more than `relative` |A||B| and what underflow may take; against exact sums."""
    error = exact_product(a, b).minus(c)
    allowed = relative * exact_product(abs(a), abs(b)).nearest()
    return int((error > allowed + a.shape[1] * 2.0**-1074).sum())


def sampled(a: np.ndarray, b: np.ndarray, c) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three rows of A, six columns of B, and C, an array of CuPy, where they meet."""
    rows, columns = np.r_[:2, len(a) // 2 + 3], np.r_[:4, 7, b.shape[1] - 1]
    return a[rows], b[:, columns], c.get()[np.ix_(rows, columns)]


@pytest.fixture(autouse=True)
def residues(monkeypatch) -> None:
    """Residues wherever the device takes them, also where cuBLAS would be faster."""
    monkeypatch.setattr(certified, "pays", lambda *shape: True)


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(3, 5, 0), (1, 1, 1), (129, 97, 33), (700, 1030, 600), (700, 1030, 6200)])
def test_layouts_and_scalars(cp, monkeypatch, shape, turned, pays) -> None:
    """C lies in longer rows and is NaN where beta is 0; A holds a NaN where alpha is."""
    monkeypatch.setattr(certified, "pays", lambda *shape: pays)
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
        got = gemmrepro_blas.dgemm(on_a, on_b, c, alpha=alpha, beta=beta, transpose_a=turned[0], transpose_b=turned[1])
        assert (abs(got.get() - wanted) <= (2 * k + 4) * U * scale).all()


@pytest.mark.parametrize("name", CASES)
def test_hard_inputs_keep_the_bound(cp, name) -> None:
    """Sampled; equal bits in a second run."""
    m, n, k = HARD
    a, b = CASES[name][0](np.random.default_rng(3), m, n, k)
    on_a, on_b = cp.asarray(a), cp.asarray(b)
    c, how = gemmrepro_blas.dgemm(on_a, on_b, details=True)
    again = gemmrepro_blas.dgemm(on_a, on_b)
    assert (c.view(np.int64) == again.view(np.int64)).all()
    assert exceeding(*sampled(a, b, c), max(how.gamma, k * U) + U) == 0


def test_a_k_above_65536_is_cut(cp) -> None:
    """Two products by residues, the second added to the first; beta counts once; a prepared factor gives the same."""
    m, n, k = 1536, 1600, 65536 + 8192
    rng = cp.random.RandomState(13)
    a, b, c0 = (rng.standard_normal(shape) for shape in ((m, k), (k, n), (m, n)))
    results = []
    shared = gemmrepro_blas.prepare(b)
    assert len(shared.stretches) == 2
    for factor in (b, shared):
        c, how = gemmrepro_blas.dgemm(a, factor, c0.copy(), beta=-0.5, details=True)
        assert how.moduli == 14 and how.native_tiles == 0
        results.append(c)
    assert (results[0].view(np.int64) == results[1].view(np.int64)).all()
    rows, columns = [0, m // 2, m - 1], [0, 5, n - 1]
    # beta C as the product of three more columns of A, an identity, and rows of B.
    left = np.hstack([a[rows].get(), np.eye(3)])
    right = np.vstack([b[:, columns].get(), -0.5 * c0[rows][:, columns].get()])
    assert exceeding(left, right, results[0][rows][:, columns].get(), how.gamma + 6 * U) == 0


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("case", ["normal", "phi = 4"])
def test_leading_dimensions_beyond_the_widths(cp, case, turned) -> None:
    """A, B and C inside wider arrays of NaN, at odd elements: by residues the bits of contiguous ones; the bound."""
    m, n, k = HARD
    a, b = CASES[case][0](np.random.default_rng(3), m, n, k)

    def inside(x: np.ndarray, turn: bool, pad: int):
        held = x.T if turn else x
        wide = cp.full((held.shape[0] + 2, held.shape[1] + pad), np.nan)
        part = wide[1:-1, 3 : 3 + held.shape[1]]
        part[...] = cp.asarray(held)
        return part.T if turn else part

    on_a, on_b = inside(a, turned[0], 5), inside(b, turned[1], 8)
    frame = cp.full((m, n + 7), np.nan)
    c, how = gemmrepro_blas.dgemm(on_a, on_b, frame[:, 3 : 3 + n], details=True)
    assert cp.isnan(frame[:, :3]).all() and cp.isnan(frame[:, 3 + n :]).all()
    assert exceeding(*sampled(a, b, c), max(how.gamma, k * U) + U) == 0
    plain, same = gemmrepro_blas.dgemm(cp.asarray(a), cp.asarray(b), details=True)
    assert how == same
    if case == "normal":
        assert how.moduli and (c.view(np.int64) == plain.view(np.int64)).all()


@pytest.mark.parametrize("case", ["normal", "phi = 4"])
def test_tensors_of_pytorch(cp, case) -> None:
    """C is a tensor on its GPU; views that are transposed, a prepared factor and a C of the caller's give the same."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    m, n, k = HARD
    a, b = CASES[case][0](np.random.default_rng(3), m, n, k)
    on_a, on_b = torch.from_numpy(a).cuda(), torch.from_numpy(np.ascontiguousarray(b.T)).cuda().T
    c, how = gemmrepro_blas.dgemm(on_a, on_b, details=True)
    assert isinstance(c, torch.Tensor) and c.dtype == torch.float64 and c.device == on_a.device
    assert exceeding(*sampled(a, b, cp.from_dlpack(c)), max(how.gamma, k * U) + U) == 0
    for right in (on_b, gemmrepro_blas.prepare(on_b)):
        into = torch.full((m, n), torch.nan, dtype=torch.float64, device="cuda")
        assert gemmrepro_blas.dgemm(on_a, right, into) is into and torch.equal(into, c)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["A", "B"])
def test_a_prepared_factor_gives_the_same_bits(cp, name, turned) -> None:
    """Elements of like size, so that inner exponents are zero either way; then another number of moduli, and Inf."""
    m, n, k, rng = 2048, 2112, 2176, np.random.default_rng(9)
    a, b = cp.asarray(rng.standard_normal((m, k))), cp.asarray(rng.standard_normal((k, n)))
    shared, other = (a, b) if name == "A" else (b, a)
    prepared = gemmrepro_blas.prepare(cp.asfortranarray(shared) if turned else shared, name=name)
    spread = other * cp.asarray(np.exp(rng.standard_normal(other.shape)))
    spoiled = other.copy()
    spoiled[5, 7] = np.inf
    for one, accuracy in ((other, "sqrt"), (other, "worst"), (spread, "sqrt"), (spoiled, "sqrt"), (other, "sqrt")):
        pair, held = ((shared, one), (prepared, one)) if name == "A" else ((one, shared), (one, prepared))
        wanted, how = gemmrepro_blas.dgemm(*pair, accuracy=accuracy, details=True)
        got, same = gemmrepro_blas.dgemm(*held, accuracy=accuracy, details=True)
        assert how == same and cp.array_equal(got, wanted, equal_nan=True)
    assert len(prepared.stretches[0].residues) > 1


@pytest.mark.parametrize("case", CASES)
def test_a_prepared_factor_keeps_the_bound(cp, case) -> None:
    m, n, k = HARD
    a, b = CASES[case][0](np.random.default_rng(3), m, n, k)
    c, how = gemmrepro_blas.dgemm(cp.asarray(a), gemmrepro_blas.prepare(cp.asarray(b)), details=True)
    assert exceeding(*sampled(a, b, c), max(how.gamma, k * U) + U) == 0


def test_the_callers_stream_stays_current(cp) -> None:
    """Set by `use`; what the caller does next waits for the product."""
    own = cp.cuda.Stream(non_blocking=True)
    before = cp.cuda.get_current_stream()
    own.use()
    try:
        a = cp.asarray(np.random.default_rng(11).standard_normal((2048, 2048)))
        held = gemmrepro_blas.prepare(a)
        assert cp.cuda.get_current_stream() == own
        gemmrepro_blas.dgemm(a, held)
        assert cp.cuda.get_current_stream() == own
    finally:
        before.use()


def test_products_on_other_streams_wait_for_what_is_prepared(cp) -> None:
    rng = np.random.default_rng(10)
    a, b = cp.asarray(rng.standard_normal((2048, 2048))), cp.asarray(rng.standard_normal((2048, 2112)))
    wanted = gemmrepro_blas.dgemm(a, b)
    prepared = gemmrepro_blas.prepare(b)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    found = []
    for stream in streams:
        with stream:
            found.append(gemmrepro_blas.dgemm(a, prepared))
    for stream, c in zip(streams, found, strict=True):
        stream.synchronize()
        assert (c.view(np.int64) == wanted.view(np.int64)).all()
