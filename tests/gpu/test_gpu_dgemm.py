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
