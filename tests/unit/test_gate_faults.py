"""One table of operations and faults: every gate passes the honest result and catches each planted fault.

NumPy stands in for the GPU; gates, guard bands, repeats and judgements are real. Numbers of products are judged in
test_numeric, whole kernels that cheat in test_cheats.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy_cupy import NumpyCupy
from records import record

from gemmrepro import registry
from gemmrepro.core.dtypes import INTEGERS, bits, narrow, widen
from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError
from gemmrepro.experiments import path_of
from gemmrepro.gates import ceilings, copies, epilogue, gemm, pointwise, scaled, vectors
from gemmrepro.gates.bounds import allowed_error, tensor_core_gamma
from gemmrepro.gates.gate import GUARD, POISON_BITS, Case, Judged
from gemmrepro.gates.gemm_cases import EXACT, EXTREMES_8, INTEGERS_8
from gemmrepro.gates.operations import Gates, allowed
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import STREAM_CHUNK, Shape
from gemmrepro.registry import Kernel, Launch

SESSION = SimpleNamespace(sync=lambda: None)
MODEL = load_module("fp8_experiments", path_of("fp8"))
TINY = [Case(Shape(20, 24, 64), 0.125, 0.5, "normal", 3), Case(Shape(8, 16, 64), 1.0, 0.0, "normal", 3)]
CASES = {
    "ladder.naive": TINY,
    "ladder.warptile": [Case(Shape(128, 256, 32), 1.0, 0.0, "normal", seed) for seed in (3, 4)],
    "hopper.wgmma": [Case(Shape(24, 136, 512), 1.0, 0.0, EXACT, seed) for seed in (3, 4)],
    "cutile.matmul_int8": [Case(Shape(32, 32, 64), 1.0, 0.0, law, 3) for law in (INTEGERS_8, EXTREMES_8)],
}
"""Cases of GEMM by kernel."""
CANCELLING = Case(Shape(48, 40, 72), -0.25, 1.0, "cancellation", 3)
SCALED = [Case(Shape(20, 136, 400), 1.0, 0.0, law, 3) for law in ("normal", scaled.EXACT)]


@pytest.fixture(autouse=True)
def small_cases_and_numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    monkeypatch.setattr(gemm, "gemm_cases", lambda kernel, _: CASES[kernel.id])
    monkeypatch.setattr(epilogue, "epilogue_cases", lambda kernel, seeds: [*TINY, CANCELLING])
    monkeypatch.setattr(scaled, "cases_of", lambda kernel, seeds: SCALED)
    monkeypatch.setattr(vectors, "LENGTHS", (3, 31, 1023, 4096, 10_007, 20_011))
    monkeypatch.setattr(copies, "LENGTHS", (1, 31, 1023))
    monkeypatch.setattr(copies, "MATRICES", ((1, 1), (3, 17)))
    monkeypatch.setattr(pointwise, "LENGTHS", (1, 5, 4099))


def judged(kernel: Kernel, launch: Launcher, seeds: tuple[int, ...] = (5,)) -> list[Judged]:
    def quiet(given: Operands) -> None:
        kernel.check(given.shape)
        with np.errstate(all="ignore"):
            launch(given)

    found = list(Gates().of(kernel.compute.op).cases(SESSION, kernel, quiet, seeds))
    assert all(bool(one.verdict.message) != one.verdict.passed for one in found)
    return found


def failures(kernel: Kernel, launch: Launcher) -> list[str]:
    """Messages of the cases that fail, of all that the gate has."""
    return [one.verdict.message for one in judged(kernel, launch) if not one.verdict.passed]


def matrices(given: Operands) -> list[np.ndarray]:
    """A[m,k] and B[k,n], widened."""
    shape, problem = given.shape, given.problem
    wide = [widen(np.asarray(stored), problem.dtype_in) for stored in given.inputs[:2]]
    a = wide[0].reshape(shape.m, shape.k)
    return [a, wide[1].reshape(shape.n, shape.k).T if problem.b_is_k_major else wide[1].reshape(shape.k, shape.n)]


def multiplied(given: Operands, lost: int = 0) -> None:
    a, b = (values.astype(np.float64) for values in matrices(given))
    c = given.output.reshape(given.shape.m, given.shape.n)
    made = given.alpha * (a[:, lost:] @ b[lost:]) + (given.beta * np.asarray(c, np.float64) if given.beta else 0)
    dtype = given.problem.dtype_out
    c[...] = narrow(made if dtype in INTEGERS else made.astype(np.float32), dtype)


def off_by_one(given: Operands) -> None:
    multiplied(given)
    given.output.reshape(-1)[0] += 1


def gelu32(z: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return z * np.float32(0.5) * (np.float32(1) + erf(z * np.float32(0.70710678)).astype(np.float32))


def with_epilogue(
    given: Operands,
    bias_off: int = 0,
    gelu: Callable[[np.ndarray], np.ndarray] = gelu32,
    beta: float | None = None,
    lost: int = 0,
) -> None:
    m, n = given.shape.m, given.shape.n
    a, b = (values.astype(np.float32) for values in matrices(given))
    c, bias = (widen(np.asarray(stored), "bf16").astype(np.float32) for stored in given.inputs[2:])
    z = np.float32(given.alpha) * (a[:, lost:] @ b[lost:]) + np.roll(bias, bias_off)
    z = z + np.float32(given.beta if beta is None else beta) * c.reshape(m, n) if given.beta else z
    given.output[...] = narrow(gelu(z).astype(np.float32), "bf16")


def with_scales(given: Operands, change: Callable[[scaled.Drawn], scaled.Drawn] = lambda drawn: drawn) -> None:
    """C as a kernel has it that scales sums of 128 products of a tensor core that keeps 14 bits."""
    m, n, k = given.shape.m, given.shape.n, given.shape.k
    stored = [np.array(one) for one in given.inputs]
    drawn = change(
        scaled.Drawn(
            stored[0].reshape(m, k),
            stored[1].reshape(n, k),
            stored[2].reshape(-1, m),
            stored[3].reshape(-(-n // 128), -1),
        )
    )
    given.output[...] = scaled_product(drawn, given.shape).reshape(given.output.shape)


def scaled_product(drawn: scaled.Drawn, shape: Shape, every: int = 1) -> np.ndarray:
    a, b = (widen(values, "fp8_e4m3") for values in (drawn.a, drawn.b))
    of_b = np.repeat(drawn.scale_b, 128, axis=0)[: shape.n]
    total = np.zeros((shape.m, shape.n), np.float32)
    for step in range(0, -(-shape.k // 128), every):
        part = slice(128 * step, 128 * (step + every))
        fresh = MODEL.modelled(a[:, part], b[:, part], 0)
        total += (fresh * drawn.scale_a[step][:, None] * of_b[:, step]).astype(np.float32)
    return narrow(total, "fp16")


def copied(given: Operands) -> None:
    given.output[...] = given.inputs[0].reshape(given.output.shape)


def added(given: Operands) -> None:
    given.output[...] = given.inputs[0] + given.inputs[1]


def added_in_place(given: Operands) -> None:
    given.output[...] = given.inputs[0] + given.output


def pointwise_gelu(given: Operands) -> None:
    given.output[...] = pointwise.gelu(np.asarray(given.inputs[0])).astype(np.float32)


def summed(given: Operands, of: Callable[[np.ndarray], Any] = np.sum) -> None:
    given.output[0] = of(np.asarray(given.inputs[0]))


def counted(given: Operands) -> None:
    given.output[...] = vectors.counts_of(np.asarray(given.inputs[0]), given.shape.k, np)


def chained(given: Operands, less: int = 0, cycles: int = 100, ns: int = 50) -> None:
    end = copies.advance(given.shape.n, given.shape.k - less)
    given.output[...] = np.array([end, cycles % 2**32, ns % 2**32], np.uint32).view(np.int32)


def walked(given: Operands, less: int = 0) -> None:
    """Follow the links, which hold addresses of their own array modulo 2^32."""
    links = given.inputs[0]
    address = links.__array_interface__["data"][0]
    place = 0
    for _ in range(given.shape.k + 1 - less):
        place = (int(links[place]) - address) % 2**32 // 4
    given.output[...] = place, 100, 50


def streamed(given: Operands, passes_left_out: int = 0) -> None:
    words = given.inputs[0].view(np.uint32).reshape(-1, STREAM_CHUNK).sum(axis=1, dtype=np.uint64) % 2**32
    whole = given.output.view(np.uint32).reshape(given.shape.k, -1)
    whole[...] = words.astype(np.uint32)
    whole[:passes_left_out] = 0


THREADS, LOOP_BOUND = 128, 1e6


def begin(count: int, first: float, step: float, along: float) -> np.ndarray:
    thread = np.arange(THREADS, dtype=np.float64)[:, None]
    return (first + step * thread + along * np.arange(count)).astype(np.float32)


def fma(p: Any, q: Any, r: Any) -> np.ndarray:
    return (np.float64(np.float32(p)) * np.asarray(q, np.float64) + np.asarray(r, np.float64)).astype(np.float32)


def write_large(out: np.ndarray, sums: np.ndarray) -> None:
    for one in sums:
        if not abs(one) < LOOP_BOUND:
            out[0] = one


def sheared(given: Operands, turns: int = 32, keep: int = 8) -> None:
    x, y = begin(8, 1.0, 0.03, 0.11), begin(8, 0.5, -0.02, 0.07)
    for _ in range(turns * given.iterations):
        x = fma(given.alpha, y, x)
        y = fma(given.beta, x, y)
    write_large(given.output, (x + y)[:, :keep].sum(axis=1))


def outer(given: Operands, steps: int = 8, columns: int = 16, lost: bool = False) -> None:
    """ffma_rrr.cu; `lost` skips the subtracting steps."""
    x = fma(given.alpha, begin(8, 1.0, 0.03, 0.11), 0.0)
    y = fma(given.beta, begin(columns, 0.5, -0.02, 0.07), 0.0)
    sums = (x[:, :, None] - y[:, None, :]).astype(np.float32)
    for step in range(steps * given.iterations):
        sign = 1.0 if step % 2 == 0 else -1.0
        if sign > 0 or not lost:
            sums = fma(1.0, sign * x.astype(np.float64)[:, :, None] * y.astype(np.float64)[:, None, :], sums)
    write_large(given.output, sums.sum(axis=(1, 2)))


def summed_fragments(given: Operands, of: Any = ceilings.mma_sum, off: float = 0.0, more: int = 0) -> None:
    given.output[0] = of(given.iterations + more, given.alpha, given.beta) + off


def vector(op: str, dtype: str, **more: Any) -> Kernel:
    launch = Launch((1, 1, 1), (32, 1, 1))
    options = {"op": op, "dtype_in": dtype, "dtype_out": dtype, "layout": "vector", "max_elements": 1 << 62, **more}
    return record("memory.example", launch=lambda shape: launch, **options)


def but(launch: Launcher, **how: Any) -> Launcher:
    return lambda given: launch(given, **how)


def half_unwritten(launch: Launcher) -> Launcher:
    def run(given: Operands) -> None:
        before = np.array(given.output)
        launch(given)
        given.output.reshape(-1)[::2] = before.reshape(-1)[::2]

    return run


def quieted(values: np.ndarray) -> np.ndarray:
    """A copy through arithmetic makes quiet NaNs of signalling ones."""
    stored = values.view(np.uint16)
    return np.where((stored & 0x7FFF) > 0x7C00, stored | 0x200, stored).astype(np.uint16).view(values.dtype)


def counted_as(place: Callable[[np.ndarray, int], np.ndarray]) -> Launcher:
    def run(given: Operands) -> None:
        ids, bins = np.asarray(given.inputs[0]).astype(np.int64), given.shape.k
        given.output[...] = np.bincount(place(ids, bins), minlength=bins + 1)

    return run


def without_outside(given: Operands) -> None:
    counted(given)
    given.output[-1] = 0


def counts_kept() -> Launcher:
    kept: dict[int, np.ndarray] = {}

    def run(given: Operands) -> None:
        counted(given)
        given.output[...] = np.asarray(given.output) + kept.get(given.shape.k, 0)
        kept[given.shape.k] = np.array(given.output)

    return run


def rolled(name: str, by: int, axis: int) -> Launcher:
    return but(with_scales, change=lambda drawn: replace(drawn, **{name: np.roll(getattr(drawn, name), by, axis)}))


def shortened(drawn: scaled.Drawn) -> scaled.Drawn:
    return replace(drawn, a=np.where(np.arange(drawn.a.shape[1]) < 392, drawn.a, 0))


def setting(value: Callable[[Operands], Any]) -> Launcher:
    return lambda given: given.output.__setitem__(..., value(given))


def nothing(given: Operands) -> None:
    pass


def without_tail(given: Operands) -> None:
    end = given.shape.n // 8 * 8
    given.output[:end] = given.inputs[0][:end]


def tanh_form(x: np.ndarray) -> np.ndarray:
    return epilogue.gelu_by_tanh(np.asarray(x, np.float64)).astype(np.float32)


WGMMA = ceilings.wgmma_sum
NAIVE, HISTOGRAM = registry.kernel("ladder.naive"), vector("histogram", "int32", at_most={"k": 256})
HONEST: dict[str, tuple[Kernel, Launcher]] = {
    "gemm": (NAIVE, multiplied),
    "gemm in tiles": (registry.kernel("ladder.warptile"), multiplied),
    "gemm of small integers": (registry.kernel("hopper.wgmma"), multiplied),
    "gemm of bytes": (registry.kernel("cutile.matmul_int8"), multiplied),
    "gemm_epilogue": (registry.kernel("hopper.epilogue"), with_epilogue),
    "gemm_scaled": (registry.kernel("fp8.scaled"), with_scales),
    "vector_add_in_place": (registry.kernel("ladder.vector_add"), added_in_place),
    "vector_add": (registry.kernel("cutile.vector_add"), added),
    "copy": (registry.kernel("cute.copy"), copied),
    "ceiling_bytes": (registry.kernel("ceilings.dram_copy"), copied),
    "gelu": (registry.kernel("pytorch.gelu"), pointwise_gelu),
    "vector_copy": (vector("vector_copy", "fp16"), copied),
    "whole_copy": (registry.kernel("memory.printed_64_half"), copied),
    "reduce": (vector("reduce", "fp32"), summed),
    "histogram": (HISTOGRAM, counted),
    "recurrence": (registry.kernel("ceilings.chain"), chained),
    "walk": (registry.kernel("ceilings.walk_global"), walked),
    "stream": (registry.kernel("ceilings.stream_global"), streamed),
    "ceiling_flops": (registry.kernel("ceilings.ffma"), sheared),
    "ceiling_flops, outer": (registry.kernel("ceilings.ffma_rrr"), outer),
    "ceiling_flops, mma": (registry.kernel("ceilings.mma_f16"), but(summed_fragments, off=0.008)),
    "ceiling_flops, wgmma": (registry.kernel("ceilings.wgmma"), but(summed_fragments, of=WGMMA, off=-0.008)),
}
"""A kernel and an honest launch for each operation."""

WRONG: list[tuple[str, str, Launcher, str]] = [
    ("gemm", "C kept as it was", nothing, "elements are wrong"),
    ("gemm of small integers", "one product of 512 lost", but(multiplied, lost=1), "of small integers are not exact"),
    ("gemm of bytes", "one off by one", off_by_one, "1 of 1024 elements are wrong; the first is C[0,0]"),
    ("gemm_epilogue", "bias of the next column", but(with_epilogue, bias_off=1), "elements are wrong"),
    ("gemm_epilogue", "the tanh form", but(with_epilogue, gelu=tanh_form), "elements are wrong"),
    ("gemm_epilogue", "beta is 1", but(with_epilogue, beta=1.0), "elements are wrong"),
    ("gemm_epilogue", "one product lost", but(with_epilogue, lost=1), "elements are wrong"),
    ("gemm_epilogue", "no GELU", but(with_epilogue, gelu=lambda z: z), "elements are wrong"),
    ("gemm_scaled", "a step's scale for the next", rolled("scale_a", 1, 0), "elements are wrong"),
    ("gemm_scaled", "the scale of the eighth row after", rolled("scale_a", 8, 1), "elements are wrong"),
    ("gemm_scaled", "the last products left out", but(with_scales, change=shortened), "elements are wrong"),
    ("vector_add_in_place", "y overwritten", copied, "elements are wrong"),
    ("vector_add", "x alone", copied, "elements are wrong; the first is ["),
    ("copy", "nothing", nothing, "elements are wrong"),
    ("ceiling_bytes", "nothing", nothing, "elements are wrong"),
    ("gelu", "the tanh form", setting(lambda g: tanh_form(g.inputs[0])), "elements are wrong; the first is ["),
    ("gelu", "every second", half_unwritten(pointwise_gelu), "some elements were never written"),
    ("vector_copy", "quiet NaNs", setting(lambda g: quieted(np.asarray(g.inputs[0]))), "elements are wrong"),
    ("vector_copy", "no tail", without_tail, "elements are wrong"),
    ("reduce", "in fp16", but(summed, of=lambda x: x.astype(np.float16).astype(np.float32).sum()), "the sum is"),
    ("reduce", "the last left out", but(summed, of=lambda x: x[:-1].sum()), "the sum is"),
    ("reduce", "NaN passed over", but(summed, of=np.nansum), "the sum is"),
    ("reduce", "Inf for the largest", but(summed, of=lambda x: np.nan_to_num(x, posinf=3e38).sum()), "the sum is"),
    ("reduce", "a last place", but(summed, of=lambda x: x.sum() * np.float32(1 + 2.0**-23)), "the sum of small"),
    ("histogram", "ids outside left out", without_outside, "elements are wrong"),
    ("histogram", "ids outside in the end bins", counted_as(lambda ids, n: np.clip(ids, 0, n)), "elements are wrong"),
    ("histogram", "counts kept from the launch before", counts_kept(), "or something left over from the first"),
    ("recurrence", "a step too few", but(chained, less=1), "the chain ended at"),
    ("recurrence", "a clock that stands", but(chained, cycles=0, ns=5), "its clocks say 0 cycles and 5 ns"),
    ("walk", "a hop too few", but(walked, less=1), "the walk ended at"),
    ("stream", "a pass too few", but(streamed, passes_left_out=1), "the words read add up to"),
    ("ceiling_flops", "a turn too few", but(sheared, turns=31), "is no thread's sum"),
    ("ceiling_flops", "a sum too few", but(sheared, keep=7), "is no thread's sum"),
    ("ceiling_flops", "nothing", nothing, "is no thread's sum"),
    ("ceiling_flops", "1e20 always", setting(lambda g: 1e20), "a rotation left its bounds: 1.00000002e+20"),
    ("ceiling_flops, outer", "no subtraction", but(outer, lost=True), "is no thread's sum"),
    ("ceiling_flops, outer", "no step", but(outer, steps=0), "products beyond all bounds left no trace"),
    ("ceiling_flops, outer", "nothing", nothing, "the nearest is off by inf"),
    ("ceiling_flops, outer", "Inf always", setting(lambda g: np.inf), "the sums left their bounds"),
    ("ceiling_flops, mma", "beyond rounding", but(summed_fragments, off=-0.02), "expected"),
    ("ceiling_flops, wgmma", "an iteration too many", but(summed_fragments, of=WGMMA, more=1), "expected"),
]
"""Operation, fault, the launch that has it, and what the gate says."""


def whole(array: np.ndarray) -> np.ndarray:
    """The allocation of an array, which holds its guard bands too."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def flip(array: np.ndarray, place: int) -> None:
    bits(np.asarray(array).reshape(-1))[place : place + 1 or None] ^= 1


