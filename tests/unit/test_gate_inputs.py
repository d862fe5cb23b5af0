"""What the gate draws is what each case's name says, and no scalar or shape is left out."""

from __future__ import annotations

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.gates.gemm_cases import (
    INPUTS,
    SCALARS,
    Case,
    deepen,
    draw,
    exact_inputs,
    gemm_cases,
    gemm_shapes,
    inputs_of,
    large_cases,
)
from gemmrepro.gates.vectors import KINDS, chain, gate_ids, gate_values, judge_sum
from gemmrepro.measure.recording import close
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


@pytest.mark.parametrize("phi", [0, 1, 2, 4])
def test_wide_exponents_have_both_signs_and_their_spread(phi) -> None:
    for values in drawn(f"wide exponents, phi = {phi}"):
        assert abs((values > 0).mean() - 0.5) < 0.05
        logs = np.log(np.abs(values.astype(np.float64)))
        # log |u - 1/2| has a deviation of 1, and that of phi g is phi.
        assert logs.std() == pytest.approx(np.hypot(1, phi), rel=0.1)
        if phi == 0:
            assert np.abs(values).max() <= 0.5


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("power-of-two rows and columns", -30, 30),
        ("power-of-two rows and columns, fp16", -4, 3),
        ("power-of-two rows and columns, fp8", -3, 3),
    ],
)
def test_rows_and_columns_differ_by_powers_of_two(name, least, most) -> None:
    a, b = drawn(name)
    levels = (np.log2(np.abs(values).mean(axis=axis)) for values, axis in ((a, 1), (b, 0)))
    for level in levels:
        # The mean magnitude of a normal number is 0.8.
        assert least - 1 < level.min() < least + 0.2 * (most - least) and level.max() < most + 0.5
        assert level.max() > most - 0.2 * (most - least) - 0.5
    if name.endswith("fp8"):
        assert np.abs(a).max() <= 32 and np.abs(b).max() <= 32


def test_the_second_half_of_k_nearly_cancels_the_first() -> None:
    a, b = (values.astype(np.float64) for values in drawn("cancellation"))
    c, size = a @ b, np.abs(a) @ np.abs(b)
    assert 0 < (np.abs(c) / size).max() < 1e-4
    odd, _, _ = draw(Case(Shape(4, 4, 1), 1.0, 0.0, "cancellation", 1))
    assert odd.shape == (4, 1), "a single product has no second half"


def test_uniform_inputs_lie_between_0_and_1() -> None:
    for values in drawn("uniform"):
        assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.03


def test_overflow_leaves_other_columns_and_rows_large_enough_to_be_seen() -> None:
    a, b = drawn("overflow")
    assert (a[0] == 2.0**127).all() and a[1:].min() >= 0.5
    assert b[:, 0].min() >= 2 and b[:, 1:].max() < 2.0**-17 and b[:, 1:].min() >= 2.0**-21
    a, b = drawn("overflow, fp16")
    assert (a[0] == 60000).all() and b[:, 0].min() >= 2 and 0.5 <= b[:, 1:].min() and b.max() < 4 * 6


def test_bytes_are_normal_or_extreme() -> None:
    for values in drawn("normal, int8"):
        assert (values == np.round(values)).all() and np.abs(values).max() <= 128 and 28 < values.std() < 36
    a, b = drawn("extreme 8-bit integers")
    assert set(np.unique(a)) == set(np.unique(b)) == {-128, 127}
    assert (a == a[:, :1]).all() and (b == b[:1]).all()
    a, b = drawn("smallest integers")
    assert (np.sign(a) == np.sign(a[:, :1])).all() and set(np.unique(np.abs(a))) == set(np.unique(b)) == {1, 2}
    assert (a < 0).any() and (a > 0).any()
    a, b = drawn("NaN, fp8")
    assert np.isnan(a).sum() == 1 == np.isnan(b).sum() and np.isnan(a[29, 0]) and np.isnan(b[39, 24])


