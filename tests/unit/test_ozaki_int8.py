"""INT8 slices: exact int32 sums, seven bits a slice, groups that fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import SLACK, any_floats, error_and_scale, fractions, pairs

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, bounds, exact, inputs, int8, measures
from gemmrepro.ozaki.arrays import peak
from gemmrepro.ozaki.splitting import Slice, Split

ROUNDINGS = ("nearest", "truncate")
LARGEST = np.finfo(np.float64).max


@settings(deadline=None, max_examples=60)
@given(any_floats(3, 3), st.integers(1, 12), st.sampled_from(ROUNDINGS))
@example(np.array([[LARGEST, -LARGEST, 5e-324]]), 9, "nearest")
@example(np.array([[1 - 2.0**-53, 0.5, -0.0]]), 8, "truncate")
def test_a_split_is_exact_and_fits_int8(x: np.ndarray, count: int, rounding: str) -> None:
    parts = int8.split(x, count, "row", rounding)
    total = fractions(parts.residual)
    for p, part in enumerate(parts.slices):
        assert (np.abs(part.digits) <= int8.LARGEST[rounding]).all()
        assert (part.digits.astype(np.int8) == part.digits).all()
        assert (part.exponent == parts.slices[0].exponent - 7 * p).all()
        total = total + fractions(part.digits) * np.vectorize(two_to, otypes=[object])(part.exponent)
    assert (total == fractions(x)).all()
    above = np.frexp(peak(x, "row"))[1]
    assert (np.abs(parts.residual) <= np.ldexp(np.ones(above.shape), above - 7 * count)).all()


def two_to(exponent: int) -> object:
    from fractions import Fraction

    return Fraction(2) ** int(exponent)


def test_how_many_products_one_accumulator_takes() -> None:
    assert int8.group_limit(16384, 127) == 8 and int8.group_limit(16384, 64) == 31
    assert (
        int8.group_limit(2**17, 127) == 1
        and int8.group_limit(133_144, 127) == 1
        and int8.group_limit(133_145, 127) == 0
    )
    assert int8.group_limit(2**19 - 1, 64) == 1 and int8.group_limit(2**19, 64) == 0


@pytest.mark.parametrize("k", [2**17, 140_000])
def test_the_longest_sums_of_the_largest_digits(k: int) -> None:
    digits = np.full((1, k), 127.0)
    zero = np.zeros((1, 1), np.int32)
    one = Split((Slice(digits, zero),), np.zeros_like(digits), 7)
    other = Split((Slice(digits.T, zero),), np.zeros_like(digits.T), 7)
    assert int8.multiply(one, other) == k * 127.0**2
    if k == 2**17:
        assert accumulate.int32(digits, digits.T) == k * 127**2 < 2**31
    else:
        with pytest.raises(UserError, match="overflow int32"):
            accumulate.int32(digits, digits.T)


@settings(deadline=None, max_examples=40)
@given(pairs(12), st.integers(1, 9), st.sampled_from(ROUNDINGS), st.booleans(), st.booleans())
def test_the_error_is_bounded(operands, count: int, rounding: str, grouped: bool, all_pairs: bool) -> None:
    a, b = operands
    parts = int8.split(a, count, "row", rounding), int8.split(b, count, "column", rounding)
    d = 2 * count - 1 if all_pairs else count
    error, _ = error_and_scale(int8.multiply(*parts, d=2 * count if all_pairs else None, grouped=grouped), a, b)
    assert (error <= SLACK * (bounds.truncation(*parts, d) + bounds.rounding(*parts, d))).all()


@pytest.mark.parametrize("name", inputs.INPUTS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_hard_inputs(name: str, rounding: str) -> None:
    a, b = inputs.INPUTS[name](np.random.default_rng(21), 9, 7, 61)
    for count in (3, 8):
        parts = int8.split(a, count, "row", rounding), int8.split(b, count, "column", rounding)
        for c in (int8.multiply(*parts), int8.gemm(a, b, count, rounding=rounding, grouped=False)):
            error, _ = error_and_scale(c, a, b)
            assert (error <= SLACK * (bounds.truncation(*parts, count) + bounds.rounding(*parts, count))).all()


def test_integers_come_out_exactly() -> None:
    rng = np.random.default_rng(22)
    a, b = (rng.integers(-(2**20), 2**20, shape).astype(np.float64) for shape in ((5, 77), (77, 6)))
    for rounding in ROUNDINGS:
        for grouped in (True, False):
            c = int8.gemm(a, b, 4, d=7, rounding=rounding, grouped=grouped)
            assert (c == exact.product(a, b).nearest()).all()


def test_seven_bits_a_slice() -> None:
    a, b = inputs.normal(np.random.default_rng(23), 40, 40, 64)
    reference = exact.product(a, b)
    errors = [measures.frobenius(reference.minus(int8.gemm(a, b, count)), reference.nearest()) for count in range(2, 8)]
    for worse, better in itertools.pairwise(errors):
        assert worse / better == pytest.approx(128, rel=0.35)
    assert measures.scaled(*error_and_scale(int8.gemm(a, b, 8), a, b)) < 8


def test_groups_change_roundings_only_and_save_them() -> None:
    a, b = inputs.normal(np.random.default_rng(24), 20, 20, 128)
    reference = exact.product(a, b)
    grouped, single = (reference.minus(int8.gemm(a, b, 9, grouped=how)) for how in (True, False))
    assert np.sum(grouped) <= np.sum(single)


def test_powers_of_two_and_special_values() -> None:
    rng = np.random.default_rng(25)
    a, b = inputs.normal(rng, 6, 5, 19)
    plain = int8.gemm(a, b, 8)
    rows, columns = rng.integers(-300, 300, (6, 1)).astype(np.int32), rng.integers(-300, 300, (1, 5)).astype(np.int32)
    assert (int8.gemm(np.ldexp(a, rows), np.ldexp(b, columns), 8) == np.ldexp(plain, rows + columns)).all()
    a[2, 0], b[:, 1] = np.nan, -0.0
    c = int8.gemm(a, b, 8)
    others = [0, 1, 3, 4, 5]
    assert np.isnan(c[2]).all() and (c[others, 1] == 0).all() and not np.signbit(c[others, 1]).any()
    assert (np.delete(c[others], 1, axis=1) == np.delete(plain[others], 1, axis=1)).all()
    with pytest.raises(UserError, match="1 rows of A"):
        int8.gemm(a, b, 8, nonfinite="raise")
    for m, n, k in ((0, 2, 3), (2, 0, 3), (2, 3, 0)):
        assert (int8.gemm(np.ones((m, k)), np.ones((k, n)), 3) == np.zeros((m, n))).all()
    tiny = np.full((1, 1), 3 * 2.0**-1074)
    assert int8.gemm(tiny, np.full((1, 1), 2.0**1000), 8) == 3 * 2.0**-74


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: int8.split(x, 0), "at least one slice"),
        (lambda x: int8.split(x, 2, "row", "up"), "choose 'nearest'"),
        (lambda x: int8.split(x, 2, "rows"), "choose 'matrix'"),
        (lambda x: int8.split(x / 0.0, 2), "Inf or NaN"),
        (lambda x: int8.multiply(int8.split(x, 2), int8.split(x, 2)), "must agree"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(np.ones((2, 3)))
