"""Products from slices: against exact rational arithmetic, against the bounds, and on operands made to break them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ozaki_matrices import SLACK, UNIT, error_and_scale, pairs

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, article, bounds, exact, exactness, formats, inputs, measures, product
from gemmrepro.ozaki import pairs as pairing
from gemmrepro.ozaki.splitting import Split, split


def split_both(a: np.ndarray, b: np.ndarray, rho: int, vector: bool = True, **how: int) -> tuple[Split, Split]:
    return split(a, rho, "row" if vector else "matrix", **how), split(b, rho, "column" if vector else "matrix", **how)


def test_pair_counts() -> None:
    assert [len(pairing.select(7, 7, d)) for d in (9, 8, 7, 6, 5)] == [39, 34, 28, 21, 15]
    assert len(pairing.select(7, 7)) == len(pairing.select(7, 7, 13)) == 49
    assert len(pairing.select(14, 14, 16)) == 130
    assert len(pairing.select(10, 12)) == 120


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 20))
def test_pairs_are_kept_or_dropped(slices_a: int, slices_b: int, d: int) -> None:
    kept, gone = pairing.select(slices_a, slices_b, d), pairing.dropped(slices_a, slices_b, d)
    assert sorted(kept + gone) == pairing.select(slices_a, slices_b)
    assert all(p + q < d for p, q in kept) and all(p + q >= d for p, q in gone)
    assert sorted(pair for diagonal in pairing.diagonals(kept) for pair in diagonal) == kept


@settings(deadline=None, max_examples=40)
@given(pairs(), st.sampled_from(["fp16", "bf16", "e4m3", "e5m2"]), st.booleans(), st.sampled_from(product.ORDERS))
def test_all_pairs_of_a_full_split_err_only_in_the_outer_sum(operands, fmt: str, vector: bool, order: str) -> None:
    a, b = operands
    parts = split_both(a, b, exactness.rho(a.shape[1], formats.named(fmt)), vector)
    c = product.multiply(*parts, order=order)
    error, scale = error_and_scale(c, a, b)
    assert (error <= SLACK * bounds.rounding(*parts)).all()
    assert (scale > 0).any() or not c.any()


@settings(deadline=None, max_examples=40)
@given(pairs(8), st.integers(2, 9), st.integers(1, 7), st.integers(1, 13), st.booleans())
def test_truncation_is_bounded(operands, beta: int, count: int, d: int, vector: bool) -> None:
    a, b = operands
    parts = split_both(a, b, 53 - beta, vector, count=count)
    error, _ = error_and_scale(product.multiply(*parts, d=d), a, b)
    assert (error <= SLACK * (bounds.truncation(*parts, d) + bounds.rounding(*parts, d))).all()


@pytest.mark.parametrize("name", inputs.INPUTS)
def test_bounds_on_hard_inputs(name: str) -> None:
    a, b = inputs.INPUTS[name](np.random.default_rng(7), 9, 8, 67)
    for vector in (True, False):
        parts = split_both(a, b, exactness.rho(67, formats.named("bf16")), vector, count=7)
        for d in (5, 9, None):
            error, _ = error_and_scale(product.multiply(*parts, d=d), a, b)
            assert (error <= SLACK * (bounds.truncation(*parts, d) + bounds.rounding(*parts, d))).all()


def test_the_error_falls_by_the_predicted_slope_a_slice() -> None:
    """n = 96 with the parameters that the article's programs have at k = 16384; the ratio does not depend on k."""
    rng = np.random.default_rng(8)
    a, b = inputs.normal(rng, 96, 96, 96)
    a[0, 0] = b[0, 0] = 5.0  # the maximum that 10^8 draws would have
    reference = exact.product(a, b)
    nearest = reference.nearest()
    parameters = article.fused(16384, "bf16")
    parts = article.fused_split(a, 16384, "bf16"), article.fused_split(b, 16384, "bf16")
    errors = {
        d: measures.frobenius(reference.minus(product.multiply(*parts, d=d)), nearest) for d in (3, 4, 5, 6, 7, 8, 9)
    }
    shape = (parameters.beta, parameters.step, parameters.count)
    for d, error in errors.items():
        assert error / bounds.predicted_fro(*shape, d) == pytest.approx(1, rel=0.2)
    for d in (3, 4, 5, 6):
        assert errors[d] / errors[d + 1] == pytest.approx(bounds.predicted_slope(*shape, d), rel=0.2)
        assert bounds.predicted_slope(*shape, d) == pytest.approx(2**7 * math.sqrt((d - 1) / d), rel=0.05)


