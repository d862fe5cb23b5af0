"""The numerical gate's comparison, without a GPU: what it must let pass and what it must not."""

import dataclasses

import numpy as np
import pytest
from records import changed, record

from gemmrepro.errors import UserError
from gemmrepro.gates import bounds, gate, gemm, gemm_cases
from gemmrepro.gates.gate import Case
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel


def kernel(**multiple_of):
    return record("ladder.example", multiple_of=multiple_of)


ANY_SIZE = kernel()
TILED = kernel(m=128, n=128, k=16)


def fp32_gemm(a, b, alpha=1.0, beta=0.0, c0=None):
    """A right kernel: fp32 sums in order of k, as every rung of the ladder makes them (without fused rounding)."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for index in range(a.shape[1] if alpha else 0):  # as in BLAS
            total += a[:, index : index + 1] * b[index]
        result = np.float32(alpha) * total
        return result if beta == 0 else result + np.float32(beta) * c0


def tf32(x):
    """Round to TF32's 11 significant bits, to nearest even, as the tensor cores' inputs are."""
    bits = x.view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFFE000)).view(np.float32)


def judge(case, result):
    a, b, c0 = gemm_cases.draw(case)
    reference, scale = gate.reference_gemm(a, b, case.alpha, case.beta, c0)
    return gate.compare(
        result,
        reference,
        scale,
        bounds.gamma(case.shape.k),
        underflow=bounds.underflow_allowance(case.shape.k, case.alpha),
    )


def small(cases):
    """The cases a NumPy emulation can run in a unit test."""
    return [case for case in cases if case.shape.m * case.shape.n * case.shape.k < 3e8]


@pytest.mark.parametrize("which", [ANY_SIZE, TILED], ids=["any size", "multiples"])
def test_plain_fp32_passes_every_case(which):
    for case in small(gemm_cases.gemm_cases(which, [11])):
        a, b, c0 = gemm_cases.draw(case)
        verdict = judge(case, fp32_gemm(a, b, case.alpha, case.beta, c0))
        assert verdict.passed, f"{case}: {verdict.message}"


@pytest.mark.parametrize("which", [ANY_SIZE, TILED], ids=["any size", "multiples"])
def test_tf32_fails_at_every_shape_and_on_all_ordinary_inputs(which):
    harmless = {"Inf and NaN", "overflow", "zero rows and columns", "subnormal A", "subnormal products"}
    rejected = set()
    for case in small(gemm_cases.gemm_cases(which, [12])):
        if case.alpha == 0.0 or case.inputs in harmless or case.shape == Shape(1, 1, 1):
            continue
        a, b, c0 = gemm_cases.draw(case)
        verdict = judge(case, fp32_gemm(tf32(a), tf32(b), case.alpha, case.beta, c0))
        assert not verdict.passed, f"{case} let TF32 pass at {verdict.err_scaled_max:.0f} u"
        rejected.add(case.shape)
    assert len(rejected) >= 5


@pytest.mark.parametrize("order", ["descending", "ascending", "shuffled", "pairwise"])
@pytest.mark.parametrize("inputs", ["wide exponents, phi = 4", "cancellation"])
def test_fp32_sums_in_any_order_pass(order, inputs):
    case = Case(Shape(24, 24, 2048), 1.0, 0.0, inputs, 5)
    a, b, _ = gemm_cases.draw(case)
    products = a[:, :, None] * b[None]
    size = np.abs(products)
    if order == "descending":
        products = np.take_along_axis(products, np.argsort(-size, axis=1), axis=1)
    elif order == "ascending":
        products = np.take_along_axis(products, np.argsort(size, axis=1), axis=1)
    elif order == "shuffled":
        products = products[:, np.random.default_rng(0).permutation(2048)]
    if order == "pairwise":
        while products.shape[1] > 1:
            products = products[:, ::2] + products[:, 1::2]
        result = products[:, 0]
    else:
        result = np.zeros((24, 24), np.float32)
        for index in range(products.shape[1]):
            result += products[:, index]
    verdict = judge(case, result)
    assert verdict.passed, verdict.message


NORMAL = Case(Shape(64, 64, 96), 0.75, -1.5, "normal", 3)


def right(case=NORMAL):
    a, b, c0 = gemm_cases.draw(case)
    return fp32_gemm(a, b, case.alpha, case.beta, c0)


def test_a_right_result_passes_and_its_error_is_a_few_roundings():
    verdict = judge(NORMAL, right())
    assert verdict.passed
    assert 0 < verdict.err_scaled_max < bounds.gamma(96) / 2**-24
    assert 0 < verdict.err_fro < 1e-5


def remade(change, case: Case = NORMAL):
    """The right kernel's result on changed operands."""
    return fp32_gemm(*change(*gemm_cases.draw(case)), case.alpha, case.beta, gemm_cases.draw(case)[2])


