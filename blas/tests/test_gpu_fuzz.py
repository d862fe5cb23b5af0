"""Random products on a Hopper GPU: shapes, layouts, offsets, scalars, accuracies and workspaces, in frames of NaN.

GEMMREPRO_SEED chooses others.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro_blas import UserError, certified, single
from gemmrepro_blas.table import table

pytestmark = pytest.mark.gpu

SEED = int(os.environ.get("GEMMREPRO_SEED", "1"))


def framed(cp, x: np.ndarray, rng: np.random.Generator):
    """(an array of NaN, the part of it that holds `x`, by rows or by columns)."""
    turned = bool(rng.integers(2))
    held = x.T if turned else x
    top, left, below, right = (int(each) for each in rng.integers(0, 6, 4))
    whole = cp.full((held.shape[0] + top + below, held.shape[1] + left + right), cp.nan, x.dtype)
    part = whole[top : top + held.shape[0], left : left + held.shape[1]]
    part[...] = cp.asarray(held)
    return whole, part.T if turned else part


@pytest.mark.parametrize("case", range(40))
@pytest.mark.parametrize("name", ["dgemm", "sgemm"])
def test_random_products_keep_their_bound_and_their_frames(cp, monkeypatch, name, case) -> None:
    rng = np.random.default_rng((SEED, case, name == "dgemm"))
    own = case % 4 > 0
    for module in (certified, single):
        monkeypatch.setattr(module, "pays", lambda *shape: own)
    m, n, k = (int(2 ** rng.uniform(0, top)) for top in (11, 11, 13))
    dtype = np.float64 if name == "dgemm" else np.float32
    spread = rng.choice([0.0, 1.0, 4.0])
    a, b, c0 = (
        (rng.standard_normal(size) * np.exp(spread * rng.standard_normal(size))).astype(dtype)
        for size in ((m, k), (k, n), (m, n))
    )
    alpha, beta = (float(dtype(value)) for value in rng.choice([1.0, -1.0, 0.3, 0.0, 2.5], 2))
    (_, on_a), (_, on_b), (frame, c) = (framed(cp, x, rng) for x in (a, b, c0))
    options: dict = {"alpha": alpha, "beta": beta}
    if name == "sgemm":
        options["accuracy"] = str(rng.choice([*table()["sgemm"]]))
    if rng.integers(3) == 0:
        options["workspace"] = int(rng.choice([2**28, 2**26]))
    nans = int(cp.isnan(frame).sum()) - int(np.isnan(c0).sum())
    try:
        if name == "dgemm":
            _, how = gemmrepro_blas.dgemm(on_a, on_b, c, details=True, **options)
        else:
            gemmrepro_blas.sgemm(on_a, on_b, c, **options)
    except UserError as error:
        assert "workspace" in str(error)
        return
    assert int(cp.isnan(frame).sum()) == nans
    wide = np.longdouble if name == "dgemm" else np.float64
    rows, columns = rng.integers(0, m, 12), rng.integers(0, n, 12)
    left, right, start = a[rows].astype(wide), b[:, columns].astype(wide), c0[np.ix_(rows, columns)].astype(wide)
    exact, products = alpha * (left @ right) + beta * start, abs(alpha) * (abs(left) @ abs(right))
    if name == "dgemm":
        allowed = (max(how.gamma, 1.01 * k * 2.0**-53) + 2.0**-53) * products
    else:
        norms = np.sqrt((left**2).sum(1))[:, None] * np.sqrt((right**2).sum(0))
        by_norms = {"norm": 2.0**-29, "norm, 7": 2.0**-25.1}.get(options["accuracy"])
        loose = {"tf32": 2.0**-9 + k * 2.0**-23}.get(options["accuracy"], 2.0**-16)
        allowed = abs(alpha) * 1.01 * by_norms * np.sqrt(k) * norms if by_norms else loose * products
    u = float(np.finfo(dtype).eps) / 2
    if not own:
        allowed = allowed + k * u * products
    allowed = allowed + 3 * u * (products + abs(exact) + abs(beta * start)) + 1e-300
    got = c.get()[np.ix_(rows, columns)]
    assert (abs(got - exact) <= allowed).all(), (m, n, k, options, spread)
