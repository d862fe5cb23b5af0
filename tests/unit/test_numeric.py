"""The numerical gate's comparison, without a GPU: what it must let pass and what it must not."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from records import changed, record

from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.gates import bounds, ceilings, gate, gemm, gemm_cases
from gemmrepro.operations import Problem, Shape
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


def test_a_kernel_that_reads_a_and_b_although_alpha_is_zero_fails():
    found = []
    for case in gemm_cases.gemm_cases(ANY_SIZE, [11]):
        if case.alpha == 0 and case.inputs == "Inf and NaN":
            a, b, c0 = gemm_cases.draw(case)
            with np.errstate(invalid="ignore"):
                read = np.float32(0) * fp32_gemm(a, b, 1.0)
            found.append(judge(case, read if case.beta == 0 else read + np.float32(case.beta) * c0).passed)
    assert found == [False, False]


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
@pytest.mark.parametrize("inputs", ["normal", "uniform", "wide exponents, phi = 4", "cancellation"])
def test_fp32_sums_in_any_order_pass(order, inputs):
    case = gemm_cases.Case(Shape(24, 24, 2048), 1.0, 0.0, inputs, 5)
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


NORMAL = gemm_cases.Case(Shape(64, 64, 96), 0.75, -1.5, "normal", 3)


def right(case=NORMAL):
    a, b, c0 = gemm_cases.draw(case)
    return fp32_gemm(a, b, case.alpha, case.beta, c0)


def test_a_right_result_passes_and_its_error_is_a_few_roundings():
    verdict = judge(NORMAL, right())
    assert verdict.passed
    assert 0 < verdict.err_scaled_max < bounds.gamma(96) / 2**-24
    assert 0 < verdict.err_fro < 1e-5


def spoiled(value):
    result = right()
    result[63, 63] = value
    return result


def without_last_term():
    a, b, c0 = gemm_cases.draw(NORMAL)
    return fp32_gemm(a[:, :-1], b[:-1], NORMAL.alpha, NORMAL.beta, c0)


def with_stale_tile(depth):
    """The last step of K computed from the step before it."""
    a, b, c0 = gemm_cases.draw(NORMAL)
    a[:, -depth:] = a[:, -2 * depth : -depth]
    return fp32_gemm(a, b, NORMAL.alpha, NORMAL.beta, c0)


FAULTS = {
    "transposed": lambda: np.ascontiguousarray(right().T),
    **{f"one {value}": functools.partial(spoiled, value) for value in (np.nan, np.inf, -np.inf)},
    "last term missing": without_last_term,
    "one stale index of k": functools.partial(with_stale_tile, 1),
    "two stale indices of k": functools.partial(with_stale_tile, 2),
    "beta left out": lambda: fp32_gemm(*gemm_cases.draw(NORMAL)[:2], NORMAL.alpha),
    "alpha left out": lambda: fp32_gemm(*gemm_cases.draw(NORMAL)[:2], 1.0, NORMAL.beta, gemm_cases.draw(NORMAL)[2]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_fails(fault):
    assert not judge(NORMAL, FAULTS[fault]()).passed


def test_one_unwritten_tile_fails_and_is_located():
    result = right()
    result[32:48, 16:32] = np.nan
    verdict = judge(NORMAL, result)
    assert not verdict.passed
    assert "256 of 4096" in verdict.message
    assert "C[32,16] = nan" in verdict.message


def test_c_must_not_be_read_when_beta_is_zero():
    case = dataclasses.replace(NORMAL, beta=0.0)
    a, b, c0 = gemm_cases.draw(case)
    assert np.isnan(c0).all()
    assert judge(case, fp32_gemm(a, b, case.alpha)).passed
    assert not judge(case, fp32_gemm(a, b, case.alpha) + np.float32(0.0) * c0).passed


def test_zero_rows_must_be_exactly_zero():
    case = gemm_cases.Case(Shape(16, 16, 8), 1.0, 0.0, "zero rows and columns", 9)
    result = right(case)
    assert judge(case, result).passed
    result[0, 3] = 1e-44
    assert not judge(case, result).passed


@pytest.mark.parametrize("inputs", ["subnormal A", "subnormal products"])
def test_flushing_subnormals_to_zero_fails(inputs):
    case = gemm_cases.Case(Shape(16, 16, 8), 1.0, 0.0, inputs, 9)
    result = right(case)
    assert judge(case, result).passed
    flushed = np.where(np.abs(result) < np.finfo(np.float32).tiny, np.float32(0), result)
    assert not judge(case, flushed).passed


def test_infinities_and_nans_must_be_where_the_reference_has_them():
    case = gemm_cases.Case(Shape(16, 16, 8), 1.0, 0.0, "Inf and NaN", 9)
    result = right(case)
    assert np.isnan(result).any() and np.isinf(result).any() and np.isfinite(result).any()
    assert judge(case, result).passed
    for wrong, right_kind in ((0.0, np.isnan), (1.0, np.isinf)):
        spoiled = result.copy()
        spoiled[right_kind(result)] = wrong
        assert not judge(case, spoiled).passed
    assert not judge(case, np.where(np.isinf(result), -result, result)).passed


def test_overflow_is_expected_exactly_where_it_must_happen():
    case = gemm_cases.Case(Shape(16, 16, 8), 1.0, 0.0, "overflow", 9)
    result = right(case)
    assert np.isinf(result[0, 0]) and np.isfinite(result[1:]).all()
    assert judge(case, result).passed
    result[0, 0] = np.finfo(np.float32).max
    assert not judge(case, result).passed


def test_cases_hold_what_the_gate_promises():
    for which in (ANY_SIZE, TILED):
        cases = gemm_cases.gemm_cases(which, [1, 2])
        assert {case.seed for case in cases} == {1, 2}
        assert {case.inputs for case in cases} == set(gemm_cases.INPUTS_BY_DTYPE["fp32"])
        scalars = {(case.alpha, case.beta) for case in cases}
        assert set(gemm_cases.SCALARS) <= scalars
        assert all(which.takes(case.shape) for case in cases)
        assert any(len({case.shape.m, case.shape.n, case.shape.k}) == 3 for case in cases)
    tails = {case.shape for case in gemm_cases.gemm_cases(ANY_SIZE, [1])}
    assert Shape(1, 1, 1) in tails and any(shape.k == 1 for shape in tails)
    assert any(shape.m % 32 and shape.n % 32 and shape.k % 32 for shape in tails)


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


def test_the_emulated_shears_of_a_rotation_stay_bounded_and_others_do_not():
    assert np.abs(ceilings.shears(0.75, -0.75, 96, 8, 128)).max() < 1e6
    assert np.abs(ceilings.shears(1.0, 1.0, 32, 8, 128)).max() > 1e6


# 16-bit types and tensor cores

BF16 = Problem("gemm", "bf16", "bf16", "row,col,row")
HALVES = changed(ANY_SIZE, dtype_in="bf16", dtype_out="bf16", arguments=("a", "b", "c"), multiple_of={"n": 8, "k": 8})


def judged(problem: Problem, k: int, spoil=lambda exact: exact):
    """The verdict on a product rounded to the problem's type, `spoil` applied to it in float64 before."""
    rng = np.random.default_rng(k)
    a, b = (narrow(rng.standard_normal(size, dtype=np.float32), problem.dtype_in) for size in ((96, k), (k, 80)))
    reference, scale = gate.reference_gemm(widen(a, problem.dtype_in), widen(b, problem.dtype_in), 1.0, 0.0, None)
    result = narrow(spoil(reference).astype(np.float32), problem.dtype_out)
    return gate.compare(result, reference, scale, bounds.bound(problem, k), dtype=problem.dtype_out)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("k", [8, 72, 1024, 4096])
