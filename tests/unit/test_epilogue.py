"""The fused epilogue: its gate's bound, and what is asked of cublasLt (test_rings.py runs its kernels)."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import erf

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.gates import epilogue
from gemmrepro.gates.bounds import tensor_core_gamma
from gemmrepro.gates.gate import Case
from gemmrepro.gates.operations import allowed
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape

FUSED, APART = registry.kernel("hopper.epilogue"), registry.kernel("hopper.epilogue_apart")

CASE = Case(Shape(48, 40, 72), 0.125, 0.5, "normal", 3)


def z32(wide: list[np.ndarray]) -> np.ndarray:
    """z in fp32, as a kernel has it."""
    a, b, c, bias = (values.astype(np.float32) for values in wide)
    return np.float32(CASE.alpha) * (a @ b) + np.float32(CASE.beta) * c + bias


def gelu32(z: np.ndarray) -> np.ndarray:
    return z * np.float32(0.5) * (np.float32(1) + erf(z * np.float32(0.70710678)).astype(np.float32))


def verdict(found: np.ndarray, wide: list[np.ndarray], **how: bool) -> epilogue.Verdict:
    right = epilogue.reference_of(wide, CASE.alpha, CASE.beta)
    gamma = tensor_core_gamma(CASE.shape.k, "bf16")
    return epilogue.judge_numbers(narrow(found.astype(np.float32), "bf16"), right, gamma, "bf16", **how)


def test_a_library_may_take_the_tanh_form_and_two_launches_may_round_what_they_hand_on() -> None:
    """And no other; test_gate_faults has what no kernel may do."""
    wide = [widen(stored, "bf16") for stored in epilogue.draw(CASE, FUSED.problem)]
    z, bias = z32(wide), wide[3].astype(np.float32)
    tanh, without = epilogue.gelu_by_tanh(z.astype(np.float64)), z - bias
    apart = gelu32(widen(narrow(without, "bf16"), "bf16").astype(np.float32) + bias)
    assert verdict(tanh, wide, library=True).passed and not verdict(tanh, wide).passed
    assert verdict(apart, wide, rounded=True).passed and not verdict(apart, wide).passed
    assert not verdict(gelu32(without), wide, library=True).passed
    assert not verdict(z / (1 + np.exp(-1.702 * z)), wide, rounded=True).passed


@pytest.mark.parametrize("kernel", [FUSED, APART], ids=lambda kernel: kernel.id)
def test_the_bound_that_is_shown_is_the_largest_that_passes(kernel: registry.Kernel) -> None:
    """Where z, y and D are S: a step of bf16 is two units there, and one is too much unless y was rounded, too."""
    ones, gamma = np.full((1, 1), 8.0), 2.0**-20
    right, limit = epilogue.Reference(ones, ones, ones), allowed(kernel, gamma)
    assert limit is not None
    for steps in range(4):
        found = narrow((ones + steps / 16).astype(np.float32), "bf16")
        judged = epilogue.judge_numbers(found, right, gamma, "bf16", rounded=kernel is APART)
        assert judged.err_scaled_max == pytest.approx(2 * steps, abs=1e-9)
        assert judged.passed == (2 * steps <= limit)
    assert allowed(kernel, None) is None and allowed(kernel, 0.0) == 0


@pytest.mark.parametrize("layout", ["row,row,row", "row,col,row", "col,row,row"])
def test_the_reference_is_of_the_operands_as_the_layout_has_them(layout: str) -> None:
    problem = replace(FUSED.problem, layout=layout)
    case = Case(Shape(8, 16, 24), 0.125, 0.5, "normal", 1)
    a, b, c, bias = epilogue.draw(case, problem)
    stored = [np.ascontiguousarray(a.T) if problem.a_is_m_major else a]
    stored += [np.ascontiguousarray(b.T) if problem.b_is_k_major else b, c, bias]
    given = tuple(SimpleNamespace(get=values.reshape(-1).copy) for values in stored)
    operands = Operands(problem, case.shape, given, None, case.alpha, case.beta)
    found = epilogue.GemmEpilogue().reference(operands)
    wide = [widen(values, problem.dtype_in) for values in (a, b, c, bias)]
    right = epilogue.reference_of(wide, case.alpha, case.beta)
    for name in ("z", "scale", "y"):
        np.testing.assert_allclose(getattr(found, name), getattr(right, name), rtol=1e-12)
