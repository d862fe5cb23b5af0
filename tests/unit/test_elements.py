"""Which elements of a result are right, and what is said of their errors."""

import numpy as np
import pytest

from gemmrepro.gates import gate
from gemmrepro.gates.bounds import UNIT_ROUNDOFF

INF, NAN = float("inf"), float("nan")
LARGEST = float(np.finfo(np.float32).max)


def judged(got: float, want: float, size: float = 1.0, bound: float = 0.25, **options) -> bool:
    """Whether one element passes, among others that do."""
    result = np.array([[1.0, got], [2.0, 3.0]], np.float32 if options.get("dtype", "fp32") == "fp32" else np.float16)
    reference = np.array([[1.0, want], [2.0, 3.0]])
    scale = np.array([[1.0, size], [2.0, 3.0]])
    verdict = gate.compare(result, reference, scale, bound, **options)
    assert verdict.passed == (not verdict.message)
    if verdict.message:
        assert verdict.message.startswith("1 of 4 elements are wrong; the first is C[0,1] = ")
    return verdict.passed


@pytest.mark.parametrize(
    ("got", "want", "options", "passed"),
    [
        (1.25, 1.0, {}, True),
        (1.2501, 1.0, {}, False),
        (1.5, 1.0, {"size": 2.0}, True),
        (1.375, 1.0, {"scheme": 0.125}, True),
        (1.376, 1.0, {"scheme": 0.125}, False),
        (0.0, 0.0, {"size": 0.0, "underflow": 1.0, "scheme": 1.0}, True),
        (0.5, 0.0, {"size": 0.0, "underflow": 1.0, "scheme": 1.0}, False),  # where every product is zero, so is the sum
        (NAN, NAN, {}, True),
        (1.0, NAN, {}, False),
        (NAN, 1.0, {}, False),
        (INF, INF, {"size": INF}, True),
        (-INF, INF, {"size": INF}, False),
        (LARGEST, INF, {"size": INF}, False),
        (INF, 2 * LARGEST, {}, True),
        (LARGEST, 2 * LARGEST, {}, False),
        # Within the bound of the largest number both outcomes are right.
        (INF, 1.0001 * LARGEST, {"size": LARGEST, "bound": 0.001}, True),
        (LARGEST, 1.0001 * LARGEST, {"size": LARGEST, "bound": 0.001}, True),
        (INF, 0.99 * LARGEST, {"size": LARGEST, "bound": 0.001}, False),
        (INF, LARGEST, {"size": 0.0, "bound": 0.0}, False),
    ],
)
def test_an_element(got, want, options, passed):
    assert judged(got, want, **options) == passed


def test_sums_that_overflow_on_the_way_may_be_infinite():
    reach = np.array([[1.0, 1e5], [2.0, 3.0]])
    assert judged(INF, 100.0, dtype="fp16", reach=reach, bound=1e-3)
    assert not judged(-INF, 100.0, dtype="fp16", reach=reach, bound=1e-3)
    assert not judged(INF, 100.0, dtype="fp16", bound=1e-3)


def test_errors_are_the_largest_in_units_of_each_elements_scale():
    reference = np.array([[1.0, 0.001, 0.0], [4.0, 5.0, 6.0]])
    scale = np.array([[1.0, 0.001, 0.0], [4.0, 5.0, 60.0]])
    result = reference.astype(np.float64).copy()
    result[0, 1] += 0.001 * 3 * UNIT_ROUNDOFF["fp64"] * 4
    verdict = gate.compare(result, reference, scale, 1.0, dtype="fp64")
    assert verdict.err_scaled_max == pytest.approx(12, rel=0.05), "small scales count as large ones do"
    result = reference.copy()
    result[1, 2] += 3.0
    verdict = gate.compare(result, reference, scale, 1.0, dtype="fp64", rows=1)
    assert verdict.err_scaled_max == pytest.approx(0.05 / UNIT_ROUNDOFF["fp64"])
    assert verdict.err_fro == pytest.approx(3.0 / np.sqrt((reference**2).sum()))
    less = gate.compare(result, reference, scale, 1.0, dtype="fp64", underflow=1.0)
    assert less.err_scaled_max == pytest.approx(2.0 / 60 / UNIT_ROUNDOFF["fp64"]), "beyond what underflow explains"


def test_the_first_wrong_element_is_named_whatever_the_blocks():
    reference = np.arange(12.0).reshape(6, 2)
    result = reference.copy()
    result[3, 1], result[5, 0] = 99.0, NAN
    for rows in (1, 2, 4, 100):
        verdict = gate.compare(result, reference, np.ones((6, 2)), 0.1, dtype="fp64", rows=rows)
        assert verdict.message == "2 of 12 elements are wrong; the first is C[3,1] = 99, expected 7"
    with pytest.raises(ValueError, match="shapes differ"):
        gate.compare(result[:5], reference, np.ones((6, 2)), 0.1)
    with pytest.raises(ValueError, match="shapes differ"):
        gate.compare(result, reference, np.ones((5, 2)), 0.1)
