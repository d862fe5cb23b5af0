"""The numerical gate of GEMM: one case at a time against a float64 reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import INTEGERS, bits, narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import bound, underflow_allowance
from gemmrepro.gates.compare import Verdict, compare, reference_gemm
from gemmrepro.gates.gemm_cases import EXACT_LAWS, Case, deepen, draw
from gemmrepro.gates.guarded import POISON_BITS, Guarded
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Problem, Shape
from gemmrepro.ozaki.arrays import set_aside, spoil
from gemmrepro.registry import Kernel

FP32_GEMM = Problem()

REPEATS = 3
"""Launches of one case that must agree bit for bit."""

ROWS = 32
"""Rows of C that are compared at a time: on the host, a block of them fits the caches."""

ON_HOST = 1 << 21
"""Multiply-adds from which a reference is left to the GPU."""

KEPT_BYTES = 2 << 30
"""Memory for cases that the next kernel of the same types is judged on too."""


@dataclass(frozen=True)
class Given:
    """What kernels of one problem share of a case, all on the host.

    Attributes:
        a, b: stored operands, B as the problem lays it out; `c`: C before the launch, poison where beta is 0.
        wide: A[m,k] and B[k,n] in float64, exactly.
        reference, scale: see `comparison.reference_gemm`.
    """

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    wide: tuple[np.ndarray, np.ndarray]
    reference: np.ndarray
    scale: np.ndarray

    @property
    def nbytes(self) -> int:
        """What it takes of the host's memory."""
        return sum(one.nbytes for one in (self.a, self.b, self.c, *self.wide, self.reference, self.scale))


