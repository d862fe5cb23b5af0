"""The numerical gate for types beside fp32 and 16 bits, on the CPU: emulated kernels pass it, spoiled ones do not."""

import numpy as np
import pytest
from records import record

from gemmrepro.core.dtypes import DTYPES, narrow, widen
from gemmrepro.gates import bounds, gate, gemm_cases
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import Kernel

TYPES = {"tf32": "fp32", "fp64": "fp64", "fp8_e4m3": "fp16", "fp8_e5m2": "fp16", "int8": "int32"}


def typed(dtype: str) -> Kernel:
    step = 16 // DTYPES[dtype]
    return record(
        "ladder.example",
        dtype_in=dtype,
        dtype_out=TYPES[dtype],
        arguments=("a", "b", "c"),
        multiple_of={"n": step, "k": step},
    )


def stored(case, dtype):
    """A and B of a case as the gate gives them to a kernel of `dtype`, widened again."""
    a, b, _ = gemm_cases.draw(case)
    if dtype == "fp64" and case.inputs not in gemm_cases.EXACT_INPUTS.values():
        a, b = gemm_cases.deepen(a, case.seed), gemm_cases.deepen(b, case.seed + 1)
    return [widen(narrow(values, dtype), dtype) for values in (a, b)]


def tensor_core(a, b, dtype, keep, block):
    """A unit that adds blocks of exact products to its sum, aligned to the largest term, to `keep` bits of it."""
    total = np.zeros((a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], block):
            terms = [total, *(np.outer(a[:, p], b[p]) for p in range(start, min(start + block, a.shape[1])))]
            largest = np.max(np.abs(terms), axis=0)
            step = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - keep + 1)
            special = ~np.isfinite(np.sum(terms, axis=0))
            cut = sum(np.trunc(term / step) * step for term in terms)
            total = np.where(special, np.sum(terms, axis=0), cut)
    return total


def product(a, b, dtype):
    """What a kernel of `dtype` may make of A and B."""
    if dtype == "int8":
        return a @ b
    if dtype == "fp64":
        total = np.zeros((a.shape[0], b.shape[1]))
        with np.errstate(all="ignore"):
            for p in range(a.shape[1]):
                total = total + np.outer(a[:, p], b[p])  # a rounding a product and a rounding a sum
        return total
    return tensor_core(a, b, dtype, *((14, 32) if dtype.startswith("fp8") else (24, 4)))


def verdict_of(case, dtype, result):
    """The gate's verdict on a result given in float64, and whether exact inputs gave exact numbers."""
    problem = Problem("gemm", dtype, TYPES[dtype])
    a, b = stored(case, dtype)
    reference, scale = gate.reference_gemm(a, b, 1.0, 0.0, None)
    wide = problem.dtype_out in ("fp64", "int32")
    with np.errstate(over="ignore"):
        got = narrow(result if wide else result.astype(np.float32), problem.dtype_out)
        best = narrow(reference if wide else reference.astype(np.float32), problem.dtype_out)
    verdict = gate.compare(
        got,
        reference,
        scale,
        bounds.bound(problem, case.shape.k),
        dtype=problem.dtype_out,
        underflow=bounds.underflow_allowance(case.shape.k, 1.0, problem.dtype_out),
    )
    same = case.inputs not in gemm_cases.EXACT_INPUTS.values() or bool((got == best).all())
    return verdict, same


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_kernel_of_every_type_passes_every_law(dtype):
    kernel = typed(dtype)
    cases = [case for case in gemm_cases.gemm_cases(kernel, [5]) if case.shape.m * case.shape.n * case.shape.k < 2e7]
    assert {case.inputs for case in cases} == {"normal", *gemm_cases.INPUTS_BY_DTYPE[dtype]}
    for case in cases:
        a, b = stored(case, dtype)
        verdict, exact = verdict_of(case, dtype, product(a, b, dtype))
        assert verdict.passed and exact, f"{case}: {verdict.message}"


@pytest.mark.parametrize("dtype", TYPES)
def test_inputs_of_every_law_are_within_the_type(dtype):
    for name in set(gemm_cases.INPUTS_BY_DTYPE[dtype]) - {"Inf and NaN", "NaN, fp8", "overflow"}:
        for values in stored(gemm_cases.Case(Shape(48, 48, 48), 1.0, 0.0, name, 3), dtype):
            assert np.isfinite(values).all(), name
            assert (values != 0).any(), name


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [16, 2032])
def test_a_lost_or_doubled_product_is_seen_in_every_type(dtype, k):
    case = gemm_cases.Case(Shape(64, 64, k), 1.0, 0.0, gemm_cases.EXACT_INPUTS[dtype], 2)
    a, b = stored(case, dtype)
    for spoiled in (a[:, :-1] @ b[:-1], a @ b + np.outer(a[:, 0], b[0])):
        verdict, exact = verdict_of(case, dtype, spoiled)
        assert not (verdict.passed and exact)
    verdict, exact = verdict_of(case, dtype, a @ b)
    assert verdict.passed and exact


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_sums_of_8_bit_floats_in_fp16_are_seen(dtype):
    case = gemm_cases.Case(Shape(32, 32, 2032), 1.0, 0.0, gemm_cases.SMALLEST, 2)
    a, b = stored(case, dtype)
    total = np.zeros((32, 32), np.float16)
    for p in range(2032):
        total = total + np.outer(a[:, p], b[p]).astype(np.float16)
    assert verdict_of(case, dtype, total.astype(np.float64))[1] is False
    # The same sum, as Hopper keeps it, is exact.
    assert verdict_of(case, dtype, tensor_core(a, b, dtype, 14, 32))[1]


def test_fp64_sums_or_inputs_in_fp32_are_seen():
    case = gemm_cases.Case(Shape(48, 48, 256), 1.0, 0.0, "normal", 4)
    a, b = stored(case, "fp64")
    in_fp32 = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)
    rounded = a.astype(np.float32).astype(np.float64) @ b
    for wrong in (in_fp32, rounded):
        assert not verdict_of(case, "fp64", wrong)[0].passed


def test_tf32_sums_in_fp16_and_integers_that_wrap_are_seen():
    case = gemm_cases.Case(Shape(48, 48, 256), 1.0, 0.0, "normal", 4)
    a, b = stored(case, "tf32")
    assert not verdict_of(case, "tf32", tensor_core(a, b, "tf32", 11, 4))[0].passed
    case = gemm_cases.Case(Shape(48, 48, 256), 1.0, 0.0, gemm_cases.EXTREMES_8, 4)
    a, b = stored(case, "int8")
    wrapped = (a @ b).astype(np.int64).astype(np.int16).astype(np.float64)
    verdict, _ = verdict_of(case, "int8", wrapped)
    assert not verdict.passed and "expected" in verdict.message
