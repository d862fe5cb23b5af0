"""The numerical gate of the micro-kernels that measure arithmetic ceilings: do they execute the FLOP that they count?

Each result must match a NumPy emulation. The multiply-add loops write a sum only if their values exceed a bound, the
tensor-core loops the sum of one thread.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits, narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import UNIT_ROUNDOFF
from gemmrepro.gates.gate import POISON_BITS, Case, Gate, Guarded, Judged, Verdict
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

CEILING_BOUND = 1e6
"""Sums of timed loops stay below this."""


@dataclass(frozen=True)
class _Trace:
    """The outcome of one launch: the output, whether it was written, and whether a guard element was."""

    value: float
    written: bool
    broken: bool

    def verdict(self, message: str, error: float | None = None) -> Verdict:
        if self.broken:
            message = f"{message}; memory outside the output was overwritten".removeprefix("; ")
        return Verdict(not message, error, None, message)


Loop = Callable[[float, float, int], _Trace]
"""Launches a loop with amplitudes a and b and a number of iterations."""


class ArithmeticCeiling(Gate):
    """The loops that measure arithmetic ceilings; the kernel's entry point selects the emulation."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        """See `Gate.cases`. The loops have no random inputs, so seeds are ignored.
        Raises UserError if there is no emulation of the loop."""
        if kernel.code.entry not in _LOOPS:
            raise UserError(
                f"{kernel.id}: no loop '{kernel.code.entry}' is emulated; add it to gemmrepro.gates.ceilings."
            )

        def loop(a: float, b: float, iterations: int) -> _Trace:
            out = Guarded(np.full(1, POISON_BITS[4], np.uint32).view(np.float32))
            launch(Operands(kernel.problem, _SHAPE, (), out.array, a, b, iterations))
            session.sync()
            got = out.array.get()
            return _Trace(float(got[0]), bool(got.view(np.uint32)[0] != POISON_BITS[4]), bool(out.broken()))

        for case, verdict in _LOOPS[kernel.code.entry](kernel, loop):
            yield Judged(case, verdict, 0.0)

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """The output must be untouched or small: the values stayed within their bound."""
        output = operands.output
        written = not bool((bits(output) == POISON_BITS[output.dtype.itemsize]).all())
        bounded = not written or abs(float(output[0])) < CEILING_BOUND
        return Verdict(bounded, None, None, "" if bounded else "the loop left its bounds")


_SHAPE = Shape(1, 1, 1)


def _threads(kernel: Kernel) -> int:
    return math.prod(kernel.launch(_SHAPE).block)


def shears(a: float, b: float, shear_pairs: int, pairs: int, threads: int) -> np.ndarray:
    """The sums of the FFMA ceiling's threads, emulated in NumPy: [threads] float64.
    Each FMA is a float64 operation rounded to float32, exact except for rare double roundings: allow a few ulp."""
    thread = np.arange(threads, dtype=np.float32)[:, None]
    pair = np.arange(pairs, dtype=np.float32)[None, :]

    def fma(p: Any, q: Any, r: Any) -> np.ndarray:
        return (np.float64(np.float32(p)) * q.astype(np.float64) + r.astype(np.float64)).astype(np.float32)

    x = fma(0.11, np.broadcast_to(pair, (threads, pairs)), fma(0.03, thread, np.float32(1.0) + 0 * thread) + 0 * pair)
    y = fma(0.07, np.broadcast_to(pair, (threads, pairs)), fma(-0.02, thread, np.float32(0.5) + 0 * thread) + 0 * pair)
    for _ in range(shear_pairs):
        x = fma(a, y, x)
        y = fma(b, x, y)
    return (x + y).astype(np.float64).sum(axis=1)


def _shear_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """The FFMA ceiling only writes a sum that exceeds its bound, so cases provoke both outcomes.
    With a and b of the same sign the shears grow exponentially, and the value written must be one of the threads' sums.
    With a = -b they rotate, and nothing may be written."""
    pairs, turns = kernel.params["pairs"], kernel.params["turns"]
    for a, b, iterations in ((1.0, 1.0, 1), (0.75, 0.5, 2), (0.75, -0.75, 3), (0.25, -0.25, 64)):
        trace = loop(a, b, iterations)
        message, error = "", None
        if a * b < 0:
            if trace.written:
                message = f"a rotation left its bounds: {trace.value:.9g}"
        else:
            sums = shears(a, b, turns * iterations, pairs, _threads(kernel))
            error = float(np.min(np.abs(sums - trace.value) / np.abs(sums)))
            # The emulation rounds as the GPU does except for the sum and rare double roundings; a wrong number of
            # shears is off by a factor.
            if not error <= 4 * turns * iterations * UNIT_ROUNDOFF["fp32"]:
                message = f"{trace.value:.9g} is no thread's sum; the nearest is off by {error:.2g}"
            error = error / UNIT_ROUNDOFF["fp32"]
        yield Case(_SHAPE, a, b, f"shears, {iterations} iterations", 0), trace.verdict(message, error)


def outer_sums(a: float, b: float, rows: int, columns: int, threads: int) -> np.ndarray:
    """The final sums of the outer-product loop's threads, without rounding: [threads] float64.
    Iterations alternately add and subtract the same products, so the initial values x - y remain."""
    thread = np.arange(threads, dtype=np.float64)[:, None]
    x = a * (1.0 + 0.03 * thread + 0.11 * np.arange(rows))
    y = b * (0.5 - 0.02 * thread + 0.07 * np.arange(columns))
    return columns * x.sum(axis=1) - rows * y.sum(axis=1)


def _outer_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """Values so large that the sum is written; products that overflow, which proves them computed; and neither."""
    rows, columns = kernel.params["rows"], kernel.params["columns"]
    for a, b, iterations in ((1e6, 1e-3, 1), (-3e5, 2e-2, 3), (1e20, 1e20, 1), (0.75, -0.75, 2)):
        trace, message = loop(a, b, iterations), ""
        if abs(a * b) > 1e38:
            # A product is exact inside a multiply-add, so the sums become and stay infinite. A thread whose columns all
            # have the same sign writes an infinity, the others NaN; the order of these writes is undefined.
            overflowed = trace.written and not math.isfinite(trace.value)
            message = "" if overflowed else "products beyond all bounds left no trace"
        elif abs(a) > 1e3:
            sums = outer_sums(a, b, rows, columns, _threads(kernel))
            error = float(np.min(np.abs(sums - trace.value) / np.abs(sums))) if trace.written else math.inf
            # Sums of 128 values, each with 8 roundings per iteration.
            if not error <= (128 + 8 * iterations) * UNIT_ROUNDOFF["fp32"]:
                message = f"{trace.value:.9g} is no thread's sum; the nearest is off by {error:.2g}"
        elif trace.written:
            message = f"the sums left their bounds: {trace.value:.9g}"
        yield Case(_SHAPE, a, b, f"outer product, {iterations} iterations", 0), trace.verdict(message)


WGMMA_TOLERANCE = 1e-2
"""Absolute tolerance of sums of several hundred, in fp32 with truncation; a wrong or missing tile is off by tens."""


def _hash(values: np.ndarray) -> np.ndarray:
    """The kernel's hash of 32-bit numbers, in 64 bits to keep NumPy from warning of overflow."""
    mask = np.uint64(0xFFFFFFFF)
    values = values.astype(np.uint64) * np.uint64(0x9E3779B1) & mask
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        values = (values ^ values >> np.uint64(shift)) * np.uint64(factor) & mask
    return values ^ values >> np.uint64(16)