def test_special_values_stand_in_rows_and_columns_of_their_own() -> None:
    a, b = drawn("Inf and NaN")
    assert a[0, 0] == np.inf and a[7, 5] == -np.inf and np.isnan(a[14, 10]) and (~np.isfinite(a)).sum() == 3
    assert b[1, 2] == np.inf and b[4, 13] == -np.inf and (~np.isfinite(b)).sum() == 2


def test_c_has_the_scale_of_the_product() -> None:
    a, b, c0 = draw(Case(SHAPE, 1.0, 1.0, "power-of-two rows and columns", 3))
    level = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0, keepdims=True)
    assert (c0 / level).std() == pytest.approx(1, rel=0.1) and abs((c0 / level).mean()) < 0.1
    assert np.isfinite(draw(Case(SHAPE, 1.0, 1.0, "Inf and NaN", 3))[2]).any()


def test_more_bits_than_fp32_has_are_added_below_its_last() -> None:
    values = np.array([[1.0, -3.0], [2.0**-140, 0.0]] * 200, np.float32)
    deep = deepen(values, 7)
    change = deep[values != 0] / values[values != 0].astype(np.float64) - 1
    assert np.abs(change).max() <= 2.0**-25 and np.abs(change).max() > 2.0**-26 and (deep[values == 0] == 0).all()
    assert (deep.astype(np.float32) == values).all() and (deepen(values, 8) != deep).any()


HALVES = [kernel for kernel in registry.kernels() if kernel.compute.op == "gemm" and kernel.compute.dtype_acc == "fp16"]


def test_sums_in_fp16_are_given_integers_that_they_hold() -> None:
    assert HALVES
    for kernel in HALVES:
        least = 8 if 0 < kernel.compute.promoted <= 32 else 1
        name = exact_inputs(kernel)
        assert {8: "small integers", 1: "unit integers"}[least] == name
        cases = gemm_cases(kernel, [1])
        large = gemm_shapes(kernel)[2]
        assert sum(case.shape == large and case.inputs == "uniform" for case in cases) >= 1
        assert name in inputs_of(kernel) and ("small integers" in inputs_of(kernel)) == (least == 8)


