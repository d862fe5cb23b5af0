"""Slices, how long their sums stay exact, moduli and exponents, the double-double product and the measures."""

import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import SLACK, UNIT, any_floats, exact_product, fractions, operand_pairs

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, bounds, exact, exactness, inputs, moduli, pairs, residues
from gemmrepro.ozaki.accumulate import peak, set_aside
from gemmrepro.ozaki.splitting import Split, split

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
        total = total + fractions(part.digits) * np.vectorize(lambda e: Fraction(2) ** int(e), [object])(part.exponent)
    assert (total == fractions(x)).all()


def split_both(a: np.ndarray, b: np.ndarray, rho: int, vector: bool = True, **how: int) -> tuple[Split, Split]:
    return split(a, rho, "row" if vector else "matrix", **how), split(b, rho, "column" if vector else "matrix", **how)


def test_the_smallest_d_keeps_its_promise() -> None:
    a, b = inputs.normal(np.random.default_rng(12), 24, 24, 256)
    size = exact_product(np.abs(a), np.abs(b)).nearest()
    allowed = 2 * math.sqrt(256) * UNIT * size
    parts = split_both(a, b, 49)  # until nothing is left, so that d alone decides
    d = bounds.smallest_d(*parts, size, "worst")
    assert bounds.smallest_d(*parts, size, "random") <= d < bounds.smallest_d(*parts, np.zeros_like(size), "worst")
    kept, fewer = (
        sum(np.abs(parts[0].slices[p].value()) @ np.abs(parts[1].slices[q].value()) for p, q in gone)
        for gone in (pairs.dropped(*map(len, parts), d), pairs.dropped(*map(len, parts), d - 1))
    )
    assert (kept <= SLACK * allowed).all() and (fewer > allowed).any()


def test_rows_and_columns_that_are_not_finite_are_set_aside() -> None:
    a, b = inputs.normal(np.random.default_rng(14), 6, 5, 13)
    a[1, 3], a[4, 0], b[2, 4] = np.inf, np.nan, -np.inf
    clean_a, clean_b, rows, columns = set_aside(a, b)
    assert np.flatnonzero(rows).tolist() == [1, 4] and np.flatnonzero(columns).tolist() == [4]
    assert not clean_a[[1, 4]].any() and not clean_b[:, 4].any()
    assert (clean_a[[0, 2, 3, 5]] == a[[0, 2, 3, 5]]).all() and (clean_b[:, :4] == b[:, :4]).all()


def test_moduli() -> None:
    assert moduli.moduli(15) == (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197)
    chosen = moduli.moduli(moduli.MOST)
    assert math.lcm(*chosen) == math.prod(chosen) == moduli.product(24) and max(chosen) == 256
    # Greedy: nothing between two neighbours is coprime to all before.
    for index, (high, low) in enumerate(itertools.pairwise(chosen)):
        assert all(any(math.gcd(p, q) > 1 for q in chosen[: index + 1]) for p in range(low + 1, high))


@settings(deadline=None, max_examples=60)
@given(operand_pairs(40), st.sampled_from([8, 1 << 10, 1 << 28]))
def test_the_double_double_product(operands, block_bytes: int) -> None:
    """K at once, in blocks, or one after the other."""
    a, b = operands
    with mock.patch.object(exact, "BLOCK_BYTES", block_bytes):
        hi, lo = exact.product_double_double(a, b)
    reference, scale = exact_product(a, b), exact_product(np.abs(a), np.abs(b))
    for index in np.ndindex(hi.shape):
        value = Fraction(float(hi[index])) + Fraction(float(lo[index]))
        limit = scale.fraction(*index) * (a.shape[1] + 1) * Fraction(2) ** -103
        assert abs(value - reference.fraction(*index)) <= limit
    c = hi * (1 + 2.0**-40)
    assert np.allclose(exact.minus_double_double(c, hi, lo), reference.minus(c), rtol=1e-10, atol=0)