def leave(given: Operands, number: int) -> None:
    stored = bits(np.asarray(given.output).reshape(-1))
    stored[-1:] = POISON_BITS[stored.itemsize]


OUTSIDE = r"outside (\w|the arrays|the output)"
CHANGED = r"input( \w)? was overwritten"


def overwrite(array: np.ndarray, place: int) -> None:
    """Set what lies `place` elements behind the array's first, which may be a guard."""
    bits(whole(array))[GUARD + place] = 0


def race(given: Operands, number: int) -> None:
    bits(np.asarray(given.output).reshape(-1))[:1] ^= number


SPOILED: dict[str, tuple[Callable[[Operands, int], None], str]] = {
    "an element never written": (leave, r"never written|are wrong|the sum is"),
    "a race": (race, "launches on the same input differ"),
    "an element before the output": (lambda given, number: overwrite(given.output, -1), OUTSIDE),
    "an element behind the output": (lambda given, number: overwrite(given.output, given.output.size), OUTSIDE),
    "an element behind the input": (lambda given, _: overwrite(given.inputs[0], given.inputs[0].size), OUTSIDE),
    # By the last of two or three launches, whose result no other one shows to be wrong.
    "the first input": (lambda given, number: number % 6 == 5 and flip(given.inputs[0], 0), CHANGED),
    "the last input": (lambda given, number: number % 6 == 5 and flip(given.inputs[-1], -1), CHANGED),
}
"""By what a launch touches beside its numbers: what is done after a right launch, and what the gate says."""

