"""The fused epilogue: its gate's bound, and what is asked of cublasLt (test_rings.py runs its kernels)."""

from collections.abc import Callable
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


def arrays(case: Case) -> list[np.ndarray]:
    return [widen(stored, "bf16") for stored in epilogue.draw(case, FUSED.problem)]


def z32(wide: list[np.ndarray], case: Case) -> np.ndarray:
    """z in fp32, as a kernel has it."""
    a, b, c, bias = (values.astype(np.float32) for values in wide)
    return np.float32(case.alpha) * (a @ b) + np.float32(case.beta) * c + bias


def gelu32(z: np.ndarray) -> np.ndarray:
    return z * np.float32(0.5) * (np.float32(1) + erf(z * np.float32(0.70710678)).astype(np.float32))


def verdict(found: np.ndarray, wide: list[np.ndarray], case: Case = CASE, **how: bool) -> epilogue.Verdict:
    right = epilogue.reference_of(wide, case.alpha, case.beta)
    gamma = tensor_core_gamma(case.shape.k, "bf16")
    return epilogue.judge_numbers(narrow(found.astype(np.float32), "bf16"), right, gamma, "bf16", **how)


@pytest.mark.parametrize("inputs", ["normal", "uniform", "zero rows and columns", "cancellation"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.25), (0.125, 0.5), (-0.25, 1.0), (0.0, 2.0)])
def test_what_fp32_gives_passes(inputs: str, alpha: float, beta: float) -> None:
    case = replace(CASE, inputs=inputs, alpha=alpha, beta=beta)
    wide = arrays(case)
    assert verdict(gelu32(z32(wide, case)), wide, case).passed


MISTAKES: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "no bias": lambda w: gelu32(z32([*w[:3], 0 * w[3]], CASE)),
    "beta is 1": lambda w: gelu32(z32(w, replace(CASE, beta=1.0))),
    "bias after GELU": lambda w: gelu32(z32([*w[:3], 0 * w[3]], CASE)) + w[3],
    "the tanh form": lambda w: epilogue.gelu_by_tanh(z32(w, CASE).astype(np.float64)),
    "a sigmoid": lambda w: z32(w, CASE) / (1 + np.exp(-1.702 * z32(w, CASE))),
    "rounded before the bias": lambda w: gelu32(
        widen(narrow(z32([*w[:3], 0 * w[3]], CASE), "bf16"), "bf16").astype(np.float32) + w[3].astype(np.float32)
    ),
    "one product lost": lambda w: gelu32(z32([w[0][:, 1:], w[1][1:], w[2], w[3]], CASE)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str) -> None:
    wide = arrays(CASE)
    assert not verdict(MISTAKES[mistake](wide), wide).passed


def test_a_library_may_take_the_tanh_form_and_two_launches_may_round_what_they_hand_on() -> None:
    wide = arrays(CASE)
    assert verdict(MISTAKES["the tanh form"](wide), wide, library=True).passed
    assert verdict(MISTAKES["rounded before the bias"](wide), wide, rounded=True).passed
    assert not verdict(MISTAKES["no bias"](wide), wide, library=True).passed
    assert not verdict(MISTAKES["a sigmoid"](wide), wide, rounded=True).passed


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
