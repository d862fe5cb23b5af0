"""The numerical gate of products with block scales: every scaled sum of 128 products within the bound of its own.

C[i, j] = sum over b of s_a[b, i] s_b[j / 128, b] P_b[i, j], where P_b is the sum of the products of the b-th 128 of K.

**Reference.** A stored element has 4 significant bits, a scale 24: their product is exact in float64, so the reference
is the float64 product of the scaled operands, and |A||B| is that of their magnitudes.

**Bound.** Hopper's tensor core multiplies 8-bit floats exactly and adds 32 products to a sum at a time, all aligned to
the largest of them and cut off 2^-13 below it (`bounds`). A term is no larger than the sum of the magnitudes of P_b's
products, S_b, so 128 products and the sums between them lose at most g S_b, g = `tensor_core_gamma(128)` = 0.017. The
scales' product is rounded, and so is each addition, in fp32: with J blocks, (J + 2) u more. Summed over blocks:

    |C - C*|  <=  (g + (1 + g) (J + 2) u) |A||B|,    g = 0.017, whatever K is.

A kernel that leaves its sums in the tensor core loses up to 2^-13 of the whole sum with each of K products: on uniform
operands 0.03 of |A||B| at K = 2048 and 0.07 at 4096 (a model of the unit; it agrees with what cublasLt's fast mode was
seen to lose on normal ones). The gate's long case of uniform operands therefore tells the two apart, which the gate of
unscaled products, whose bound grows with K, does not.

**Exact cases.** Small integers times powers of two: every partial sum fits into 14 bits and every scaled sum into fp32,
so C must be C* rounded once. A scale of a wrong row, column or step shows there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits, narrow, widen
from gemmrepro.gates.bounds import UNIT_ROUNDOFF, tensor_core_gamma, underflow_allowance
from gemmrepro.gates.gate import (
    POISON_BITS,
    SOURCE_GUARD_BITS,
    Case,
    Gate,
    Guarded,
    Judged,
    Verdict,
    compare,
    reference_gemm,
)
from gemmrepro.gates.gemm import inexact, product, refusal_cases
from gemmrepro.gates.gemm_cases import gemm_shapes
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import REFERENCE_ROWS, SCALED_BLOCK, Problem, Shape, counts
from gemmrepro.registry import Kernel

REPEATS = 3

EXACT = "small integers, scales of powers of two"
INPUTS = ("normal", "uniform", "wide scales", EXACT, "zero rows and columns", "NaN")
LONG = 4096
"""K of the case that tells sums of 128 products from longer ones."""


@dataclass(frozen=True)
class Drawn:
    """Operands of a case as stored: A [m, k], B [n, k], and the scales as `operations` lays them out, fp32."""

    a: np.ndarray
    b: np.ndarray
    scale_a: np.ndarray
    scale_b: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.a, self.b, self.scale_a, self.scale_b


def scaled_gamma(k: int, dtype: str = "fp8_e4m3") -> float:
    """The gate's bound on the error of a scaled sum of `k` products, relative to |A||B|, before C is rounded."""
    within = tensor_core_gamma(min(k, SCALED_BLOCK), dtype)
    blocks = -(-k // SCALED_BLOCK)
    return within + (1 + within) * (blocks + 2) * UNIT_ROUNDOFF["fp32"]


def draw(problem: Problem, case: Case) -> Drawn:
    shape = case.shape
    rng = np.random.default_rng([case.seed, shape.m, shape.n, shape.k, INPUTS.index(case.inputs)])
    (_, _, size_a, size_b) = problem.operation.arrays(problem, shape).inputs
    a, b = (_values(rng, case.inputs, (rows, shape.k)) for rows in (shape.m, shape.n))
    reach = {EXACT: 2, "wide scales": 5}.get(case.inputs, 0)
    scale_a, scale_b = (2.0 ** rng.integers(-reach, reach + 1, size) for size in (size_a, size_b))
    if case.inputs != EXACT:
        scale_a, scale_b = (scale * rng.uniform(0.5, 1, scale.shape) for scale in (scale_a, scale_b))
    if case.inputs == "zero rows and columns":
        a[rng.random(shape.m) < 0.3] = 0
        b[rng.random(shape.n) < 0.3] = 0
    if case.inputs == "NaN":
        a[(shape.m - 1) // 2, 0], b[(shape.n - 1) // 2, shape.k - 1] = np.nan, np.nan
    a, b = (narrow(values.astype(np.float32), problem.dtype_in) for values in (a, b))
    return Drawn(a, b, scale_a.astype(np.float32), scale_b.astype(np.float32))


def _values(rng: np.random.Generator, law: str, size: tuple[int, int]) -> np.ndarray:
    if law == EXACT:
        return rng.integers(-1, 2, size).astype(np.float64)
    return rng.random(size) if law == "uniform" else rng.standard_normal(size)


def scaled_operands(arrays: Sequence[Any], shape: Shape, dtype: str, xp: Any = np) -> tuple[Any, Any]:
    """A [m, k] and B [k, n] times their scales, exactly, in float64.
    `arrays`: A, B and both scales as stored, of any shape; `xp`: their module, NumPy or CuPy."""
    depth = -(-shape.k // SCALED_BLOCK)
    a, b = arrays[0].reshape(shape.m, shape.k), arrays[1].reshape(shape.n, shape.k)
    rows = arrays[2].reshape(depth, shape.m).T
    blocks = arrays[3].reshape(-(-shape.n // SCALED_BLOCK), -1)[:, :depth]
    columns = xp.repeat(blocks, SCALED_BLOCK, axis=0)[: shape.n]
    wide = []
    for stored, scales in ((a, rows), (b, columns)):
        each = xp.repeat(scales.astype(xp.float64), SCALED_BLOCK, axis=1)[:, : shape.k]
        each *= widen(stored, dtype)
        wide.append(each)
    return wide[0], wide[1].T


def judge_numbers(
    got: np.ndarray,
    drawn: Drawn,
    case: Case,
    problem: Problem,
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.matmul,
) -> tuple[Verdict, np.ndarray]:
    """Whether `got` [m, n] lies within the bound, and its reference. `multiply`: the float64 product."""
    a, b = scaled_operands(drawn.arrays, case.shape, problem.dtype_in)
    reference, scale = reference_gemm(a, b, 1.0, 0.0, None, multiply=multiply)
    verdict = compare(
        got,
        reference,
        scale,
        scaled_gamma(case.shape.k, problem.dtype_in),
        dtype=problem.dtype_out,
        underflow=underflow_allowance(case.shape.k, 1.0, problem.dtype_out),
    )
    return verdict, reference


def cases_of(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    """Every case of a kernel for each of `seeds`."""
    shapes, middling, large = gemm_shapes(kernel)
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
    long = Shape(128 + step["m"], 128 + step["n"], LONG)
    cases = []
    for seed in seeds:
        for shape in (*shapes, *kernel.promises.gate_shapes, large):
            cases += [Case(shape, 1.0, 0.0, name, seed) for name in ("normal", EXACT)]
        cases += [Case(middling, 1.0, 0.0, name, seed) for name in INPUTS]
        cases.append(Case(long, 1.0, 0.0, "uniform", seed))
    return cases


class ScaledGemm(Gate):
    """C = (A times its scales) (B times its scales), within the bound of this module."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for case in cases_of(kernel, seeds):
            yield run_case(session, launch, case, kernel.problem)
        yield from refusal_cases(kernel)

    def large_cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        large = gemm_shapes(kernel)[2]
        for case in cases_of(kernel, seeds):
            if case.shape == large:
                yield run_case(session, launch, case, kernel.problem)

    def reference(self, operands: Operands) -> tuple[Any, Any]:
        """C* and its scale, both [m, n] float64, computed in blocks of rows."""
        import cupy

        shape = operands.shape
        a, b = scaled_operands(operands.inputs, shape, operands.problem.dtype_in, cupy)
        whole = cupy.empty((2, shape.m, shape.n), dtype=cupy.float64)
        for start in range(0, shape.m, REFERENCE_ROWS):
            rows = slice(start, start + REFERENCE_ROWS)
            whole[0, rows], whole[1, rows] = reference_gemm(a[rows], b, 1.0, 0.0, None, cupy)
        return whole[0], whole[1]

    def judge(self, operands: Operands, reference: tuple[Any, Any], kernel: Kernel | None = None) -> Verdict:
        problem, shape = operands.problem, operands.shape
        return compare(
            operands.output.reshape(shape.m, shape.n),
            *reference,
            scaled_gamma(shape.k, problem.dtype_in),
            dtype=problem.dtype_out,
            underflow=underflow_allowance(shape.k, 1.0, problem.dtype_out),
            rows=REFERENCE_ROWS,
        )


def run_case(session: Session, launch: Launcher, case: Case, problem: Problem) -> Judged:
    """Launch REPEATS times into poisoned memory between guard bands, and judge."""
    drawn = draw(problem, case)
    poison = narrow(np.zeros(counts(problem, case.shape)[1], np.float32), problem.dtype_out)
    bits(poison)[...] = POISON_BITS[poison.dtype.itemsize]
    inputs = [Guarded(values, SOURCE_GUARD_BITS) for values in drawn.arrays]
    c = Guarded(poison)
    operands = Operands(problem, case.shape, tuple(each.array for each in inputs), c.array)
    results = []
    for _ in range(REPEATS):
        c.array.set(poison)
        launch(operands)
        session.sync()
        results.append(c.array.get().reshape(case.shape.m, case.shape.n))
    verdict, reference = judge_numbers(results[0], drawn, case, problem, product)
    problems = [verdict.message] if verdict.message else []
    if case.inputs == EXACT:
        problems += inexact(results[0], reference, problem)
    if (bits(results[0]) == POISON_BITS[poison.dtype.itemsize]).any():
        problems.append("some elements were never written")
    if any((bits(repeated) != bits(results[0])).any() for repeated in results[1:]):
        problems.append("launches on the same input differ: a race")
    if c.broken() or any(each.broken() for each in inputs):
        problems.append("elements outside the arrays were overwritten")
    if any((bits(each.array.get()) != bits(values)).any() for each, values in zip(inputs, drawn.arrays, strict=True)):
        problems.append("an input was overwritten")
    verdict = Verdict(not problems, verdict.err_scaled_max, verdict.err_fro, "; ".join(problems))
    return Judged(case, verdict, scaled_gamma(case.shape.k, problem.dtype_in))