ONCE = ("vector_add_in_place", "vector_add", "copy", "ceiling_bytes", "recurrence", "walk", "stream")
"""Exact operations, launched once; of these a race shows as a wrong result alone."""
UNREAD = {"vector_add_in_place", "vector_add", "copy", "ceiling_bytes"}
"""Operations whose gate does not look at the inputs again."""


def applies(op: str, fault: str) -> bool:
    loop = op.startswith("ceiling_flops")
    if "input" in fault:
        return not (loop or op == "recurrence" or (fault in ("the first input", "the last input") and op in UNREAD))
    if fault == "a race":
        return not (loop or op in ONCE)
    return not (
        fault == "an element never written" and (loop or op in ("recurrence", "walk", "stream", "gemm in tiles"))
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op", HONEST)
def test_an_honest_launch_passes(op: str) -> None:
    kernel, launch = HONEST[op]
    found = judged(kernel, launch, (5, 9))
    assert [one.verdict.message for one in found] == [""] * len(found) and len(found) >= 2
    if not op.startswith(("ceiling_flops", "gemm")):
        assert {one.case.seed for one in found} == {5, 9}


@pytest.mark.parametrize(("op", "launch", "says"), [pytest.param(o, g, s, id=f"{o}: {f}") for o, f, g, s in WRONG])
def test_a_wrong_result_is_caught(op: str, launch: Launcher, says: str) -> None:
    assert any(says in message for message in failures(HONEST[op][0], launch))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("op", "fault"), [(op, fault) for op in HONEST for fault in SPOILED if applies(op, fault)])
