"""Device operands of one problem, and the check of a result before it is timed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gemmrepro import operands, operations, timing
from gemmrepro.core import dtypes
from gemmrepro.gates import vectors
from gemmrepro.gates.bounds import bound, underflow_allowance
from gemmrepro.gates.ceilings import CEILING_BOUND
from gemmrepro.gates.compare import Verdict, compare, reference_gemm
from gemmrepro.gates.guarded import POISON_BITS
from gemmrepro.gpu import device
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import Kernel

REFERENCE_ROWS = 1024


class Workspace:
    """The operands of one problem in one round, and its reference while a check needs it."""

    def __init__(self, session: device.Session, problem: Problem, shape: Shape, seed: int) -> None:
        import cupy

        self.problem, self.shape = problem, shape
        cupy.get_default_memory_pool().free_all_blocks()
        # Where the buffers land differs from round to round, as it does from run to run.
        spacer = cupy.empty(random.Random(seed).randrange(1, 64) << 20, dtype=cupy.uint8)
        self._inputs, self._output = operands.random(problem, shape, seed)
        self._copies: list[tuple[list[Any], Any]] = [(self._inputs, self._output)]
        self._reference: tuple[Any, Any] | None = None
        del spacer

    def operands(self, kernel: Kernel | None, index: int = 0) -> Operands:
        """Operands for `kernel` (None: for a baseline) on copy `index`."""
        inputs, output = self._copies[index]
        if kernel is None:
            return Operands(self.problem, self.shape, tuple(inputs), output)
        return Operands.of(kernel, self.shape, inputs, output)

    def copies(self, l2_bytes: int) -> int:
        """Make as many copies of the operands as rotation needs, and return their number."""
        wanted = timing.rotation_sets(operations.nbytes(self.problem, self.shape), l2_bytes)
        while len(self._copies) < wanted:
            self._copies.append(([array.copy() for array in self._inputs], self._output.copy()))
        return wanted

    def check(self, call: Callable[[], None], timer: timing.Timer, kernel: Kernel | None = None) -> dict[str, Any]:
        """Run once into poisoned memory, judge the result, and time the launch.

        Args:
            kernel: whose result it is, where that is no library's.

        Returns:
            {passed, message, err_scaled_max, err_fro, first_us, estimate_us}.
        """
        bits = dtypes.bits(self._output)
        bits[...] = poison = POISON_BITS[self._output.dtype.itemsize]
        first = timer.once(call)
        if self.problem.op == "gemm":
            verdict = self._judge_gemm(kernel)
        elif self.problem.op == "ceiling_flops":
            # A loop that writes its sum at all writes a small one, unless its values left all bounds.
            bounded = bool((bits == poison).all()) or abs(float(self._output[0])) < CEILING_BOUND
            verdict = Verdict(bounded, None, None, "" if bounded else "the loop left its bounds")
        elif self.problem.op in operations.VECTORS:
            verdict = vectors.judge(self.problem, self.shape, self._inputs[0], self._output)
        else:
            expected = self._inputs[0] if len(self._inputs) == 1 else self._inputs[0] + self._inputs[1]
            wrong = int((bits != dtypes.bits(expected)).sum())
            verdict = Verdict(
                not wrong,
                0.0 if not wrong else None,
                0.0 if not wrong else None,
                f"{wrong} elements are wrong" * bool(wrong),
            )
        estimate = timer.estimate(call, first) if verdict.passed else first
        return {
            "passed": verdict.passed,
            "message": verdict.message,
            "err_scaled_max": verdict.err_scaled_max,
            "err_fro": verdict.err_fro,
            "estimate_us": estimate,
        }

    def _judge_gemm(self, kernel: Kernel | None) -> Verdict:
        import cupy

        m, n, k = self.shape.m, self.shape.n, self.shape.k
        problem = self.problem
        a, b = (
            array.reshape(size)
            for array, size in zip(self._inputs, operations.matrices(problem, self.shape)[0], strict=True)
        )
        b = b.T if problem.layout == "row,col,row" else b
        if self._reference is None:
            wide_b = dtypes.widen(b, problem.dtype_in)
            whole = cupy.empty((2, m, n), dtype=cupy.float64)
            for start in range(0, m, REFERENCE_ROWS):
                rows = slice(start, start + REFERENCE_ROWS)
                wide_a = dtypes.widen(a[rows], problem.dtype_in)
                whole[0, rows], whole[1, rows] = reference_gemm(wide_a, wide_b, 1.0, 0.0, None, cupy)
            self._reference = (whole[0], whole[1])
            del wide_a, wide_b
        return compare(
            self._output.reshape(m, n),
            *self._reference,
            bound(problem, k),
            dtype=problem.dtype_out,
            underflow=underflow_allowance(k, 1.0, problem.dtype_out),
            # A scheme of its own errs on FP64 operands alone, which are stored as they are.
            scheme=kernel.error(a, b, cupy) if kernel is not None and kernel.error else 0.0,
            rows=REFERENCE_ROWS,
        )

    def forget_reference(self) -> None:
        """Free the reference; the timing that follows needs the memory of its copies."""
        self._reference = None