_kept: dict[tuple[Problem, Case], Given] = {}


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The float64 product; by cuBLAS, unless it is so small that there is nothing to gain."""
    if a.size * b.shape[1] < ON_HOST:
        return a @ b
    import cupy

    return (cupy.asarray(a) @ cupy.asarray(b)).get()


def given(problem: Problem, case: Case) -> Given:
    """Operands and reference of `case`; the last ones are kept for the kernels that follow, up to KEPT_BYTES."""
    key = problem, case
    found = _kept.pop(key, None) or _draw(problem, case)
    _kept[key] = found
    while len(_kept) > 1 and sum(one.nbytes for one in _kept.values()) > KEPT_BYTES:
        del _kept[next(iter(_kept))]
    return found


def _draw(problem: Problem, case: Case) -> Given:
    a, b, c = draw(case)
    if problem.dtype_in == "fp64" and case.inputs not in EXACT_LAWS.values():
        a, b = deepen(a, case.seed), deepen(b, case.seed + 1)
    if problem.dtype_out in INTEGERS:
        c = np.zeros_like(c)  # no integer is NaN
    a, b = (narrow(values, problem.dtype_in) for values in (a, b))
    c = narrow(c, problem.dtype_out)
    # Widened on the host: CuPy compiles its own kernels to flush fp32 subnormals to zero, which would judge a kernel
    # that keeps them against a reference that does not. In float64 nothing is flushed.
    types = (problem.dtype_in, problem.dtype_in, problem.dtype_out)
    wide = [widen(values, dtype) for values, dtype in zip((a, b, c), types, strict=True)]
    reference, scale = reference_gemm(*wide[:2], case.alpha, case.beta, wide[2], multiply=_product)
    if case.beta == 0.0:
        bits(c)[...] = POISON_BITS[c.dtype.itemsize]
    k_major = problem.layout == "row,col,row"
    return Given(a, np.ascontiguousarray(b.T) if k_major else b, c, (wide[0], wide[1]), reference, scale)


def run_case(
    session: device.Session,
    launch: Launcher,
    case: Case,
    problem: Problem = FP32_GEMM,
    repeats: int = REPEATS,
    kernel: Kernel | None = None,
) -> tuple[Verdict, float]:
    """Run a GEMM `case` of `problem` `repeats` times and judge it, by what `kernel` says of its scheme if it is given.

    The GPU launches the kernel and multiplies for the reference, and everything else is the host's: on a machine whose
    cache is empty CuPy would take seconds to compile what these arrays take milliseconds of.

    Returns the verdict and gamma.
    """
    right = given(problem, case)
    a, b, c = Guarded(right.a), Guarded(right.b), Guarded(right.c)
    operands = Operands(problem, case.shape, (a.array, b.array), c.array, case.alpha, case.beta)
    results = []
    for repeat in range(repeats):
        if repeat:
            c.array.set(right.c)
        launch(operands)
        session.sync()
        results.append(c.array.get())
    got, reference = results[0], right.reference
    scheme: Any = 0.0
    if kernel is not None and kernel.error is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            scheme = kernel.error(*right.wide, np)
    if kernel is not None and kernel.spoils:
        _, _, rows, columns = set_aside(*right.wide)
        reference = spoil(reference, rows, columns)
    limit = bound(problem, case.shape.k)
    allowance = underflow_allowance(case.shape.k, case.alpha, problem.dtype_out)
    verdict = compare(
        got, reference, right.scale, limit, dtype=problem.dtype_out, underflow=allowance, scheme=scheme, rows=ROWS
    )
    problems = [verdict.message] if verdict.message else []
    if case.inputs in EXACT_LAWS.values():
        # + 0.0: a sum of zeros may be of either sign.
        wide_out = problem.dtype_out == "fp64" or problem.dtype_out in INTEGERS
        exactly = narrow(reference if wide_out else reference.astype(np.float32), problem.dtype_out)
        wrong = int((widen(got, problem.dtype_out) + 0.0 != widen(exactly, problem.dtype_out)).sum())
        if wrong:
            problems.append(f"{wrong} elements of a product of small integers are not exact")
    poisoned = int((bits(got) == POISON_BITS[got.dtype.itemsize]).sum())
    if poisoned:
        problems.append(f"{poisoned} elements were never written")
    if any(bool((bits(other) != bits(got)).any()) for other in results[1:]):
        problems.append("launches on the same input differ: a race")
    for name, guarded in (("A", a), ("B", b), ("C", c)):
        if broken := guarded.broken():
            problems.append(f"{broken} elements outside {name} were overwritten")
    for name, guarded, old in (("A", a, right.a), ("B", b, right.b)):
        if bool((bits(guarded.array.get()) != bits(old)).any()):
            problems.append(f"the input {name} was overwritten")
    return Verdict(not problems, verdict.err_scaled_max, verdict.err_fro, "; ".join(problems)), limit


def _case_record(case: Case, verdict: Verdict, limit: float) -> dict[str, Any]:
    worst = verdict.err_scaled_max
    return {
        "shape": [case.shape.m, case.shape.n, case.shape.k],
        "alpha": case.alpha,
        "beta": case.beta,
        "inputs": case.inputs,
        "seed": case.seed,
        "err_scaled_max": None if worst is None else float(f"{worst:.4g}"),
        "gamma": float(f"{limit:.4g}"),
        "passed": verdict.passed,
        "message": verdict.message,
    }


def refusal_cases(kernel: Kernel) -> Iterator[tuple[Case, Verdict]]:
    """That a rung which takes only multiples refuses every other size by its own name, before anything is launched."""
    step = {axis: kernel.multiple_of.get(axis, 1) for axis in "mnk"}
    for axis, size in step.items():
        if size == 1:
            continue
        shape = Shape(**{other: 2 * step[other] + (1 if other == axis else 0) for other in "mnk"})
        message = f"{shape} should be refused: {axis} is not a multiple of {size}"
        try:
            kernel.check(shape)
        except UserError as error:
            message = "" if kernel.id in str(error) and str(getattr(shape, axis)) in str(error) else str(error)
        yield Case(shape, 1.0, 0.0, "refused size", 0), Verdict(not message, None, None, message)