def test_what_a_launch_touches_beside_its_numbers_is_caught(op: str, fault: str) -> None:
    kernel, right = HONEST[op]
    spoil, says = SPOILED[fault]
    number = -1

    def launch(given: Operands) -> None:
        nonlocal number
        number += 1
        right(given)
        spoil(given, 5 if op in ONCE else number)

    found = failures(kernel, launch)
    assert found and any(re.search(says, message) for message in found), found[:1]


def test_sizes_that_a_kernel_does_not_take_must_be_refused_by_name() -> None:
    tiled, histogram = HONEST["gemm in tiles"][0], HISTOGRAM
    refused = [one.case for one in judged(tiled, multiplied) if one.case.inputs == "refused size"]
    assert {str(case.shape) for case in refused} == {"257x256x32", "256x257x32", "256x256x33"}
    refused = [one.case for one in judged(histogram, counted) if one.case.inputs == "refused size"]
    assert [case.shape.k for case in refused] == [bins for bins in vectors.BINS if bins > 256]
    with pytest.raises(UserError, match=r"memory\.example cannot run 1x8x257: K = 257 exceeds its maximum of 256"):
        histogram.check(Shape(1, 8, 257))
    takes_all = lambda given: counted(given) if given.inputs else None  # noqa: E731
    found = Gates().of("histogram").cases(SESSION, histogram, takes_all, [5])
    said = {one.verdict.message for one in found if not one.verdict.passed}
    assert said == {f"1x{vectors.LENGTHS[-2]}x{bins} should be refused" for bins in vectors.BINS if bins > 256}


