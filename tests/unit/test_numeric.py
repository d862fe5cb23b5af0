"""The numerical gate's judgement of products, on the CPU: emulated units of every type pass it, spoiled ones do not."""

import dataclasses

import numpy as np
import pytest
from records import changed, record

from gemmrepro.core.dtypes import DTYPES, narrow
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm, gemm_cases, operations
from gemmrepro.gates.gate import Case
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

TYPES = {"tf32": "fp32", "fp64": "fp64", "fp8_e4m3": "fp16", "fp8_e5m2": "fp16", "int8": "int32"}
PLAIN = {"arguments": ("a", "b", "c")}


def typed(dtype: str) -> Kernel:
    step = 16 // DTYPES[dtype]
    multiple_of = {"n": step, "k": step}
    return record("ladder.example", dtype_in=dtype, dtype_out=TYPES[dtype], multiple_of=multiple_of, **PLAIN)


def halves(promoted: int = 0) -> Kernel:
    types = {"dtype_in": "fp16", "dtype_acc": "fp16", "dtype_out": "fp32"}
    return record("ladder.example", promoted=promoted, multiple_of={"k": 8}, **types, **PLAIN)


ANY_SIZE = record("ladder.example")
TILED = record("ladder.example", multiple_of={"m": 128, "n": 128, "k": 16})
KERNELS = {"any size": ANY_SIZE, "multiples": TILED} | {dtype: typed(dtype) for dtype in TYPES}
KERNELS |= {f"halves, promoted {promoted}": halves(promoted) for promoted in (0, 16, 64)}
REFERENCES = gemm.References()


@pytest.fixture(autouse=True)
def everything_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "ON_HOST", 1 << 40)


def in_order(a, b, alpha=1.0, beta=0.0, c0=None, kind=np.float32):
    """Sums in order of k, as every rung of the ladder makes them (without fused rounding)."""
    a, b, total = a.astype(kind), b.astype(kind), np.zeros((a.shape[0], b.shape[1]), kind)
    with np.errstate(all="ignore"):
        for p in range(a.shape[1] if alpha else 0):  # as in BLAS
            total += a[:, p : p + 1] * b[p]
        result = kind(alpha) * total
        return result if beta == 0 else result + kind(beta) * c0


def tensor_core(a, b, keep, block):
    """A unit that adds blocks of exact products to its sum, aligned to the largest term, to `keep` bits of it."""
    total = np.zeros((a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], block):
            terms = [total, *(np.outer(a[:, p], b[p]) for p in range(start, min(start + block, a.shape[1])))]
            largest = np.max(np.abs(terms), axis=0)
            step = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - keep + 1)
            whole = np.sum(terms, axis=0)
            total = np.where(np.isfinite(whole), sum(np.trunc(term / step) * step for term in terms), whole)
    return total


def with_half_sums(a, b, promoted, block=16):
    """A unit that rounds its sum to fp16 after `block` exact products; every `promoted` of them go to fp32."""
    outer, total = np.zeros((2, a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], block):
            if promoted and start % promoted == 0:
                outer, total = (outer + total).astype(np.float32).astype(float), np.zeros_like(total)
            total = (total + a[:, start : start + block] @ b[start : start + block]).astype(np.float16).astype(float)
        return (outer + total).astype(np.float32)


def multiplied(kernel, case, a, b):
    """What an honest kernel may make of A and B."""
    dtype = kernel.compute.dtype_in
    if dtype == "fp16":
        return with_half_sums(a, b, kernel.compute.promoted, 8 if kernel.compute.promoted else 16)
    if dtype == "fp32":
        return in_order(a, b, case.alpha, case.beta, data(kernel, case).c)
    if dtype == "int8":
        return a @ b
    return in_order(a, b, kind=np.float64) if dtype == "fp64" else tensor_core(a, b, *UNITS.get(dtype, (14, 32)))


UNITS = {"tf32": (24, 4)}


def data(kernel, case):
    return REFERENCES.of(kernel.problem, case)


