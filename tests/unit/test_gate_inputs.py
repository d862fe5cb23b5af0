"""What the gate draws is what each case's name says, and no scalar or shape is left out."""

from collections.abc import Callable

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.gates.gate import Case
from gemmrepro.gates.gemm_cases import (
    INPUTS,
    INPUTS_BY_DTYPE,
    SCALARS,
    draw,
    gemm_cases,
    gemm_shapes,
    inputs_of,
    large_cases,
)
from gemmrepro.operations import Shape

SHAPE = Shape(60, 50, 40)
NAIVE = registry.kernel("ladder.naive")
GEMMS = [kernel for kernel in registry.kernels() if kernel.compute.op == "gemm"]
Matrices = tuple[np.ndarray, np.ndarray]


def drawn(name: str, seed: int = 5) -> Matrices:
    a, b, _ = draw(Case(SHAPE, 1.0, 0.0, name, seed))
    assert (a.shape, b.shape) == ((60, 40), (40, 50)) and a.dtype == b.dtype == np.float32
    return a, b


def zero_lines(a: np.ndarray, b: np.ndarray) -> bool:
    rows, columns = (a == 0).all(axis=1), (b == 0).all(axis=0)
    others = bool((a[~rows] != 0).all() and (b[:, ~columns] != 0).all())
    return rows[0] and 5 < rows.sum() < 35 and 5 < columns.sum() < 30 and np.signbit(b[:, columns]).all() and others


def subnormal(dtype: str, smallest: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    def check(a: np.ndarray, b: np.ndarray) -> bool:
        a, b = (widen(narrow(values, dtype), dtype) for values in (a, b))
        return ((np.abs(a) < smallest) & (a != 0)).mean() > 0.5 and np.abs(a @ b).max() > 0

    return check


def first_row_overflows(largest: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    def check(a: np.ndarray, b: np.ndarray) -> bool:
        c = a.astype(np.float64) @ b
        return (c[0] > largest).any() and (c[1:] < largest).all() and min(a.min(), b.min()) > 0

    return check


def spread(bits: int) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda *both: all(np.ptp(np.log2(np.abs(x))) > bits for x in both)


def whole(most: int) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda *both: all((x == np.round(x)).all() and (x.min(), x.max()) == (-most, min(most, 127)) for x in both)


def cancels(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return 0 < (np.abs(a @ b) / (np.abs(a) @ np.abs(b))).max() < 1e-4


def special(a: np.ndarray, b: np.ndarray) -> bool:
    places = a[0, 0] == np.inf and a[7, 5] == -np.inf and np.isnan(a[14, 10]) and b[1, 2] == np.inf == -b[4, 13]
    return places and ((~np.isfinite(a)).sum(), (~np.isfinite(b)).sum()) == (3, 2)


LAWS: dict[str, Callable[[np.ndarray, np.ndarray], bool]] = {
    "uniform": lambda *both: all(x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.03 for x in both),
    "zero rows and columns": zero_lines,
    "subnormal A": subnormal("fp32", 2.0**-126),
    "subnormal A, fp16": subnormal("fp16", 2.0**-14),
    "subnormal A, fp8": subnormal("fp8_e4m3", 2.0**-6),
    "subnormal products": lambda a, b: min(np.abs(a).min(), np.abs(b).min()) > 2.0**-126 > np.median(np.abs(a @ b)),
    "overflow": first_row_overflows(3.4028235e38),
    "overflow, fp16": first_row_overflows(65504.0),
    "Inf and NaN": special,
    "small integers": whole(8),
    "unit integers": whole(1),
    "8-bit integers": whole(128),
    **{f"wide exponents, phi = {phi}": spread(3 * phi) for phi in (0, 1, 2, 4)},
    "power-of-two rows and columns": spread(40),
    "power-of-two rows and columns, fp16": spread(5),
    "power-of-two rows and columns, fp8": spread(4),
    "cancellation": cancels,
    "normal, int8": lambda *both: all((x == np.round(x)).all() and 28 < x.std() < 36 for x in both),
    "extreme 8-bit integers": lambda *both: all(set(np.unique(x)) == {-128, 127} for x in both),
    "smallest integers": lambda a, b: set(np.unique(a)) == {-2, -1, 1, 2} and set(np.unique(b)) == {1, 2},
    "NaN, fp8": lambda a, b: bool(np.isnan(a).sum() == 1 == np.isnan(b).sum() and np.isnan(a[29, 0] + b[39, 24])),
}
"""What may be said of A [60, 40] and B [40, 50] of a law."""


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_a_law_gives_what_its_name_says_and_a_seed_the_same_again(name: str) -> None:
    first, again, other = drawn(name), drawn(name), drawn(name, 6)
    assert LAWS.get(name, lambda *_: True)(*first) and set(LAWS) | {"normal"} == set(INPUTS)
    assert all(one.tobytes() == two.tobytes() for one, two in zip(first, again, strict=True))
    assert any(one.tobytes() != two.tobytes() for one, two in zip(first, other, strict=True))


def test_every_pair_of_scalars_and_every_law_is_tried() -> None:
    cases = gemm_cases(NAIVE, [1, 2])
    shapes, middling, large = gemm_shapes(NAIVE)
    assert {case.inputs for case in cases} == set(INPUTS_BY_DTYPE["fp32"]) and {case.seed for case in cases} == {1, 2}
    assert {(case.alpha, case.beta) for case in cases if case.shape == shapes[1]} >= set(SCALARS)
    scaled = {case.inputs for case in cases if case.shape == middling and (case.alpha, case.beta) == (0.75, -1.5)}
    assert scaled == {"uniform", "power-of-two rows and columns", "zero rows and columns", "cancellation"}
    unread = {(case.shape, case.beta) for case in cases if case.alpha == 0 and case.inputs == "Inf and NaN"}
    assert unread == {(middling, 0.0), (shapes[1], 2.0)}
    assert [case.inputs for case in cases if case.shape == large] == ["normal", "uniform"] * 2


def test_shapes_are_taken_and_have_tails_or_unequal_multiples() -> None:
    for kernel in GEMMS:
        shapes, middling, large = gemm_shapes(kernel)
        assert all(kernel.takes(shape) for shape in (*shapes, middling, large)), kernel.id
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
        assert Shape(step["m"], step["n"], step["k"]) in shapes, "the smallest that there is"
        for axis in "mnk":
            assert len({getattr(shape, axis) // step[axis] for shape in shapes}) >= 3, (kernel.id, axis)
        assert large.m * large.n > max(shape.m * shape.n for shape in shapes), kernel.id
        filling, cases = large_cases(kernel, [1]), gemm_cases(kernel, [1])
        assert {case.shape for case in filling} == {large} and len(filling) >= 2
        assert {case.shape for case in cases} == {*shapes, middling, large, *kernel.promises.gate_shapes}
        assert {case.inputs for case in cases} >= set(inputs_of(kernel))