def test_sums_in_the_longest_chain_that_the_gate_allows_pass() -> None:
    def lanes(values: np.ndarray) -> np.float32:
        sums = np.zeros(4096, np.float32)
        for start in range(0, len(values), 4096):
            part = values[start : start + 4096]
            sums[: len(part)] += part
        return sums.sum()

    assert failures(vector("reduce", "fp32"), but(summed, of=lanes)) == []


def test_sums_that_stay_in_the_tensor_core_fail_the_long_case(monkeypatch) -> None:
    """With scales of one, for a kernel could not leave sums of different scales there."""
    monkeypatch.undo()
    kernel = registry.kernel("fp8.scaled")
    assert [case.inputs for case in scaled.cases_of(kernel, [1]) if case.shape.k == scaled.LONG][-1:] == ["uniform"]
    case = Case(Shape(16, 24, scaled.LONG), 1.0, 0.0, "uniform", 1)
    drawn = scaled.draw(kernel.problem, case)
    ones = replace(drawn, scale_a=np.ones_like(drawn.scale_a), scale_b=np.ones_like(drawn.scale_b))
    for every, passes in ((1, True), (32, False)):
        got = scaled_product(ones, case.shape, every)
        assert scaled.judge_numbers(got, ones, case, kernel.problem)[0].passed is passes
    assert scaled.scaled_gamma(128) < scaled.scaled_gamma(4096) < 1.001 * scaled.scaled_gamma(128) < 0.0171