def test_measures() -> None:
    c = np.array([[1.0 + 2.0**-50, 4.0], [0.0, -2.0]])
    reference = np.array([[1.0, 4.0], [0.0, -2.0]])
    difference, size = np.abs(c - reference), np.array([[4.0, 4.0], [0.0, 2.0]])
    assert exact.scaled(difference, size) == 2.0
    assert exact.relative(difference, reference) == 2.0**-50
    assert exact.frobenius(difference, reference) * 2.0**50 == pytest.approx(1 / math.sqrt(21))
    assert exact.articles(c, reference) * 2.0**50 == pytest.approx(1 / math.sqrt(21))
    assert exact.articles(c, reference, "max") == 2.0**-52
    assert exact.scaled(np.array([[5e-324, 0.0]]), np.zeros((1, 2))) == math.inf and exact.scaled(c - c, c - c) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nothing_that_is_not_finite_passes(bad: float) -> None:
    reference = np.ones((2, 2))
    c = np.array([[1.0, 1.0], [bad, 1.0]])
    difference = exact.minus_double_double(c, reference, np.zeros((2, 2)))
    assert exact.scaled(difference, reference) == exact.frobenius(difference, reference) == math.inf
    assert exact.relative(np.abs(c - reference), reference) == math.inf
    assert exact.articles(c, reference) == exact.articles(c, reference, "max") == math.inf


def test_inputs_are_what_they_say() -> None:
    rng = np.random.default_rng(2)
    a, b = inputs.complementary(rng, 5, 5, 40)
    ratio = (np.abs(a) @ np.abs(b)).max() / (np.linalg.norm(a, axis=1).min() * np.linalg.norm(b, axis=0).min())
    assert ratio < 2.0**-60
    a, b = inputs.graded(40)(np.random.default_rng(3), 4, 4, 30)
    plain = inputs.normal(np.random.default_rng(3), 4, 4, 30)
    assert (exact_product(a, b).nearest() == exact_product(*plain).nearest()).all()
    a, b = inputs.cancelling(np.random.default_rng(4), 4, 4, 30)
    assert (np.abs(exact_product(a, b).nearest()) < 2.0**-30 * (np.abs(a) @ np.abs(b))).all()
    a, _ = inputs.spread(4.0)(np.random.default_rng(5), 20, 4, 30)
    assert np.ptp(np.log2(np.abs(a))) > 25


@pytest.mark.parametrize("name", inputs.INPUTS)
def test_exponents_by_products_fill_the_moduli_and_stay_below_half(name: str) -> None:
    """Of hard inputs: the integer product is below M / 2; of like elements it is above M / 16."""
    a, b = inputs.INPUTS[name](np.random.default_rng(31), 7, 6, 59)
    for rounding in (np.trunc, np.rint):
        for count in (8, 15):
            s, t = residues.exponents_by_products(a, b, count, "truncate" if rounding is np.trunc else "nearest")
            whole = (rounding(np.ldexp(a, s)).astype(object), rounding(np.ldexp(b, t)).astype(object))
            one, other = (np.array([int(value) for value in x.flat], object).reshape(x.shape) for x in whole)
            assert 2 * max((abs(one) @ abs(other)).flat) < moduli.product(count)
    s, t = residues.exponents_by_products(np.ones((1, 64)), np.ones((64, 1)), 15)
    assert moduli.product(15) / 16 <= 64 * 2 ** int(s[0, 0] + t[0, 0]) < moduli.product(15) / 2
    # Rows that fill R to the last 1e-9 and are rounded up: without the margins for that, M / 2 is passed.
    row = np.full((1, 72), 82 / 124 * (1 - 1e-9))
    s, t = residues.exponents_by_products(row, row.T, 3, "nearest")
    assert 2 * 72 * np.rint(row[0, 0] * 2**9) ** 2 >= moduli.product(3)
    assert 2 * 72 * np.rint(row[0, 0] * 2.0 ** s[0, 0]) * np.rint(row[0, 0] * 2.0 ** t[0, 0]) < moduli.product(3)


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split(np.ones(3), 46), "two dimensions"),
        (lambda: split(np.array([[np.inf]]), 46), "Inf or NaN"),
        (lambda: split(ONES, 53), "rho is 53"),
        (lambda: exactness.rho(2**23, FORMATS[0]), "smaller k block"),
        (lambda: accumulate.exact(np.full((1, 3), 2.0**30), np.full((3, 1), 2.0**30)), "2\\^53"),
        (lambda: accumulate.int32(np.full((1, 3), 2.0**15), np.full((3, 1), 2.0**15)), "overflow int32"),
        (lambda: set_aside(ONES, ONES), "A has 3 columns and B has 2 rows"),
        (lambda: set_aside(ONES / [1, 1, 0], ONES.T, "raise"), "2 rows of A and 0 columns of B hold Inf"),
        (lambda: moduli.moduli(1), "choose 2 to 24"),
        (lambda: residues.exponents_by_products(ONES, ONES.T, 2), "take more moduli"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