def wrong(kernel: Kernel, case: Case, got: np.ndarray) -> list[str]:
    """What the gate has against a result, which may be given in float64."""
    right, dtype = data(kernel, case), kernel.problem.dtype_out
    with np.errstate(over="ignore", invalid="ignore"):
        stored = narrow(got if dtype in ("fp64", "int32") else got.astype(np.float32), dtype)
    verdict, reference, _ = gemm.judge_numbers(stored, right, case, kernel.problem, kernel)
    exact = gemm.inexact(stored, reference, kernel.problem) if case.inputs in gemm_cases.EXACT_LAWS else []
    return [*([] if verdict.passed else [verdict.message]), *exact]


def small(kernel, seed):
    """The cases that an emulation can run in a unit test."""
    most = 3e8 if kernel.compute.dtype_in == "fp32" else 2e7
    return [one for one in gemm_cases.gemm_cases(kernel, [seed]) if one.shape.m * one.shape.n * one.shape.k < most]


@pytest.mark.parametrize("name", KERNELS)
def test_an_honest_kernel_passes_every_law(name):
    kernel = KERNELS[name]
    cases = small(kernel, 5)
    laws = {case.inputs for case in cases}
    if name in TYPES:
        assert laws == {"normal", *gemm_cases.INPUTS_BY_DTYPE[name]}
    if "halves" in name:
        assert (gemm_cases.EXACT in laws) == (kernel.compute.promoted == 16) != (gemm_cases.UNITS in laws)
    for case in cases:
        assert not wrong(kernel, case, multiplied(kernel, case, *data(kernel, case).wide)), case


NORMAL = Case(Shape(64, 64, 96), 0.75, -1.5, "normal", 3)
UNREAD = dataclasses.replace(NORMAL, beta=0.0)


def on(inputs, alpha=1.0) -> Case:
    return Case(Shape(16, 16, 8), alpha, 0.0, inputs, 9)


ZERO, TINY, SPECIAL, OVERFLOW = map(on, ("zero rows and columns", "subnormal products", "Inf and NaN", "overflow"))
NOTHING = on("Inf and NaN", alpha=0.0)


def right(case=NORMAL, change=lambda a, b: (a, b), **scalars):
    """The right kernel's result on changed operands."""
    given = {"alpha": case.alpha, "beta": case.beta, "c0": data(ANY_SIZE, case).c} | scalars
    return in_order(*change(*data(ANY_SIZE, case).wide), **given)


def spoiled(where, value, case: Case = NORMAL):
    result = right(case)
    result[where] = value
    return result


def where(kind, value, case=SPECIAL):
    result = right(case)
    return np.where(kind(result), value(result) if callable(value) else value, result)


