"""The numerical gate of the micro-kernels that measure arithmetic ceilings: did they really do the sums they count?

Each makes the same result that NumPy makes from the same recipe. The multiply-add loops
write a sum only when their values leave all bounds; the tensor-core loops write the sum of one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits, narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import UNIT_ROUNDOFF
from gemmrepro.gates.compare import Verdict
from gemmrepro.gates.gate import Case, Gate, Judged
from gemmrepro.gates.guarded import POISON_BITS, Guarded
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

CEILING_BOUND = 1e6
"""The loops that measure ceilings keep their sums below this."""


@dataclass(frozen=True)
class _Trace:
    """What one launch of a loop left behind: its output, whether it wrote at all, and whether it wrote elsewhere."""

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
    """The loops that measure arithmetic ceilings. The entry point says which loop a kernel is."""

    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        """See `Gate.cases`; the loops draw nothing, so no seed matters.

        Raises:
            UserError: the loop is not emulated here.
        """
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
        """A loop that writes its sum at all writes a small one, unless its values left all bounds."""
        output = operands.output
        written = not bool((bits(output) == POISON_BITS[output.dtype.itemsize]).all())
        bounded = not written or abs(float(output[0])) < CEILING_BOUND
        return Verdict(bounded, None, None, "" if bounded else "the loop left its bounds")


_SHAPE = Shape(1, 1, 1)


def _threads(kernel: Kernel) -> int:
    return math.prod(kernel.launch(_SHAPE).block)


def shears(a: float, b: float, turns: int, pairs: int, threads: int) -> np.ndarray:
    """What the FFMA ceiling's threads sum up, emulated in NumPy: [threads] float64.

    Each multiply-add is one float64 operation rounded to float32: exact but for the rarest double rounding, so a
    comparison allows a few units in the last place.
    """
    thread = np.arange(threads, dtype=np.float32)[:, None]
    pair = np.arange(pairs, dtype=np.float32)[None, :]

    def fma(p: Any, q: Any, r: Any) -> np.ndarray:
        return (np.float64(np.float32(p)) * q.astype(np.float64) + r.astype(np.float64)).astype(np.float32)

    x = fma(0.11, np.broadcast_to(pair, (threads, pairs)), fma(0.03, thread, np.float32(1.0) + 0 * thread) + 0 * pair)
    y = fma(0.07, np.broadcast_to(pair, (threads, pairs)), fma(-0.02, thread, np.float32(0.5) + 0 * thread) + 0 * pair)
    for _ in range(turns):
        x = fma(a, y, x)
        y = fma(b, x, y)
    return (x + y).astype(np.float64).sum(axis=1)


def _shear_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """The FFMA ceiling writes its sum only where it left its bounds, so both outcomes are provoked.

    With a and b of one sign the shears grow exponentially and the value written must be one of the threads' sums; with
    a = -b they rotate, and nothing may be written.
    """
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
            # The emulation rounds as the GPU does but for the sum and rare double roundings; a wrong number of turns
            # is off by a factor.
            if not error <= 4 * turns * iterations * UNIT_ROUNDOFF["fp32"]:
                message = f"{trace.value:.9g} is no thread's sum; the nearest is off by {error:.2g}"
            error = error / UNIT_ROUNDOFF["fp32"]
        yield Case(_SHAPE, a, b, f"shears, {iterations} iterations", 0), trace.verdict(message, error)


def outer_sums(a: float, b: float, rows: int, columns: int, threads: int) -> np.ndarray:
    """What the threads of the outer-product loop sum up at its end, without rounding: [threads] float64.

    Steps add and take away the same products in turn, so what is left is what the sums began with, x - y.
    """
    thread = np.arange(threads, dtype=np.float64)[:, None]
    x = a * (1.0 + 0.03 * thread + 0.11 * np.arange(rows))
    y = b * (0.5 - 0.02 * thread + 0.07 * np.arange(columns))
    return columns * x.sum(axis=1) - rows * y.sum(axis=1)


def _outer_cases(kernel: Kernel, loop: Loop) -> Iterator[tuple[Case, Verdict]]:
    """Values so large that the sum is written; products that overflow, which shows that they are made; and neither."""
    rows, columns = kernel.params["rows"], kernel.params["columns"]
    for a, b, iterations in ((1e6, 1e-3, 1), (-3e5, 2e-2, 3), (1e20, 1e20, 1), (0.75, -0.75, 2)):
        trace, message = loop(a, b, iterations), ""
        if abs(a * b) > 1e38:
            # A product is exact inside a multiply-add, so the sums are infinite and stay so. A thread whose columns
            # are all of one sign writes an infinity, the others NaN, and whose write comes last is not defined.
            overflowed = trace.written and not math.isfinite(trace.value)
            message = "" if overflowed else "products beyond all bounds left no trace"
        elif abs(a) > 1e3:
            sums = outer_sums(a, b, rows, columns, _threads(kernel))
            error = float(np.min(np.abs(sums - trace.value) / np.abs(sums))) if trace.written else math.inf
            # Sums of 128 values, each of which took 8 roundings an iteration.
            if not error <= (128 + 8 * iterations) * UNIT_ROUNDOFF["fp32"]:
                message = f"{trace.value:.9g} is no thread's sum; the nearest is off by {error:.2g}"
        elif trace.written:
            message = f"the sums left their bounds: {trace.value:.9g}"
        yield Case(_SHAPE, a, b, f"outer product, {iterations} iterations", 0), trace.verdict(message)


WGMMA_TOLERANCE = 1e-2
"""Of sums of some hundreds, in fp32 with truncation; a wrong tile, or one left out, is off by tens."""


def _hash(values: np.ndarray) -> np.ndarray:
    """The kernel's hash of 32-bit numbers, in 64 bits to keep NumPy from warning of overflow."""
    mask = np.uint64(0xFFFFFFFF)
    values = values.astype(np.uint64) * np.uint64(0x9E3779B1) & mask
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        values = (values ^ values >> np.uint64(shift)) * np.uint64(factor) & mask
    return values ^ values >> np.uint64(16)