def spoiled(where, value, case: Case = NORMAL):
    result = right(case)
    result[where] = value(result) if callable(value) else value
    return result


def on(inputs, beta=0.0) -> Case:
    return Case(Shape(16, 16, 8), 1.0, beta, inputs, 9)


ZERO, SUBNORMAL, TINY = on("zero rows and columns"), on("subnormal A"), on("subnormal products")
SPECIAL, OVERFLOW, UNREAD = on("Inf and NaN"), on("overflow"), dataclasses.replace(NORMAL, beta=0.0)
NOTHING = Case(Shape(16, 16, 8), 0.0, 0.0, "Inf and NaN", 9)


def flushed(case):
    result = right(case)
    return np.where(np.abs(result) < np.finfo(np.float32).tiny, np.float32(0), result)


def where(kind, value, case=SPECIAL):
    result = right(case)
    return np.where(kind(result), value if np.isscalar(value) else value(result), result)


FAULTS = {
    "transposed": (NORMAL, lambda: np.ascontiguousarray(right().T)),
    "one NaN": (NORMAL, lambda: spoiled((63, 63), np.nan)),
    "one Inf": (NORMAL, lambda: spoiled((63, 63), np.inf)),
    "one -Inf": (NORMAL, lambda: spoiled((63, 63), -np.inf)),
    "a tile unwritten": (NORMAL, lambda: spoiled(np.s_[32:48, 16:32], np.nan)),
    "last term missing": (NORMAL, lambda: remade(lambda a, b, c: (a[:, :-1], b[:-1]))),
    "one stale index of k": (NORMAL, lambda: remade(lambda a, b, c: (np.hstack([a[:, :-1], a[:, -2:-1]]), b))),
    "beta left out": (NORMAL, lambda: fp32_gemm(*gemm_cases.draw(NORMAL)[:2], NORMAL.alpha)),
    "alpha left out": (NORMAL, lambda: right(NORMAL) / np.float32(NORMAL.alpha)),
    "C read although beta is 0": (UNREAD, lambda: right(UNREAD) + 0 * gemm_cases.draw(UNREAD)[2]),
    "A and B read although alpha is 0": (NOTHING, lambda: np.float32(0) * fp32_gemm(*gemm_cases.draw(NOTHING)[:2])),
    "a zero row that is not": (ZERO, lambda: spoiled((0, 3), 1e-44, ZERO)),
    "subnormal inputs flushed": (SUBNORMAL, lambda: flushed(SUBNORMAL)),
    "subnormal results flushed": (TINY, lambda: flushed(TINY)),
    "zeros for NaN": (SPECIAL, lambda: where(np.isnan, 0.0)),
    "ones for Inf": (SPECIAL, lambda: where(np.isinf, 1.0)),
    "the other Inf": (SPECIAL, lambda: where(np.isinf, lambda result: -result)),
    "the largest number for Inf": (OVERFLOW, lambda: spoiled((0, 0), np.finfo(np.float32).max, OVERFLOW)),
}
"""By fault: the case that shows it, and the wrong result."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_fails_and_the_right_one_does_not(fault):
    case, wrong = FAULTS[fault]
    assert judge(case, right(case)).passed and not judge(case, wrong()).passed


def test_what_is_wrong_is_counted_and_located():
    message = judge(NORMAL, FAULTS["a tile unwritten"][1]()).message
    assert "256 of 4096" in message and "C[32,16] = nan" in message


def test_a_size_that_a_rung_cannot_take_is_refused_by_name():
    with pytest.raises(UserError, match=r"ladder\.example cannot run 256x129x16.*N = 129 is not a multiple of 128"):
        TILED.check(Shape(256, 129, 16))
    outcomes = list(gemm.refusal_cases(TILED))
    assert len(outcomes) == 3 and all(judged.verdict.passed for judged in outcomes)
    assert not list(gemm.refusal_cases(ANY_SIZE))


def test_a_rung_that_refuses_nothing_is_caught():
    class Careless(Kernel):
        def check(self, shape):
            return None

    careless = Careless(**{field.name: getattr(TILED, field.name) for field in dataclasses.fields(TILED)})
    assert not any(judged.verdict.passed for judged in gemm.refusal_cases(careless))


def test_a_kernels_own_shapes_are_tried_with_exact_products_too():
    halves = {"dtype_in": "bf16", "dtype_out": "bf16", "arguments": ("a", "b", "c"), "multiple_of": {"n": 8, "k": 8}}
    own = changed(ANY_SIZE, **halves).with_promises(gate_shapes=(Shape(64, 80, 4096),))
    extra = [case for case in gemm_cases.gemm_cases(own, [1]) if case.shape == Shape(64, 80, 4096)]
    assert [case.inputs for case in extra] == ["normal", gemm_cases.EXACT]
