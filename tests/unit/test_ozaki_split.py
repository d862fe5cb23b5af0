"""Slices: what they add up to, how long their sums stay exact, and the products that they make."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import SLACK, UNIT, any_floats, error_and_scale, fractions

from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, bounds, exact, exactness, inputs, pairs
from gemmrepro.ozaki.accumulate import peak, set_aside
from gemmrepro.ozaki.splitting import Split, multiply, split

FORMATS = list(exactness.FORMATS.values())
SCALES = ("matrix", "row", "column")
LEAST = 5e-324


@settings(deadline=None, max_examples=60)
@given(any_floats(3, 3), st.sampled_from(FORMATS), st.sampled_from([1, 100, 1024, 16384]), st.sampled_from(SCALES))
@example(np.array([[0.0, -0.0], [LEAST, -LEAST]]), FORMATS[0], 1024, "row")
@example(np.array([[2.0**1023, -(2 - 2.0**-52) * 2.0**1023], [LEAST, 1.0]]), FORMATS[1], 7, "matrix")
def test_a_split_is_exact(x: np.ndarray, fmt: exactness.Format, k: int, scale: str) -> None:
    parts = split(x, exactness.rho(k, fmt), scale)
    assert not parts.residual.any()
    total = fractions(0.0 * x)
    for part in parts.slices:
        assert (part.digits == np.rint(part.digits)).all() and np.abs(part.digits).max() <= 2.0**parts.beta
        assert not np.signbit(part.digits[part.digits == 0]).any()
        assert part.exponent.shape == peak(x, scale).shape
        assert (part.stored(fmt, parts.beta) == np.ldexp(part.digits, -parts.beta)).all()
        total = total + fractions(part.digits) * np.vectorize(lambda e: Fraction(2) ** int(e), [object])(part.exponent)
    assert (total == fractions(x)).all()


def test_rounding_to_formats() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(4000) * np.exp2(rng.integers(-30, 20, 4000))
    with np.errstate(over="ignore"):
        assert (exactness.convert(x, exactness.named("fp16")) == x.astype(np.float16).astype(np.float64)).all()
    single = x.astype(np.float32)
    bf16 = widen(narrow(single, "bf16"), "bf16")
    assert (exactness.convert(single.astype(np.float64), exactness.named("bf16")) == bf16).all()
    e4m3 = exactness.convert(np.array([448.0, 464.0, 465.0, 2.0**-9, 2.0**-10, 1.0625, 1.1875, -0.0]), FORMATS[2])
    assert np.array_equal(e4m3, [448.0, 448.0, np.nan, 2.0**-9, 0.0, 1.0, 1.25, -0.0], equal_nan=True)
    e5m2 = exactness.convert(np.array([57344.0, 61440.0, 2.0**-16, -1e9]), FORMATS[3])
    assert np.array_equal(e5m2, [57344.0, np.inf, 2.0**-16, -np.inf])


@pytest.mark.parametrize("k", [1, 5, 1024, 2**20])
def test_the_width_is_the_largest_that_is_exact(k: int) -> None:
    for accumulator in (24, 31):
        beta = exactness.exact_bits(k, accumulator)
        wider = [exactness.is_exact(k, beta + more, beta + more, accumulator) for more in (0, 1)]
        assert wider == [True, False]
    assert exactness.is_exact(1, 12, 12) and not exactness.is_exact(1, 12, 13)


def test_kept_and_dropped_pairs() -> None:
    assert [len(pairs.select(7, 7, d)) for d in (9, 8, 7, 6, 5)] == [39, 34, 28, 21, 15]
    assert len(pairs.select(7, 7)) == len(pairs.select(7, 7, 13)) == 49 and len(pairs.select(14, 14, 16)) == 130
    kept, gone = pairs.select(7, 5, 6), pairs.dropped(7, 5, 6)
    assert sorted(kept + gone) == pairs.select(7, 5)
    assert all(p + q < 6 for p, q in kept) and all(p + q >= 6 for p, q in gone)


def split_both(a: np.ndarray, b: np.ndarray, rho: int, vector: bool = True, **how: int) -> tuple[Split, Split]:
    return split(a, rho, "row" if vector else "matrix", **how), split(b, rho, "column" if vector else "matrix", **how)


def product(a: np.ndarray, b: np.ndarray, vector: bool = True, d: int | None = None, **how: int) -> np.ndarray:
    return multiply(*split_both(a, b, 46, vector, **how), d=d)


def limit(one: Split, other: Split, d: int | None = None) -> np.ndarray:
    """What the rounding of the outer sum, dropped pairs and residuals may add to each element."""
    kept = pairs.select(len(one), len(other), d)
    parts = [[np.abs(part.value()) for part in each.slices] + [np.abs(each.residual)] for each in (one, other)]
    total = np.zeros((one.residual.shape[0], other.residual.shape[1]))
    for p, left in enumerate(parts[0]):
        for q, right in enumerate(parts[1]):
            total += (len(kept) * UNIT if (p, q) in kept else 1.0) * (left @ right)
    return SLACK * total


@pytest.mark.parametrize("name", inputs.INPUTS)
def test_products_of_hard_inputs_stay_within_what_was_left_out(name: str) -> None:
    a, b = inputs.INPUTS[name](np.random.default_rng(7), 9, 8, 67)
    for vector in (True, False):
        parts = split_both(a, b, exactness.rho(67, exactness.named("bf16")), vector, count=7)
        for d in (5, 9, None):
            error, _ = error_and_scale(multiply(*parts, d=d), a, b)
            assert (error <= limit(*parts, d)).all()


def test_a_scale_a_row_ignores_powers_of_two_and_one_a_matrix_does_not() -> None:
    rng = np.random.default_rng(9)
    a, b = inputs.normal(rng, 7, 6, 33)
    rows, columns = rng.integers(-200, 200, (7, 1)).astype(np.int32), rng.integers(-200, 200, (1, 6)).astype(np.int32)
    scaled = np.ldexp(a, rows), np.ldexp(b, columns)
    for vector in (True, False):
        plain = np.ldexp(product(a, b, vector, d=7, count=6), rows + columns)
        assert (product(*scaled, vector, d=7, count=6) == plain).all() == vector
    # Small rows lose as many bits.
    a[3] = np.ldexp(a[3], -24)
    by_row, by_matrix = (
        exact.scaled(*(x[3] for x in error_and_scale(product(a, b, v, count=7), a, b))) for v in (1, 0)
    )
    assert by_row < 16 and by_matrix > 2.0**16 * by_row


def test_the_smallest_d_keeps_its_promise() -> None:
    a, b = inputs.normal(np.random.default_rng(12), 24, 24, 256)
    size = exact.product(np.abs(a), np.abs(b)).nearest()
    allowed = 2 * math.sqrt(256) * UNIT * size
    parts = split_both(a, b, 49)  # until nothing is left, so that d alone decides
    d = bounds.smallest_d(*parts, size, "worst")
    assert bounds.smallest_d(*parts, size, "random") <= d < bounds.smallest_d(*parts, np.zeros_like(size), "worst")
    kept, fewer = (
        sum(np.abs(parts[0].slices[p].value()) @ np.abs(parts[1].slices[q].value()) for p, q in gone)
        for gone in (pairs.dropped(*map(len, parts), d), pairs.dropped(*map(len, parts), d - 1))
    )
    assert (kept <= SLACK * allowed).all() and (fewer > allowed).any()


@pytest.mark.parametrize("vector", [False, True])
def test_zeros_subnormals_and_odd_shapes(vector: bool) -> None:
    rng = np.random.default_rng(15)
    a, b = inputs.normal(rng, 3, 5, 7)
    a[1], b[:, 2] = -0.0, 0.0
    c = product(a, b, vector)
    assert (c[1] == 0).all() and (c[:, 2] == 0).all() and not np.signbit(c[c == 0]).any()
    underflowed = product(np.full((1, 1), -(2.0**-600)), np.full((1, 1), 2.0**-600), vector)
    assert underflowed == 0 and not np.signbit(underflowed)
    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)):
        assert (product(np.ones((m, k)), np.ones((k, n)), vector) == np.full((m, n), float(k))).all()
    # Subnormal inputs count in full.
    small = np.ldexp(rng.integers(-(2**20), 2**20, (4, 7)).astype(float), -1074)
    large = np.ldexp(rng.integers(-(2**20), 2**20, (7, 4)).astype(float), 1003 - 20)
    assert exact.scaled(*error_and_scale(product(small, large, vector), small, large)) < 16
    # Results that are subnormal, results that overflow, and pairs beyond the largest float whose sum is not.
    assert product(np.full((1, 3), 2.0**-540), np.full((3, 1), 3 * 2.0**-533), vector) == 9 * 2.0**-1073
    assert np.isinf(product(np.full((1, 2), 2.0**600), np.full((2, 1), 2.0**600), vector)).all()
    both = np.full((1, 2), 1.5 * 2.0**511), np.array([[2.0**512], [-(2.0**511)]])
    assert product(*both, vector) == 0.75 * 2.0**1023


def test_rows_and_columns_that_are_not_finite_are_set_aside() -> None:
    a, b = inputs.normal(np.random.default_rng(14), 6, 5, 13)
    a[1, 3], a[4, 0], b[2, 4] = np.inf, np.nan, -np.inf
    clean_a, clean_b, rows, columns = set_aside(a, b)
    assert np.flatnonzero(rows).tolist() == [1, 4] and np.flatnonzero(columns).tolist() == [4]
    assert not clean_a[[1, 4]].any() and not clean_b[:, 4].any()
    assert (clean_a[[0, 2, 3, 5]] == a[[0, 2, 3, 5]]).all() and (clean_b[:, :4] == b[:, :4]).all()


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split(np.ones(3), 46), "two dimensions"),
        (lambda: split(np.array([[np.inf]]), 46), "Inf or NaN"),
        (lambda: split(ONES, 53), "rho is 53"),
        (lambda: split(ONES, 46, "rows"), "choose 'matrix'"),
        (lambda: split(ONES, 46, step=4), "count of slices"),
        (lambda: exactness.exact_bits(0), "at least 1"),
        (lambda: exactness.rho(2**23, FORMATS[0]), "smaller k block"),
        (lambda: accumulate.exact(np.full((1, 3), 2.0**30), np.full((3, 1), 2.0**30)), "2\\^53"),
        (lambda: accumulate.int32(np.full((1, 3), 2.0**15), np.full((3, 1), 2.0**15)), "overflow int32"),
        (lambda: set_aside(ONES, ONES), "A has 3 columns and B has 2 rows"),
        (lambda: set_aside(ONES / [1, 1, 0], ONES.T, "raise"), "2 rows of A and 0 columns of B hold Inf"),
        (lambda: product(ONES, ONES.T, d=0), "d is 0"),
        (lambda: bounds.smallest_d(split(ONES, 46), split(ONES.T, 46), ONES @ ONES.T, "mean"), "law is"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