def test_a_scale_a_row_makes_the_product_ignore_powers_of_two() -> None:
    rng = np.random.default_rng(9)
    a, b = inputs.normal(rng, 7, 6, 33)
    rows, columns = rng.integers(-200, 200, (7, 1)).astype(np.int32), rng.integers(-200, 200, (1, 6)).astype(np.int32)
    scaled = np.ldexp(a, rows), np.ldexp(b, columns)
    how = {"rho": 46, "count": 6, "d": 7}
    plain = product.gemm(a, b, scale="vector", **how)
    assert (product.gemm(*scaled, scale="vector", **how) == np.ldexp(plain, rows + columns)).all()
    assert (
        product.gemm(*scaled, scale="matrix", **how)
        != np.ldexp(product.gemm(a, b, scale="matrix", **how), rows + columns)
    ).any()


def test_one_scale_a_matrix_loses_the_bits_of_small_rows() -> None:
    a, b = inputs.normal(np.random.default_rng(10), 8, 8, 40)
    a[3] = np.ldexp(a[3], -24)
    scaled = {}
    for scale in ("matrix", "vector"):
        error, size = error_and_scale(product.gemm(a, b, 46, scale, count=7), a, b)
        scaled[scale] = [measures.scaled(error[row], size[row]) for row in (2, 3)]
    assert max(scaled["vector"]) < 16
    assert scaled["matrix"][1] > 2.0**16 * scaled["vector"][1]


def test_graded_operands_need_more_slices_even_with_a_scale_a_row() -> None:
    """A D, D^-1 B: no scale a row helps, the spread lies along k; the full split is still right."""
    a, b = inputs.graded(40)(np.random.default_rng(11), 8, 8, 64)
    few = measures.scaled(*error_and_scale(product.gemm(a, b, 46, count=7, d=9), a, b))
    full = measures.scaled(*error_and_scale(product.gemm(a, b, 46), a, b))
    assert few > 1e3 and full < 64


@pytest.mark.parametrize("beta", [2, 3, 4, 8])
def test_the_smallest_d_keeps_its_promise(beta: int) -> None:
    a, b = inputs.normal(np.random.default_rng(12), 24, 24, 256)
    size = exact.product(np.abs(a), np.abs(b)).nearest()
    allowed = 2 * math.sqrt(256) * UNIT * size
    parts = split_both(a, b, 53 - beta)  # until nothing is left, so that d alone decides
    d = bounds.smallest_d(*parts, size, "worst")
    assert bounds.smallest_d(*parts, size, "random") <= d
    dropped = exact.product(a, b).minus(product.multiply(*parts, d=d, order="small first"))
    assert (dropped <= allowed + SLACK * bounds.rounding(*parts, d)).all()
    residual = bounds.truncation(*parts, d - 1) > allowed
    assert residual.any() and (bounds.truncation(*parts, d) <= SLACK * allowed).all()
    # Where nothing may be dropped: all but the last few, nearly empty slices, which happen not to meet.
    everything = bounds.smallest_d(*parts, np.zeros_like(size), "worst")
    assert not bounds.truncation(*parts, everything).any() and bounds.truncation(*parts, everything - 1).any()


def test_zeros_that_underflow_are_positive_too() -> None:
    tiny = np.full((1, 1), 2.0**-600)
    c = product.multiply(split(-tiny, 46), split(tiny, 46))
    assert c == 0 and not np.signbit(c)


def test_an_accumulator_that_rounds_and_one_that_is_emptied_in_time() -> None:
    a, b = inputs.normal(np.random.default_rng(13), 10, 9, 300)
    a, b = np.abs(a), np.abs(b)
    parts = split_both(a, b, 53 - 8, count=7)
    exactly = product.multiply(*parts)
    assert (product.multiply(*parts, inner=accumulate.low_precision, k_block=256) == exactly).all()
    # All of one sign: 300 products of 8 bit digits pass 2^24 nowhere near, those of 11 bits do.
    wide = split_both(a, b, 53 - 11, count=5)
    rounded = product.multiply(*wide, inner=accumulate.low_precision)
    assert (rounded != product.multiply(*wide)).any()
    blocks = product.multiply(*wide, inner=accumulate.low_precision, k_block=4)
    assert (blocks == product.multiply(*wide)).all()


