"""The bounds of the gate as numbers, worked out from the formulas of its documentation."""

import math

import pytest

from gemmrepro.gates import bounds
from gemmrepro.operations import Problem

U = 2.0**-24


def problem(dtype_in: str, dtype_out: str = "fp32") -> Problem:
    return Problem("gemm", dtype_in, dtype_out, "row,row,row")


def test_a_short_sum_is_bounded_by_its_worst_case_and_a_long_one_by_what_is_likely():
    assert bounds.gamma(1) == pytest.approx(4 * U / (1 - 4 * U), rel=1e-12)
    n, u = 4096 + 3, 2.0**-24
    likely = math.exp(9 * math.sqrt(n) * u + n * u * u / (1 - u)) - 1
    assert bounds.gamma(4096) == pytest.approx(likely, rel=1e-6) and likely < n * u
    assert bounds.gamma(10, unit=0.1) < math.inf, "the worst case is beyond all bounds, the likely one is not"


def test_the_bound_of_each_type_of_operands():
    assert bounds.bound(problem("int8", "int32"), 1000) == 0.0
    assert bounds.bound(problem("fp64", "fp64"), 500) == 2 * bounds.gamma(500, 2.0**-53)
    assert bounds.bound(problem("fp32"), 500) == bounds.gamma(500)
    for dtype, terms, unit in (
        ("fp16", 64 + 2 * 4, 2.0**-23),
        ("tf32", 64 + 2 * 16, 2.0**-23),
        ("fp8_e4m3", 64 + 2 * 2, 2.0**-13),
    ):
        lost = terms * unit
        assert bounds.bound(problem(dtype), 64) == pytest.approx(lost / (1 - lost), rel=1e-12)
    assert bounds.tensor_core_gamma(8192, "fp8_e4m3") == math.inf


@pytest.mark.parametrize(
    ("limit", "dtype", "allowed"),
    [
        (None, "fp32", None),
        (1e-6, "fp8_e4m3", None),
        (4 * U, "fp32", 4.0),
        (2.0**-11, "fp16", 2.0),
        (2.0**-52, "fp64", 2.0),
    ],
)
def test_what_is_allowed_in_units_of_the_output(limit, dtype, allowed):
    found = bounds.allowed_error(limit, dtype)
    assert found == (None if allowed is None else pytest.approx(allowed))