def scatter(first: int, count: int) -> np.ndarray:
    """The kernel's input at positions `first` to `first` + `count`: [count] float32, approximately N(0, 1)."""
    place, low = np.arange(first, first + count, dtype=np.uint64), np.uint64(0xFFFF)
    even, odd = _hash(2 * place), _hash(2 * place + 1)
    drawn = (even & low) + (even >> np.uint64(16)) + (odd & low) + (odd >> np.uint64(16))
    return ((drawn.astype(np.int64) - 2 * 0xFFFF) / 32768.0).astype(np.float32)


def wgmma_sum(iterations: int, a: float, b: float) -> float:
    """The sum that the tensor-core loop writes after `iterations` with amplitudes `a` and `b`, in float64.
    Four tiles A[s] [128, 64], of which A[s + 2] = -A[s], and four B[s] [256, 64]; iteration i adds A[s] B[(s + i) % 4]'
    over s. The first thread holds columns 8j and 8j + 1 of rows 0 and 8."""
    rows, columns, depth, stages = 128, 256, 64, 4

    def tiles(first: int, count: int, amplitude: float) -> np.ndarray:
        return widen(narrow(np.float32(amplitude) * scatter(first, count), "bf16"), "bf16")

    half = 2 * rows * depth
    upper = tiles(0, half, a).reshape(2, rows, depth)
    left = np.concatenate([upper, -upper])
    right = tiles(half, stages * columns * depth, b).reshape(stages, columns, depth)
    products = [left[s, [0, 8]] @ right[(s + i) % stages].T for i in range(iterations) for s in range(stages)]
    held = np.sum(products, axis=0)[:, np.arange(columns) % 8 < 2]
    return float(held.sum())


