"""The numerical gate of sums kept in fp16, on the CPU: emulated kernels pass it, spoiled ones do not."""

import dataclasses
import json

import numpy as np
import pytest
from records import changed, record

from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm, gemm_cases, operations
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

PROMOTED = (0, 16, 64)


@pytest.fixture(autouse=True)
def everything_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "ON_HOST", 1 << 30)


def halves(promoted: int = 0) -> Kernel:
    return record(
        "ladder.example",
        dtype_in="fp16",
        dtype_acc="fp16",
        dtype_out="fp32",
        promoted=promoted,
        arguments=("a", "b", "c"),
        multiple_of={"k": 8},
    )


def rounded(values: np.ndarray, toward_zero: bool) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        near = values.astype(np.float16).astype(np.float64)
        if not toward_zero:
            return near
        too_far = np.isfinite(near) & (np.abs(near) > np.abs(values))
        return np.where(too_far, np.nextafter(near.astype(np.float16), np.float16(0)).astype(np.float64), near)


def unit_with_half_sums(
    a: np.ndarray, b: np.ndarray, promoted: int, block: int = 16, toward_zero: bool = False
) -> np.ndarray:
    """A unit that rounds its sum to fp16 after `block` exact products; every `promoted` of them go to fp32."""
    outer, total = np.zeros((2, a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], block):
            if promoted and start % promoted == 0:
                outer, total = (outer + total).astype(np.float32).astype(np.float64), np.zeros_like(total)
            total = rounded(total + a[:, start : start + block] @ b[start : start + block], toward_zero)
        return (outer + total).astype(np.float32)


def case_data(case: gemm_cases.Case) -> gemm.CaseData:
    a, b, c = gemm_cases.draw(case)
    a, b = narrow(a, "fp16"), narrow(b, "fp16")
    wide = widen(a, "fp16"), widen(b, "fp16")
    return gemm.CaseData(a, b, c, wide, *gemm.reference_gemm(*wide, 1.0, 0.0, None))


def wrong(kernel: Kernel, case: gemm_cases.Case, got: np.ndarray, right: gemm.CaseData) -> list[str]:
    """What the gate has against a result."""
    verdict, reference, _ = gemm.judge_numbers(got, right, case, kernel.problem, kernel)
    inexact = gemm.inexact(got, reference, kernel.problem) if case.inputs in gemm_cases.EXACT_LAWS else []
    return [*([] if verdict.passed else [verdict.message]), *inexact]


@pytest.mark.parametrize("promoted", PROMOTED)
def test_a_right_kernel_passes_every_law(promoted: int) -> None:
    kernel = halves(promoted)
    cases = [case for case in gemm_cases.gemm_cases(kernel, [5]) if case.shape.m * case.shape.n * case.shape.k < 2e7]
    laws = {case.inputs for case in cases}
    assert (gemm_cases.EXACT in laws) == (0 < promoted <= 32) and (gemm_cases.UNITS in laws) != (
        gemm_cases.EXACT in laws
    )
    for case in cases:
        right = case_data(case)
        assert not wrong(kernel, case, unit_with_half_sums(*right.wide, promoted, 8 if promoted else 16), right), case


LONG = gemm_cases.Case(Shape(96, 80, 1016), 1.0, 0.0, "normal", 3)


@pytest.mark.parametrize("promoted", PROMOTED)
def test_a_lost_or_doubled_step_of_k_is_seen_and_a_lost_product_by_the_exact_case(promoted: int) -> None:
    kernel = halves(promoted)
    exact = dataclasses.replace(LONG, inputs=gemm_cases.exact_inputs(kernel))
    for case, lost in ((LONG, slice(0, 16)), (LONG, slice(1000, 1016)), (exact, slice(700, 701))):
        right = case_data(case)
        a, b = right.wide
        without = a.copy()
        without[:, lost] = 0
        whole = unit_with_half_sums(a, b, promoted)
        assert not wrong(kernel, case, whole, right)
        assert wrong(kernel, case, unit_with_half_sums(without, b, promoted), right)
        assert wrong(kernel, case, whole + (a[:, lost] @ b[lost]).astype(np.float32), right)


@pytest.mark.parametrize("promoted", [16, 64])
def test_sums_that_never_leave_fp16_are_seen_where_they_should(promoted: int) -> None:
    long = {case.inputs: case for case in gemm_cases.gemm_cases(halves(promoted), [1]) if case.shape.k == 1016}
    assert "uniform" in long
    case = dataclasses.replace(long["uniform"], shape=LONG.shape)
    right = case_data(case)
    for kernel, seen in ((halves(promoted), True), (halves(0), False)):
        assert bool(wrong(kernel, case, unit_with_half_sums(*right.wide, 0), right)) == seen


def test_sums_of_one_sign_that_are_truncated_are_seen() -> None:
    case = dataclasses.replace(LONG, inputs="uniform")
    right = case_data(case)
    assert not wrong(halves(), case, unit_with_half_sums(*right.wide, 0), right)
    assert wrong(halves(), case, unit_with_half_sums(*right.wide, 0, block=4, toward_zero=True), right)


def test_sums_beyond_the_largest_half_are_infinite_and_others_finite() -> None:
    case = dataclasses.replace(LONG, inputs="overflow, fp16")
    right = case_data(case)
    for promoted in (0, 16):
        got = unit_with_half_sums(*right.wide, promoted)
        assert np.isinf(got[0]).all() and np.isfinite(got[1:]).all()
        assert not wrong(halves(promoted), case, got, right)
        finite = right.reference.astype(np.float32)
        assert wrong(halves(promoted), case, finite, right), "sums that were not kept in fp16"


def test_where_sums_are_promoted_is_part_of_the_gate_key_and_only_for_halves() -> None:
    assert operations.gate_key(halves(16), "build") != operations.gate_key(halves(32), "build")
    json.dumps(operations.gate_key(halves(), "build"))
    for refused in ({"promoted": 8}, {"promoted": 32, "dtype_acc": "fp32"}):
        with pytest.raises(UserError, match="promoted"):
            changed(halves(), **refused)
