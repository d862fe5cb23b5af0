"""sgemm on a Hopper GPU: layouts and scalars of every accuracy against float64, within the stated bounds."""

from __future__ import annotations

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro import registry
from gemmrepro.gates import bounds
from gemmrepro.gates.gate import Case, compare, reference_gemm
from gemmrepro.gates.gemm_cases import draw
from gemmrepro.operations import Problem, Shape
from gemmrepro_blas import single
from gemmrepro_blas.table import table

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=table()["sgemm"])
def accuracy(request, on_hopper) -> str:
    on_hopper(table()["sgemm"][request.param])
    return request.param


@pytest.fixture(autouse=True, params=["tensor cores", "cuBLAS"])
def way(request, monkeypatch) -> str:
    """By the kernel or by cuBLAS, whichever is faster: the bound is the same."""
    monkeypatch.setattr(single, "pays", lambda *_: request.param != "cuBLAS")
    return request.param


def message(accuracy: str, c, a, b, alpha: float = 1.0, beta: float = 0.0, c0=None) -> str:
    kernel, k = registry.kernel(table()["sgemm"][accuracy]), a.shape[1]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    reference, scale = reference_gemm(wide_a, wide_b, alpha, beta, c0)
    scheme = abs(alpha) * kernel.promises.error(wide_a, wide_b, np)
    limit, under = bounds.bound(Problem(), k), bounds.underflow_allowance(k, alpha)
    return compare(c, reference, scale, limit, scheme=scheme, underflow=under).message


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (129, 97, 33), (700, 1030, 601)])
def test_layouts_and_scalars(accuracy: str, shape, turned) -> None:
    """C lies in longer rows and is NaN where beta is 0; nothing beside it is written; equal bits in a second run."""
    import cupy as cp

    (m, n, k), rng = shape, np.random.default_rng(1)
    for alpha, beta in ((1.0, 0.0), (0.75, -1.5), (0.0, 2.0)):
        a, b, c0 = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
        on_a, on_b = (cp.asarray(x.T if turn else x) for x, turn in zip((a, b), turned, strict=True))
        results = []
        for _ in range(2):
            whole = cp.full((m, n + 3), cp.nan, cp.float32)
            if beta:
                whole[:, :n] = cp.asarray(c0)
            options = {"alpha": alpha, "beta": beta, "transpose_a": turned[0], "transpose_b": turned[1]}
            gemmrepro_blas.sgemm(on_a, on_b, whole[:, :n], accuracy=accuracy, **options)
            results.append(whole.get())
        assert (results[0].view(np.uint32) == results[1].view(np.uint32)).all()
        assert np.isnan(results[0][:, n:]).all()
        assert message(accuracy, results[0][:, :n], a, b, alpha, beta, c0 if beta else None) == ""


LAWS = ("uniform", "wide exponents, phi = 4", "cancellation", "subnormal A", "subnormal products")


@pytest.mark.parametrize("law", LAWS)
def test_hard_inputs_keep_the_bound(accuracy: str, law: str) -> None:
    import cupy as cp

    a, b, _ = draw(Case(Shape(520, 776, 2050), 1.0, 0.0, law, 3))
    assert message(accuracy, gemmrepro_blas.sgemm(cp.asarray(a), cp.asarray(b), accuracy=accuracy).get(), a, b) == ""


def test_the_callers_stream_stays_current(accuracy: str) -> None:
    """Set by `use`; what the caller does next waits for the product."""
    import cupy as cp

    before = cp.cuda.Stream(non_blocking=True)
    before.use()
    try:
        a = cp.asarray(np.random.default_rng(12).standard_normal((300, 200)), cp.float32)
        gemmrepro_blas.sgemm(a, a.T, accuracy=accuracy)
        assert cp.cuda.get_current_stream() == before
    finally:
        cp.cuda.Stream.null.use()


def test_tensors_of_pytorch(accuracy: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(size, device="cuda") for size in ((300, 200), (400, 200)))
    c = gemmrepro_blas.sgemm(a, b.T, accuracy=accuracy)
    assert c.dtype == torch.float32 and message(accuracy, c.cpu().numpy(), a.cpu().numpy(), b.T.cpu().numpy()) == ""