@pytest.mark.parametrize("scale", ["matrix", "vector"])
def test_special_values(scale: str) -> None:
    a, b = inputs.normal(np.random.default_rng(14), 6, 5, 13)
    a[1, 3], a[4, 0], b[2, 4] = np.inf, np.nan, -np.inf
    clean_a, clean_b = a.copy(), b.copy()
    clean_a[[1, 4]], clean_b[:, 4] = 0.0, 0.0
    c = product.gemm(a, b, 46, scale)
    assert np.isnan(c[[1, 4]]).all() and np.isnan(c[:, 4]).all()
    kept = np.ix_([0, 2, 3, 5], [0, 1, 2, 3])
    assert (c[kept] == product.gemm(clean_a, clean_b, 46, scale)[kept]).all()
    with pytest.raises(UserError, match="2 rows of A and 1 columns of B"):
        product.gemm(a, b, 46, scale, nonfinite="raise")


@pytest.mark.parametrize("scale", ["matrix", "vector"])
def test_zeros_subnormals_and_odd_shapes(scale: str) -> None:
    rng = np.random.default_rng(15)
    a, b = inputs.normal(rng, 3, 5, 7)
    a[1], b[:, 2] = -0.0, 0.0
    c = product.gemm(a, b, 46, scale)
    assert (c[1] == 0).all() and (c[:, 2] == 0).all() and not np.signbit(c[c == 0]).any()
    assert not np.signbit(product.gemm(np.full((1, 1), -0.0), np.full((1, 1), 5.0), 46, scale)).any()
    for shape in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)):
        m, n, k = shape
        empty = product.gemm(np.ones((m, k)), np.ones((k, n)), 46, scale)
        assert empty.shape == (m, n) and (empty == k).all()
    # Subnormal inputs count in full.
    small = np.ldexp(rng.integers(-(2**20), 2**20, (4, 7)).astype(float), -1074)
    large = np.ldexp(rng.integers(-(2**20), 2**20, (7, 4)).astype(float), 1003 - 20)
    assert measures.scaled(*error_and_scale(product.gemm(small, large, 46, scale), small, large)) < 16
    # Results that are subnormal, and results that overflow.
    tiny = np.full((1, 3), 2.0**-540), np.full((3, 1), 3 * 2.0**-533)
    assert product.gemm(*tiny, 46, scale) == 9 * 2.0**-1073
    huge = np.full((1, 2), 2.0**600), np.array([[2.0**600], [2.0**600]])
    assert np.isinf(product.gemm(*huge, 46, scale)).all()
    # Pairs beyond the largest float whose sum is not.
    both = np.array([[1.5 * 2.0**511, 1.5 * 2.0**511]]), np.array([[2.0**512], [-(2.0**511)]])
    assert product.gemm(*both, 46, scale) == 0.75 * 2.0**1023


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: product.gemm(a, b.T, 46), "A has 3 columns and B has 2 rows"),
        (lambda a, b: product.gemm(a.astype("f4"), b, 46), "A holds float32"),
        (lambda a, b: product.gemm(a, b[0], 46), "B must be a matrix"),
        (lambda a, b: product.gemm(a, b, 46, "row"), "choose 'matrix' or 'vector'"),
        (lambda a, b: product.gemm(a, b, 46, nonfinite="zero"), "choose 'nan' or 'raise'"),
        (lambda a, b: product.gemm(a, b, 46, d=0), "d is 0"),
        (lambda a, b: product.gemm(a, b, 46, order="random"), "small first"),
        (lambda a, b: product.gemm(a, b, 46, k_block=0), "k_block is 0"),
        (lambda a, b: product.multiply(split(a, 46), split(b.T, 46)), "must agree"),
        (lambda a, b: bounds.truncation(split(a, 46), split(b, 46), law="mean"), "law is"),
        (lambda a, b: bounds.smallest_d(split(a, 46), split(b, 46), a @ b, "mean"), "law is"),
        (lambda a, b: pairing.select(-1, 2), "counts of 0 or more"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(np.ones((2, 3)), np.ones((3, 2)))