def _sum_case(trace: _Trace, want: float) -> Verdict:
    right = abs(trace.value - want) <= WGMMA_TOLERANCE
    return trace.verdict("" if right else f"the sum is {trace.value:.9g}, expected {want:.9g}")


def _wgmma_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """Sums after 1 to 5 iterations, which exceeds the period of 4, and with other amplitudes."""
    for a, b, iterations in (*((1.0, 1.0, count) for count in range(1, 6)), (0.5, 2.0, 2)):
        case = Case(_SHAPE, a, b, f"scattered tiles, {iterations} iterations", 0)
        yield case, _sum_case(loop(a, b, iterations), wgmma_sum(iterations, a, b))


def mma_sum(iterations: int, a: float, b: float) -> float:
    """The sum that the register loop of mma.sync writes after `iterations` with amplitudes `a` and `b`, in float64.
    The first warp's A [64, 16] and B [64, 16] follow each other in the hash; A is scaled by `a` in even iterations and
    by `b` in odd ones. The first thread holds rows 0 and 8 of every 16 and columns 0 and 1 of every 8."""
    rows, depth = 64, 16
    place = np.arange(rows)

    def operand(first: int, amplitude: float, held: np.ndarray) -> np.ndarray:
        values = np.float32(amplitude) * scatter(first, rows * depth)
        return widen(narrow(values, "fp16"), "fp16").reshape(rows, depth)[held]

    right = operand(rows * depth, 1.0, place % 8 < 2)
    even, odd = (float((operand(0, amplitude, place % 8 == 0) @ right.T).sum()) for amplitude in (a, b))
    return even * ((iterations + 1) // 2) + odd * (iterations // 2)


MMA_CASES = ((1.0, -1.0, 1), (1.0, -1.0, 2), (1.0, 0.5, 2), (1.0, 0.5, 3), (0.5, 2.0, 6), (-1.0, 0.25, 9))


def _mma_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """Sums whose iterations add up, with even and odd counts, and sums that cancel, as in the measurement."""
    for a, b, iterations in MMA_CASES:
        case = Case(_SHAPE, a, b, f"scattered fragments, {iterations} iterations", 0)
        yield case, _sum_case(loop(a, b, iterations), mma_sum(iterations, a, b))


_LOOPS: Mapping[str, Callable[[Kernel, Loop], Iterator[tuple[Case, Verdict]]]] = MappingProxyType(
    {"ffma_loop": _shear_cases, "ffma_rrr": _outer_cases, "wgmma_loop": _wgmma_cases, "mma_loop": _mma_cases}
)
"""The emulation of each loop, by the entry point of its kernel."""