def test_shapes_are_taken_and_have_tails_or_unequal_multiples() -> None:
    for kernel in (kernel for kernel in registry.kernels() if kernel.compute.op == "gemm"):
        shapes, middling, large = gemm_shapes(kernel)
        assert all(kernel.takes(shape) for shape in (*shapes, middling, large)), kernel.id
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
        assert Shape(step["m"], step["n"], step["k"]) in shapes, "the smallest that there is"
        for axis in "mnk":
            assert len({getattr(shape, axis) // step[axis] for shape in shapes}) >= 3, (kernel.id, axis)
        assert large.m * large.n > max(shape.m * shape.n for shape in shapes), kernel.id
        filling = large_cases(kernel, [1])
        assert {case.shape for case in filling} == {large} and len(filling) >= 2
        for shape in kernel.promises.gate_shapes:
            assert any(case.shape == shape and case.inputs == "normal" for case in gemm_cases(kernel, [1]))


def test_the_shapes_of_the_three_kinds_of_kernels() -> None:
    def sizes(shapes) -> list[str]:
        return [str(shape) for shape in shapes]

    any_size, middling, large = gemm_shapes(NAIVE)
    assert sizes(any_size) == ["1x1x1", "1x33x5", "31x1x64", "33x65x1", "127x129x63", "257x96x130", "96x128x2048"]
    assert (str(middling), str(large)) == ("130x97x70", "1000x1030x1011")
    in_tiles, middling, large = gemm_shapes(registry.kernel("ladder.warptile"))
    step = registry.kernel("ladder.warptile").accepts.multiple_of
    assert (step["m"], step["n"], step["k"]) == (128, 128, 16)
    assert sizes(in_tiles) == ["128x128x16", "256x384x80", "384x128x16", "128x512x64", "128x128x2048"]
    assert (str(middling), str(large)) == ("256x128x64", "1024x1152x1024")
    in_sixteens, middling, large = gemm_shapes(registry.kernel("hopper.wgmma"))
    tails = ["1x8x8", "3x136x72", "65x72x64", "200x136x72", "129x264x8", "300x408x520", "96x160x2048"]
    assert (sizes(in_sixteens), str(middling), str(large)) == (tails, "200x136x72", "3000x2240x1016")


# Inputs of operations on vectors


def test_ids_outside_the_bins_are_some_or_all() -> None:
    outside = lambda ids: float(((ids < 0) | (ids >= 256)).mean())  # noqa: E731
    assert outside(gate_ids("all outside", 5000, 256, 1)) == 1.0
    assert outside(gate_ids("some outside", 5000, 256, 1)) == pytest.approx(0.3, abs=0.03)
    assert outside(gate_ids("sorted", 5000, 256, 1)) == 0.0 and (np.diff(gate_ids("sorted", 5000, 256, 1)) >= 0).all()
    assert {-1, 256, 257, -(2**31), 2**31 - 1, -256, 287, 2**24} == set(gate_ids("all outside", 5000, 256, 1).tolist())


def test_values_to_be_summed_are_what_their_kind_says() -> None:
    drawn_values = {kind: gate_values(kind, 4096, 3) for kind in KINDS}
    assert all(values.dtype == np.float32 and len(values) == 4096 for values in drawn_values.values())
    whole = drawn_values["integers"]
    assert set(np.unique(whole)) == set(range(-8, 9))
    assert drawn_values["normal"].std() == pytest.approx(1, abs=0.05)
    assert np.log(np.abs(drawn_values["wide exponents"])).std() == pytest.approx(np.hypot(4, 1.1), rel=0.1)
    assert np.isnan(drawn_values["one NaN"]).sum() == 1 == np.isinf(drawn_values["one infinity"]).sum()
    assert drawn_values["the last alone"][-1] == 3 and (drawn_values["the last alone"][:-1] == 0).all()


@pytest.mark.parametrize(
    ("got", "total", "magnitude", "n", "passed"),
    [
        (1.0, 1.0, 1.0, 1, True),
        (1.0 + 2.0**-23, 1.0, 1.0, 1, False),
        (float("inf"), float("inf"), float("inf"), 9, True),
        (float("-inf"), float("inf"), float("inf"), 9, False),
        (float("nan"), float("nan"), float("nan"), 9, True),
        (0.0, float("nan"), float("nan"), 9, False),
        (1.0, float("inf"), float("inf"), 9, False),
        (0.0, 0.0, 0.0, 4, True),
        # Eight elements: at most six additions on a path and one for all of 2^18, each of 2^-24 of the magnitudes.
        (7.0 * 2.0**-24, 0.0, 1.0, 8, True),
        (7.1 * 2.0**-24, 0.0, 1.0, 8, False),
        (float("nan"), 1.0, 1.0, 8, False),
    ],
)
def test_a_sum_is_judged_by_its_longest_chain(got, total, magnitude, n, passed) -> None:
    verdict = judge_sum(got, total, magnitude, n)
    assert verdict.passed == passed and bool(verdict.message) != passed
    assert [chain(n) for n in (1, 2, 8, 2**18, 2**18 + 1)] == [0, 3, 7, 37, 40]


def test_errors_of_a_sum_are_in_units_of_its_magnitudes() -> None:
    verdict = judge_sum(2.0 + 2.0**-20, 2.0, 4.0, 1000)
    assert verdict.err_scaled_max == pytest.approx(4.0) and verdict.err_fro == pytest.approx(2.0**-21)
    assert judge_sum(0.0, 0.0, 0.0, 2).err_fro is None