def test_a_rounded_product_passes_and_one_off_by_two_roundings_does_not(dtype, k):
    problem = Problem("gemm", dtype, dtype, "row,col,row")
    assert judged(problem, k).passed
    unit = bounds.UNIT_ROUNDOFF[dtype]
    slack = 2 * bounds.bound(problem, k) * k / unit
    assert not judged(problem, k, lambda exact: exact * (1 + (4 + slack) * unit)).passed


def test_a_lost_product_in_a_long_sum_is_seen_by_the_exact_case():
    """What the bound on a long sum lets pass, one product of thousands, an exact product does not."""
    rng = np.random.default_rng(0)
    a, b = gemm_cases.INPUTS[gemm_cases.EXACT](rng, Shape(64, 64, 4096))
    exact = narrow((a.astype(np.float64) @ b).astype(np.float32), "bf16")
    lost = narrow((a[:, :-1].astype(np.float64) @ b[:-1]).astype(np.float32), "bf16")
    assert (exact != lost).any()


def test_halves_are_judged_on_what_they_can_hold():
    cases = gemm_cases.gemm_cases(HALVES, [1])
    assert {case.inputs for case in cases} == set(gemm_cases.INPUTS_BY_DTYPE["bf16"])
    assert {(case.alpha, case.beta) for case in cases} == {(1.0, 0.0)}
    assert all(HALVES.takes(case.shape) for case in cases)
    assert sum(case.inputs == gemm_cases.EXACT for case in cases) >= 8
    with np.errstate(over="raise"):
        for name in set(gemm_cases.INPUTS_BY_DTYPE["fp16"]) - {"overflow, fp16", "Inf and NaN"}:
            a, b, _ = gemm_cases.draw(gemm_cases.Case(Shape(40, 40, 40), 1.0, 0.0, name, 1))
            assert np.isfinite(narrow(a, "fp16")).all() and np.isfinite(narrow(b, "fp16")).all(), name