def scatter(first: int, count: int) -> np.ndarray:
    """What the kernel puts at places `first` to `first` + `count`: [count] float32, nearly N(0, 1)."""
    place, low = np.arange(first, first + count, dtype=np.uint64), np.uint64(0xFFFF)
    one, two = _hash(2 * place), _hash(2 * place + 1)
    drawn = (one & low) + (one >> np.uint64(16)) + (two & low) + (two >> np.uint64(16))
    return ((drawn.astype(np.int64) - 2 * 0xFFFF) / 32768.0).astype(np.float32)


def wgmma_sum(iterations: int, a: float, b: float) -> float:
    """The sum that the tensor-core loop writes after `iterations` with amplitudes `a` and `b`, in float64.

    Four tiles A[s] [128, 64], of which A[s + 2] = -A[s], and four B[s] [256, 64]; iteration i adds A[s] B[(s + i) % 4]'
    over s. The first thread holds columns 8j and 8j + 1 of rows 0 and 8.
    """
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
    """Sums after each number of iterations up to more than a whole period, and with other amplitudes."""
    for a, b, iterations in (*((1.0, 1.0, count) for count in range(1, 6)), (0.5, 2.0, 2)):
        case = Case(_SHAPE, a, b, f"scattered tiles, {iterations} iterations", 0)
        yield case, _sum_case(loop(a, b, iterations), wgmma_sum(iterations, a, b))


def mma_sum(iterations: int, a: float, b: float) -> float:
    """The sum that the register loop of mma.sync writes after `iterations` with amplitudes `a` and `b`, in float64.

    The first warp's A [64, 16] and B [64, 16] follow each other in the hash; A is scaled by `a` in even iterations and
    by `b` in odd ones. The first thread holds rows 0 and 8 of every 16 and columns 0 and 1 of every 8.
    """
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
    """Sums of iterations that add up, with one that the loop's end adds alone, and of ones that cancel, as measured."""
    for a, b, iterations in MMA_CASES:
        case = Case(_SHAPE, a, b, f"scattered fragments, {iterations} iterations", 0)
        yield case, _sum_case(loop(a, b, iterations), mma_sum(iterations, a, b))


_LOOPS: Mapping[str, Callable[[Kernel, Loop], Iterator[tuple[Case, Verdict]]]] = MappingProxyType(
    {"ffma_loop": _shear_cases, "ffma_rrr": _outer_cases, "wgmma_loop": _wgmma_cases, "mma_loop": _mma_cases}
)
"""How each loop is emulated, by the entry point of its kernel."""