FAULTS = {
    "transposed": (NORMAL, lambda: np.ascontiguousarray(right().T)),
    "one NaN": (NORMAL, lambda: spoiled((63, 63), np.nan)),
    "last term missing": (NORMAL, lambda: right(change=lambda a, b: (a[:, :-1], b[:-1]))),
    "one stale index of k": (NORMAL, lambda: right(change=lambda a, b: (np.hstack([a[:, :-1], a[:, -2:-1]]), b))),
    "beta left out": (NORMAL, lambda: right(beta=0.0)),
    "alpha left out": (NORMAL, lambda: right(alpha=1.0)),
    "C read although beta is 0": (UNREAD, lambda: right(UNREAD) + 0 * data(ANY_SIZE, UNREAD).c),
    "A and B read although alpha is 0": (NOTHING, lambda: np.float32(0) * right(NOTHING, alpha=1.0)),
    "a zero row that is not": (ZERO, lambda: spoiled((0, 3), 1e-44, ZERO)),
    "subnormal results flushed": (TINY, lambda: where(lambda c: np.abs(c) < np.finfo(np.float32).tiny, 0.0, TINY)),
    "zeros for NaN": (SPECIAL, lambda: where(np.isnan, 0.0)),
    "the other Inf": (SPECIAL, lambda: where(np.isinf, lambda result: -result)),
    "the largest number for Inf": (OVERFLOW, lambda: spoiled((0, 0), np.finfo(np.float32).max, OVERFLOW)),
}
"""By fault: the case that shows it, and the wrong result."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_fails_and_the_right_one_does_not(fault):
    case, result = FAULTS[fault]
    assert not wrong(ANY_SIZE, case, right(case)) and wrong(ANY_SIZE, case, result())


@pytest.mark.parametrize("name", [*TYPES, "halves, promoted 0", "halves, promoted 16"])
def test_a_lost_or_doubled_product_is_seen_in_every_type(name):
    kernel = KERNELS[name]
    law = gemm_cases.exact_inputs(kernel) if "halves" in name else gemm_cases.EXACT_INPUTS[name]
    case = Case(Shape(64, 64, 2032), 1.0, 0.0, law, 2)
    a, b = data(kernel, case).wide
    whole = multiplied(kernel, case, a, b)
    assert not wrong(kernel, case, whole)
    assert wrong(kernel, case, whole - np.outer(a[:, -1], b[-1])) and wrong(
        kernel, case, whole + np.outer(a[:, 0], b[0])
    )


def coarse(kernel, law, result, k=256):
    case = Case(Shape(48, 48, k), 1.0, 0.0, law, 4)
    return kernel, case, result(*data(kernel, case).wide)


def in_fp16(a, b):
    return in_order(a, b, kind=np.float16).astype(np.float64)


@pytest.mark.parametrize(
    ("seen", "name", "law", "result"),
    [
        (True, "fp8_e4m3", gemm_cases.SMALLEST, in_fp16),
        (False, "fp8_e4m3", gemm_cases.SMALLEST, lambda a, b: tensor_core(a, b, 14, 32)),
        (True, "fp64", "normal", lambda a, b: in_order(a, b).astype(np.float64)),
        (True, "fp64", "normal", lambda a, b: a.astype(np.float32).astype(np.float64) @ b),
        (True, "tf32", "normal", lambda a, b: tensor_core(a, b, 11, 4)),
        (True, "int8", gemm_cases.EXTREMES_8, lambda a, b: (a @ b).astype(np.int64).astype(np.int16).astype(float)),
        (True, "halves, promoted 16", "uniform", lambda a, b: with_half_sums(a, b, 0)),
        (False, "halves, promoted 0", "uniform", lambda a, b: with_half_sums(a, b, 0)),
        (True, "halves, promoted 16", "overflow, fp16", lambda a, b: a @ b),  # finite, so not kept in fp16
        (False, "halves, promoted 16", "overflow, fp16", lambda a, b: with_half_sums(a, b, 16)),
    ],
)
def test_coarser_sums_are_seen_and_those_of_the_unit_are_not(seen, name, law, result):
    k = 2032 if "fp8" in name or law == "uniform" else 256
    assert bool(wrong(*coarse(KERNELS[name], law, result, k))) == seen


def test_a_kernels_own_shapes_are_tried_with_exact_products_too():
    types = {"dtype_in": "bf16", "dtype_out": "bf16", "multiple_of": {"n": 8, "k": 8}}
    own = changed(ANY_SIZE, **types, **PLAIN).with_promises(gate_shapes=(Shape(64, 80, 4096),))
    extra = [case for case in gemm_cases.gemm_cases(own, [1]) if case.shape == Shape(64, 80, 4096)]
    assert [case.inputs for case in extra] == ["normal", gemm_cases.EXACT]


def test_where_sums_are_promoted_is_part_of_the_gate_key_and_only_for_halves():
    assert operations.gate_key(halves(16), "build") != operations.gate_key(halves(32), "build")
    for refused in ({"promoted": 8}, {"promoted": 32, "dtype_acc": "fp32"}):
        with pytest.raises(UserError, match="promoted"):
            changed(halves(), **refused)