FUSED, APART = registry.kernel("hopper.epilogue"), registry.kernel("hopper.epilogue_apart")
FUSED_CASE = Case(Shape(48, 40, 72), 0.125, 0.5, "normal", 3)


def z32(wide: list[np.ndarray]) -> np.ndarray:
    """z in fp32, as a kernel has it."""
    a, b, c, bias = (values.astype(np.float32) for values in wide)
    return np.float32(FUSED_CASE.alpha) * (a @ b) + np.float32(FUSED_CASE.beta) * c + bias


def fused_verdict(found: np.ndarray, wide: list[np.ndarray], **how: bool) -> epilogue.Verdict:
    right = epilogue.reference_of(wide, FUSED_CASE.alpha, FUSED_CASE.beta)
    gamma = tensor_core_gamma(FUSED_CASE.shape.k, "bf16")
    return epilogue.judge_numbers(narrow(found.astype(np.float32), "bf16"), right, gamma, "bf16", **how)


def test_a_library_may_take_the_tanh_form_and_two_launches_may_round_what_they_hand_on() -> None:
    wide = [widen(stored, "bf16") for stored in epilogue.draw(FUSED_CASE, FUSED.problem)]
    z, bias = z32(wide), wide[3].astype(np.float32)
    tanh, without = epilogue.gelu_by_tanh(z.astype(np.float64)), z - bias
    apart = gelu32(widen(narrow(without, "bf16"), "bf16").astype(np.float32) + bias)
    assert fused_verdict(tanh, wide, library=True).passed and not fused_verdict(tanh, wide).passed
    assert fused_verdict(apart, wide, rounded=True).passed and not fused_verdict(apart, wide).passed
    assert not fused_verdict(gelu32(without), wide, library=True).passed
    assert not fused_verdict(z / (1 + np.exp(-1.702 * z)), wide, rounded=True).passed


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
    assert [allowed_error(2.0**-22, dtype) for dtype in ("fp32", "fp8_e4m3")] == [4.0, None]
