"""The judges themselves: the exact product, the double-double product, the measures, the inputs."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ozaki_matrices import any_floats, floats_of, fractions, pairs

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, exact, inputs


@settings(deadline=None, max_examples=40)
@given(any_floats(3, 4), st.data())
def test_the_exact_product_is_that_of_fractions(a: np.ndarray, data: st.DataObject) -> None:
    b = data.draw(floats_of((a.shape[1], data.draw(st.integers(1, 3)))))
    found, wanted = exact.product(a, b), fractions(a) @ fractions(b)
    nearest = found.nearest()
    for row in range(a.shape[0]):
        for column in range(b.shape[1]):
            assert found.fraction(row, column) == wanted[row, column]
            if abs(wanted[row, column]) < Fraction(2) ** 1023:
                assert nearest[row, column] == float(wanted[row, column])
            c = np.full(nearest.shape, 0.75)
            distance = abs(wanted[row, column] - Fraction(3, 4))
            if distance < Fraction(2) ** 1023:
                assert found.minus(c)[row, column] == float(distance)


@settings(deadline=None, max_examples=60)
@given(pairs(40), st.sampled_from([8, 1 << 10, 1 << 28]))
def test_the_double_double_product(operands, block_bytes: int) -> None:
    """K at once, in blocks, or one after the other."""
    a, b = operands
    with mock.patch.object(exact, "BLOCK_BYTES", block_bytes):
        hi, lo = exact.product_double_double(a, b)
    reference, scale = exact.product(a, b), exact.product(np.abs(a), np.abs(b))
    for index in np.ndindex(hi.shape):
        value = Fraction(float(hi[index])) + Fraction(float(lo[index]))
        limit = scale.fraction(*index) * (a.shape[1] + 1) * Fraction(2) ** -103
        assert abs(value - reference.fraction(*index)) <= limit
    c = hi * (1 + 2.0**-40)
    assert np.allclose(exact.minus_double_double(c, hi, lo), reference.minus(c), rtol=1e-10, atol=0)


def test_overflow_and_special_values_of_the_exact_product() -> None:
    huge = np.full((1, 1), 1e200)
    assert np.isinf(exact.product(huge, -huge).nearest()) and exact.product(huge, -huge).nearest() < 0
    assert exact.product(huge, huge).minus(np.array([[np.nan]])) == np.inf
    with pytest.raises(UserError, match="does not exist"):
        exact.product(np.array([[np.nan]]), huge)
    assert exact.product(np.ones((2, 0)), np.ones((0, 3))).nearest().tolist() == [[0.0] * 3] * 2
    least = np.full((1, 1), 5e-324)
    assert exact.product(least, least).nearest() == 0
    assert exact.product(least, np.full((1, 1), 0.75)).nearest() == 5e-324


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
    with pytest.raises(UserError, match="'frobenius' or 'max'"):
        exact.articles(c, reference, "mean")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nothing_that_is_not_finite_passes(bad: float) -> None:
    reference = np.ones((2, 2))
    hi, lo = reference, np.zeros((2, 2))
    c = reference.copy()
    c[1, 0] = bad
    difference = exact.minus_double_double(c, hi, lo)
    assert exact.scaled(difference, reference) == math.inf
    assert exact.relative(np.abs(c - reference), reference) == math.inf
    assert exact.frobenius(difference, reference) == math.inf
    assert exact.articles(c, reference) == math.inf
    assert exact.articles(c, reference, "max") == math.inf


def test_inputs_are_what_they_say() -> None:
    rng = np.random.default_rng(2)
    a, b = inputs.complementary(rng, 5, 5, 40)
    ratio = (np.abs(a) @ np.abs(b)).max() / (np.linalg.norm(a, axis=1).min() * np.linalg.norm(b, axis=0).min())
    assert ratio < 2.0**-60
    a, b = inputs.graded(40)(np.random.default_rng(3), 4, 4, 30)
    plain = inputs.normal(np.random.default_rng(3), 4, 4, 30)
    assert (exact.product(a, b).nearest() == exact.product(*plain).nearest()).all()
    a, b = inputs.cancelling(np.random.default_rng(4), 4, 4, 30)
    assert (np.abs(exact.product(a, b).nearest()) < 2.0**-30 * (np.abs(a) @ np.abs(b))).all()
    a, _ = inputs.spread(4.0)(np.random.default_rng(5), 20, 4, 30)
    assert np.ptp(np.log2(np.abs(a))) > 25


def test_operands_on_different_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((2, 2))
    monkeypatch.setattr(accumulate, "namespace", lambda x: "host" if x is a else "gpu")
    with pytest.raises(UserError, match="move one of them"):
        accumulate.check_operands(a, a.copy())
