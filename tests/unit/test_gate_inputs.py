"""What the gate draws is what each case's name says, and no scalar or shape is left out."""

from __future__ import annotations

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.gates.gemm_cases import INPUTS, SCALARS, Case, draw, gemm_cases, gemm_shapes
from gemmrepro.measure.checks.follows import close
from gemmrepro.operations import Shape

SHAPE = Shape(60, 50, 40)
NAIVE = registry.kernel("ladder.naive")


def drawn(name: str, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    a, b, _ = draw(Case(SHAPE, 1.0, 0.0, name, seed))
    assert (a.shape, b.shape) == ((60, 40), (40, 50)) and a.dtype == b.dtype == np.float32
    return a, b


def test_zero_rows_and_columns_are_zero_and_others_are_not() -> None:
    a, b = drawn("zero rows and columns")
    rows, columns = (a == 0).all(axis=1), (b == 0).all(axis=0)
    assert rows[0] and 5 < rows.sum() < 35 and 5 < columns.sum() < 30
    assert np.signbit(b[:, columns]).all() and (a[~rows] != 0).all() and (b[:, ~columns] != 0).all()


@pytest.mark.parametrize(
    ("name", "dtype", "smallest"),
    [
        ("subnormal A", "fp32", 2.0**-126),
        ("subnormal A, fp16", "fp16", 2.0**-14),
        ("subnormal A, fp8", "fp8_e4m3", 2**-6),
    ],
)
def test_subnormal_inputs_are_mostly_subnormal_and_products_are_not_zero(name, dtype, smallest) -> None:
    a, b = (widen(narrow(values, dtype), dtype) for values in drawn(name))
    share = ((np.abs(a) < smallest) & (a != 0)).mean()
    assert share > 0.5 and np.abs(b).max() > 1
    assert (np.abs(a @ b).max() > 0) and np.isfinite(a @ b).all()


def test_products_below_the_normal_range_are_of_normal_numbers() -> None:
    a, b = drawn("subnormal products")
    assert np.abs(a).min() > 2.0**-126 and np.abs(b).min() > 2.0**-126
    assert 0 < np.median(np.abs(a[:, :1].astype(np.float64) * b[:1].astype(np.float64))) < 2.0**-126


@pytest.mark.parametrize(("name", "largest"), [("overflow", 3.4028235e38), ("overflow, fp16", 65504.0)])
def test_exactly_the_first_row_overflows(name, largest) -> None:
    a, b = drawn(name)
    c = a.astype(np.float64) @ b
    assert (c[0] > largest).any() and (np.abs(c[1:]) < largest).all() and (a > 0).all() and (b > 0).all()


def test_every_special_value_stands_in_a_and_infinities_in_b() -> None:
    a, b = drawn("Inf and NaN")
    assert {str(value) for value in a[~np.isfinite(a)]} == {"inf", "-inf", "nan"}
    assert {str(value) for value in b[~np.isfinite(b)]} == {"inf", "-inf"}


@pytest.mark.parametrize(("name", "most"), [("small integers", 8), ("unit integers", 1), ("8-bit integers", 128)])
def test_integers_are_integers_of_both_signs_and_of_the_whole_range(name, most) -> None:
    for values in drawn(name):
        assert (values == np.round(values)).all()
        assert values.min() == -most and most - (most == 128) == values.max()


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_a_seed_gives_the_same_and_another_one_others(name) -> None:
    first, again, other = drawn(name), drawn(name), drawn(name, 6)
    assert all(one.tobytes() == two.tobytes() for one, two in zip(first, again, strict=True))
    assert any(one.tobytes() != two.tobytes() for one, two in zip(first, other, strict=True))


def test_c_is_poison_unless_beta_reads_it() -> None:
    assert np.isnan(draw(Case(SHAPE, 1.0, 0.0, "normal", 1))[2]).all()
    c0 = draw(Case(SHAPE, 1.0, 0.5, "normal", 1))[2]
    assert np.isfinite(c0).all() and c0.std() > 1


def test_every_pair_of_scalars_and_every_law_is_tried() -> None:
    cases = gemm_cases(NAIVE, [1, 2])
    shapes, middling, large = gemm_shapes(NAIVE)
    assert {(case.alpha, case.beta) for case in cases if case.shape == shapes[1]} >= set(SCALARS)
    scaled = {case.inputs for case in cases if case.shape == middling and (case.alpha, case.beta) == (0.75, -1.5)}
    assert scaled == {"uniform", "power-of-two rows and columns", "zero rows and columns", "cancellation"}
    unread = {(case.shape, case.beta) for case in cases if case.alpha == 0 and case.inputs == "Inf and NaN"}
    assert unread == {(middling, 0.0), (shapes[1], 2.0)}
    assert [case.inputs for case in cases if case.shape == large] == ["normal", "uniform"] * 2
    assert {case.seed for case in cases} == {1, 2} and len({case.seed for case in cases if case.shape == large}) == 2


@pytest.mark.parametrize(
    ("cell", "value", "same"),
    [("", None, True), ("", 1.0, False), ("1", None, False), ("1", 1.0, True), ("1.1", 1.0, False), ("0", 0.0, True)],
)
def test_a_cell_is_what_was_computed_or_empty_where_there_is_nothing(cell, value, same) -> None:
    assert close(cell, value) is same