def test_a_kernels_own_shapes_are_tried_with_exact_products_too():
    own = HALVES.with_promises(gate_shapes=(Shape(64, 80, 4096),))
    extra = [case for case in gemm_cases.gemm_cases(own, [1]) if case.shape == Shape(64, 80, 4096)]
    assert [case.inputs for case in extra] == ["normal", gemm_cases.EXACT]


def test_a_result_beyond_the_type_must_be_infinite():
    reference, scale = np.array([[7e4, 6.5e4]]), np.array([[7e4, 6.5e4]])
    good = np.array([[np.inf, 65024.0]], np.float16)
    assert gate.compare(good, reference, scale, 1e-6, dtype="fp16").passed
    assert not gate.compare(np.array([[65504.0, 65024.0]], np.float16), reference, scale, 1e-6, dtype="fp16").passed


def test_the_tensor_core_loop_returns_to_zero_after_four_iterations():
    sums = [ceilings.wgmma_sum(count, 1.0, 1.0) for count in range(1, 6)]
    assert abs(sums[3]) < 1e-9 and sums[4] == pytest.approx(sums[0])
    assert min(abs(one - other) for one, other in itertools.pairwise(sums)) > 50, "a tile more or less shows"
    assert ceilings.wgmma_sum(2, 0.5, 2.0) == pytest.approx(sums[1])


def test_scattered_elements_look_normal():
    drawn = ceilings.scatter(0, 100_000)
    assert abs(float(drawn.mean())) < 0.02 and abs(float(drawn.std()) - 1.15) < 0.02
    assert len(np.unique(drawn)) > 50_000


def test_an_outer_product_that_returns_leaves_what_it_began_with():
    x, y = 2.0 * (1.0 + 0.03 * 5 + 0.11 * np.arange(8)), 3.0 * (0.5 - 0.02 * 5 + 0.07 * np.arange(16))
    want = (x[:, None] - y).sum()
    assert ceilings.outer_sums(2.0, 3.0, 8, 16, 128)[5] == pytest.approx(want)
