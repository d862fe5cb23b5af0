"""The numerical gate of a product with an epilogue: D = GELU(z), z = alpha A B + beta C + bias, one bias a column.

GELU(z) = z/2 (1 + erf(z / sqrt 2)) in fp32, D rounded once. Against the same expression in float64, with u = 2^-24 and
S = |alpha| |A||B| + |beta| |C| + |bias|:

- z errs by at most e = (gamma + 4u) S: gamma of the product's sum (`bounds`), and four roundings, of alpha's product,
  beta's, and two sums;
- GELU's slope is at most 1.13 (1.1289, at sqrt 2), so that moves D by 1.13 e;
- one evaluation of GELU in fp32 errs by 2.25 u |z| + 2u |D| (`pointwise`, whose constant is rounded as this one is);
- rounding D to the output's type adds its unit roundoff of |D| and of all that, and half a subnormal step.

A kernel of several launches hands y = alpha A B + beta C on in the output's type, and the last adds the bias: one more
rounding, by the unit roundoff of |y| and of y's own error, and 1.13 of that in D. A library may take GELU's tanh form,
z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), with tanh to 11 bits: it is judged by the same bound and the difference
of the two forms, at most 5e-4, and 2^-11 |z|.

C is not read where beta is 0. A and B are read whatever alpha is. GELU of -inf is NaN, as the formula has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits, narrow, widen
from gemmrepro.gates.bounds import SUBNORMAL_STEP, UNIT_ROUNDOFF, bound
from gemmrepro.gates.gate import POISON_BITS, SOURCE_GUARD_BITS, Case, Gate, Guarded, Judged, Verdict, reference_gemm
from gemmrepro.gates.gemm import product
from gemmrepro.gates.gemm_cases import INPUTS, gemm_shapes
from gemmrepro.gates.pointwise import GAMMA, SUBNORMAL, UNIT
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Problem
from gemmrepro.registry import Kernel

SLOPE = 1.13
"""Bound on the slope of GELU."""

SCALARS = ((1.0, 0.0), (0.125, 0.5), (-0.25, 1.0), (0.03125, -0.75), (0.0, 2.0))
"""alpha and beta; small alphas keep z where GELU is curved."""

DISTRIBUTIONS = ("normal", "uniform", "zero rows and columns", "cancellation", "Inf and NaN")

REPEATS = 3


def gelu(z: np.ndarray) -> np.ndarray:
    """GELU of float64 `z`; NaN at -inf."""
    from scipy.special import erf

    with np.errstate(invalid="ignore"):
        return z * 0.5 * (1.0 + erf(z * np.sqrt(0.5)))


def gelu_by_tanh(z: np.ndarray) -> np.ndarray:
    """The tanh form of GELU, of float64 `z`."""
    with np.errstate(invalid="ignore", over="ignore"):
        return z * 0.5 * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))


@dataclass(frozen=True)
class Reference:
    """z, its scale S, and y, which lacks the bias; all [m, n] float64."""

    z: np.ndarray
    scale: np.ndarray
    y: np.ndarray


def reference_of(wide: Sequence[np.ndarray], alpha: float, beta: float, multiply: Any = np.matmul) -> Reference:
    """z, S and y of A[m,k], B[k,n], C[m,n] and bias[n], float64."""
    a, b, c, bias = wide
    # As if alpha were not 0: A and B are read.
    whole, size = reference_gemm(a, b, 1.0, 0.0, None, multiply=multiply)
    factor, weight = float(np.float32(alpha)), float(np.float32(beta))
    with np.errstate(invalid="ignore"):
        y, scale = factor * whole, abs(factor) * size
        if weight:
            y, scale = y + weight * c, scale + abs(weight) * np.abs(c)
        return Reference(y + bias, scale + np.abs(bias), y)


def judge_numbers(
    got: np.ndarray, right: Reference, gamma: float, dtype: str, *, rounded: bool = False, library: bool = False
) -> Verdict:
    """Whether `got`, stored elements [m, n] of `dtype`, is D within the bound.
    `gamma`: of the product's sum; `rounded`: whether y is rounded to `dtype` on the way; `library`: whether GELU may
    have its tanh form."""
    found, z, unit = widen(got, dtype), right.z, UNIT_ROUNDOFF[dtype]
    wanted = gelu(z)
    finite = np.isfinite(wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        limit = (gamma + 4 * UNIT) * right.scale
        if rounded:
            limit = limit + unit * (np.abs(right.y) + limit) + 0.5 * SUBNORMAL_STEP[dtype]
        limit = SLOPE * limit
        limit = limit + GAMMA * np.abs(z) + 2 * UNIT * np.abs(wanted) + SUBNORMAL
        if library:
            limit = limit + np.abs(gelu_by_tanh(z) - wanted) + 2.0**-11 * np.abs(z)
        limit = limit + unit * (np.abs(wanted) + limit) + 0.5 * SUBNORMAL_STEP[dtype]
        error = np.abs(found - wanted)
        same = np.where(np.isnan(wanted), np.isnan(found), found == wanted)
        good = np.where(finite, error <= limit, same)
        judged = finite & (right.scale > 0) & np.isfinite(found)
        worst = float((error / np.where(judged, right.scale, 1.0))[judged].max(initial=0.0)) / unit
    if good.all():
        return Verdict(True, worst, None, "")
    row, column = (int(axis[0]) for axis in np.nonzero(~good))
    message = (
        f"{int((~good).sum())} of {got.size} elements are wrong; the first is D[{row},{column}] = "
        f"{found[row, column]:.9g} of z = {z[row, column]:.9g}, expected {wanted[row, column]:.9g}"
    )
    return Verdict(False, worst, None, message)


def draw(case: Case, problem: Problem) -> list[np.ndarray]:
    """Stored A[m,k], B[k,n], C[m,n] and bias[n] of a case, the same on every machine; C is NaN where beta is 0."""
    shape = case.shape
    rng = np.random.default_rng([case.seed, shape.m, shape.n, shape.k])
    a, b = INPUTS[case.inputs](rng, shape)
    c = rng.standard_normal((shape.m, shape.n), dtype=np.float32)
    bias = rng.standard_normal(shape.n, dtype=np.float32)
    stored = [narrow(np.ascontiguousarray(values, np.float32), problem.dtype_in) for values in (a, b, c, bias)]
    if case.beta == 0.0:
        bits(stored[2])[...] = POISON_BITS[stored[2].dtype.itemsize]
    return stored


def epilogue_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    """Shapes with tails, each with two pairs of scalars; unusual inputs on a middling shape; one that fills the GPU."""
    shapes, middling, large = gemm_shapes(kernel)
    cases = []
    for seed in seeds:
        for index, shape in enumerate((*shapes, *kernel.promises.gate_shapes)):
            pairs = dict.fromkeys((SCALARS[0], SCALARS[1 + index % (len(SCALARS) - 1)]))
            cases += [Case(shape, alpha, beta, "normal", seed) for alpha, beta in pairs]
        cases += [Case(middling, alpha, beta, "normal", seed) for alpha, beta in SCALARS]
        cases += [Case(middling, *SCALARS[1], name, seed) for name in DISTRIBUTIONS[1:]]
        cases += [Case(large, alpha, beta, "normal", seed) for alpha, beta in SCALARS[1:3]]
    return cases


def run_case(launch: Launcher, case: Case, kernel: Kernel, sync: Any) -> Judged:
    """Launch REPEATS times into poisoned memory between guard bands, and judge; `sync` waits for the GPU."""
    problem = kernel.problem
    stored = draw(case, problem)
    wide = [widen(values, problem.dtype_in) for values in stored]
    right = reference_of(wide, case.alpha, case.beta, product)
    laid_out = [
        np.ascontiguousarray(stored[0].T) if problem.a_is_m_major else stored[0],
        np.ascontiguousarray(stored[1].T) if problem.b_is_k_major else stored[1],
        *stored[2:],
    ]
    arrays = [Guarded(values, SOURCE_GUARD_BITS) for values in laid_out]
    poison = np.full_like(stored[2], POISON_BITS[stored[2].dtype.itemsize])
    out = Guarded(poison)
    given = tuple(guarded.array for guarded in arrays)
    operands = Operands(problem, case.shape, given, out.array, case.alpha, case.beta)
    results = []
    for _ in range(REPEATS):
        out.array.set(poison)
        launch(operands)
        sync()
        results.append(out.array.get())
    limit = bound(problem, case.shape.k)
    verdict = judge_numbers(results[0], right, limit, problem.dtype_out, rounded=bool(kernel.run.steps))
    problems = [verdict.message] if verdict.message else []
    if (bits(results[0]) == POISON_BITS[results[0].dtype.itemsize]).any():
        problems.append("some elements were never written")
    if any((bits(repeated) != bits(results[0])).any() for repeated in results[1:]):
        problems.append("launches on the same input differ: a race")
    if out.broken() or any(guarded.broken() for guarded in arrays):
        problems.append("elements outside the arrays were overwritten")
    if any((bits(guarded.array.get()) != bits(values)).any() for guarded, values in zip(arrays, laid_out, strict=True)):
        problems.append("an input was overwritten")
    return Judged(case, Verdict(not problems, verdict.err_scaled_max, None, "; ".join(problems)), limit)


class GemmEpilogue(Gate):
    """D = GELU(alpha A B + beta C + bias), within the bound of this module."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for case in epilogue_cases(kernel, seeds):
            yield run_case(launch, case, kernel, session.sync)

    def large_cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        large = gemm_shapes(kernel)[2]
        for case in epilogue_cases(kernel, seeds):
            if case.shape == large:
                yield run_case(launch, case, kernel, session.sync)

    def reference(self, operands: Operands) -> Reference:
        """z, S and y on the host."""
        problem = operands.problem
        names = [each.name for each in problem.operation.inputs]
        stored = [
            array.get().reshape(operands.lengths(name)) for name, array in zip(names, operands.inputs, strict=True)
        ]
        wide = [widen(values, problem.dtype_in) for values in stored]
        wide[0] = wide[0].T if problem.a_is_m_major else wide[0]
        wide[1] = wide[1].T if problem.b_is_k_major else wide[1]
        return reference_of(wide, operands.alpha, operands.beta, product)

    def judge(self, operands: Operands, reference: Reference, kernel: Kernel | None = None) -> Verdict:
        shape, problem = operands.shape, operands.problem
        return judge_numbers(
            operands.output.get().reshape(shape.m, shape.n),
            reference,
            bound(problem, shape.k),
            problem.dtype_out,
            rounded=kernel is not None and bool(kernel.run.steps),
            library=kernel is None,
        )
