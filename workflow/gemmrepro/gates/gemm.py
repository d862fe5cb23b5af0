"""The numerical gate of GEMM: one case at a time against a float64 reference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import INTEGERS, bits, narrow, nonfinite_lines, spoil, widen
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import HalfSums, bound, half_sums, underflow_allowance
from gemmrepro.gates.gate import POISON_BITS, Case, Gate, Guarded, Judged, Verdict, compare, reference_gemm
from gemmrepro.gates.gemm_cases import EXACT_LAWS, deepen, draw, gemm_cases, large_cases
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import REFERENCE_ROWS, Problem, Shape
from gemmrepro.registry import Kernel

FP32_GEMM = Problem()

REPEATS = 3
"""Launches of one case that must agree bit for bit."""

ROWS = 32
"""Rows of C that are compared at a time; such a block fits the host's caches."""

ON_HOST = 1 << 21
"""From this many multiply-adds on, the reference is computed on the GPU."""

KEPT_BYTES = 2 << 30
"""Host memory for cached references, which the next kernel of the same types reuses."""


@dataclass(frozen=True)
class CaseData:
    """The data of a case on the host, shared by all kernels of a problem. `a`, `b`: stored operands, as the problem
    lays them out; `c`: C before the launch, poison where beta is 0. `wide`: A[m,k] and B[k,n] in float64, exactly."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    wide: tuple[np.ndarray, np.ndarray]
    reference: np.ndarray
    scale: np.ndarray

    @property
    def nbytes(self) -> int:
        """Its size in host memory."""
        return sum(array.nbytes for array in (self.a, self.b, self.c, *self.wide, self.reference, self.scale))


class References:
    """A cache of operands and references of recent cases: up to `limit` bytes, and always the latest case."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._kept: dict[tuple[Problem, Case], CaseData] = {}

    def of(self, problem: Problem, case: Case) -> CaseData:
        """Operands and reference of `case`."""
        key = problem, case
        latest = self._kept.pop(key, None) or _draw(problem, case)
        self._kept[key] = latest
        while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > self._limit:
            del self._kept[next(iter(self._kept))]
        return latest


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The float64 product, by cuBLAS unless it is too small to gain from it."""
    if a.size * b.shape[1] < ON_HOST:
        return a @ b
    import cupy

    return (cupy.asarray(a) @ cupy.asarray(b)).get()


def _draw(problem: Problem, case: Case) -> CaseData:
    a, b, c = draw(case)
    if problem.dtype_in == "fp64" and case.inputs not in EXACT_LAWS:
        a, b = deepen(a, case.seed), deepen(b, case.seed + 1)
    if problem.dtype_out in INTEGERS:
        c = np.zeros_like(c)  # no integer is NaN
    a, b = (narrow(values, problem.dtype_in) for values in (a, b))
    c = narrow(c, problem.dtype_out)
    # Widened on the host: CuPy compiles its kernels to flush fp32 subnormals to zero, so the reference would lose
    # subnormals that a kernel keeps. float64 products flush nothing.
    types = (problem.dtype_in, problem.dtype_in, problem.dtype_out)
    wide = [widen(values, dtype) for values, dtype in zip((a, b, c), types, strict=True)]
    reference, scale = reference_gemm(wide[0], wide[1], case.alpha, case.beta, wide[2], multiply=product)
    if case.beta == 0.0:
        bits(c)[...] = POISON_BITS[c.dtype.itemsize]
    stored_a = np.ascontiguousarray(a.T) if problem.a_is_m_major else a
    stored_b = np.ascontiguousarray(b.T) if problem.b_is_k_major else b
    return CaseData(stored_a, stored_b, c, (wide[0], wide[1]), reference, scale)


def run_case(
    session: Session,
    launch: Launcher,
    case: Case,
    problem: Problem = FP32_GEMM,
    repeats: int = REPEATS,
    kernel: Kernel | None = None,
    references: References | None = None,
) -> Judged:
    """Run a GEMM `case` of `problem` `repeats` times and judge it, |alpha| x `kernel.promises.error` being allowed too.
    Only the kernel and the reference's product run on the GPU. Everything else takes milliseconds on the host, and CuPy
    would need seconds to compile it."""
    right = (references or References()).of(problem, case)
    a, b, c = Guarded(right.a), Guarded(right.b), Guarded(right.c)
    operands = Operands(problem, case.shape, (a.array, b.array), c.array, case.alpha, case.beta)
    results = []
    for repeat in range(repeats):
        if repeat:
            c.array.set(right.c)
        launch(operands)
        session.sync()
        results.append(c.array.get())
    verdict, reference, limit = judge_numbers(results[0], right, case, problem, kernel)
    problems = [verdict.message] if verdict.message else []
    if case.inputs in EXACT_LAWS:
        problems += inexact(results[0], reference, problem)
    problems += _faults_of_launches(results)
    problems += _faults_of_memory((("A", a, right.a), ("B", b, right.b), ("C", c, None)))
    verdict = Verdict(not problems, verdict.err_scaled_max, verdict.err_fro, "; ".join(problems))
    return Judged(case, verdict, limit)


def judge_numbers(
    got: np.ndarray, right: CaseData, case: Case, problem: Problem, kernel: Kernel | None
) -> tuple[Verdict, np.ndarray, float]:
    """Whether `got` lies within the bound, the reference that it was compared with, and the bound."""
    reference, scheme, reach = right.reference, 0.0, None
    limit = largest = bound(problem, case.shape.k)
    if kernel is not None and kernel.promises.error is not None and case.alpha != 0.0:
        with np.errstate(invalid="ignore", over="ignore"):
            scheme = abs(case.alpha) * kernel.promises.error(*right.wide, np)
    if kernel is not None and kernel.promises.spoils:
        reference = spoil(reference, *nonfinite_lines(*right.wide))
    accumulator = _accumulator(kernel)
    if kernel is not None and accumulator == "fp16":
        halves = _half_sums(right, kernel.compute.promoted)
        scheme, reach = scheme + halves.error, halves.reach
        largest = limit + _largest_share(halves.error, right.scale)
    allowance = underflow_allowance(case.shape.k, case.alpha, problem.dtype_out, accumulator)
    verdict = compare(
        got,
        reference,
        right.scale,
        limit,
        dtype=problem.dtype_out,
        underflow=allowance,
        scheme=scheme,
        reach=reach,
        rows=ROWS,
    )
    return verdict, reference, largest


def _accumulator(kernel: Kernel | None) -> str:
    """The type of a kernel's sums as far as its bound depends on it; libraries accumulate in fp32."""
    return "fp16" if kernel is not None and kernel.compute.dtype_acc == "fp16" else "fp32"


def _half_sums(right: CaseData, promoted: int) -> HalfSums:
    """The error that sums in fp16 may add to a case, on the host; computed on the GPU if it is large."""
    a, b = right.wide
    if a.size * b.shape[1] < ON_HOST:
        return half_sums(a, b, promoted)
    import cupy

    halves = half_sums(cupy.asarray(a), cupy.asarray(b), promoted, cupy)
    return HalfSums(halves.error.get(), halves.reach.get())


def _largest_share(error: np.ndarray, scale: np.ndarray) -> float:
    """The largest `error` relative to its `scale`, of elements where both are finite; 0 if there are none."""
    judged = np.isfinite(error) & np.isfinite(scale) & (scale > 0)
    return float((error[judged] / scale[judged]).max()) if judged.any() else 0.0


def inexact(got: np.ndarray, reference: np.ndarray, problem: Problem) -> list[str]:
    """Reports elements of a product of small integers that differ from the exact sum rounded once."""
    # + 0.0, since a sum of zeros may have either sign.
    wide_out = problem.dtype_out == "fp64" or problem.dtype_out in INTEGERS
    exactly = narrow(reference if wide_out else reference.astype(np.float32), problem.dtype_out)
    wrong = int((widen(got, problem.dtype_out) + 0.0 != widen(exactly, problem.dtype_out)).sum())
    return [f"{wrong} elements of a product of small integers are not exact"] if wrong else []


def _faults_of_launches(results: Sequence[np.ndarray]) -> list[str]:
    got, problems = results[0], []
    poisoned = int((bits(got) == POISON_BITS[got.dtype.itemsize]).sum())
    if poisoned:
        problems.append(f"{poisoned} elements were never written")
    if any(bool((bits(repeated) != bits(got)).any()) for repeated in results[1:]):
        problems.append("launches on the same input differ: a race")
    return problems


def _faults_of_memory(arrays: Iterable[tuple[str, Guarded, np.ndarray | None]]) -> list[str]:
    """Reports writes outside the arrays, and changed inputs. `arrays`: (name, array, content if it is an input)."""
    arrays = tuple(arrays)
    problems = [
        f"{broken} elements outside {name} were overwritten"
        for name, guarded, _ in arrays
        if (broken := guarded.broken())
    ]
    return problems + [
        f"the input {name} was overwritten"
        for name, guarded, content in arrays
        if content is not None and bool((bits(guarded.array.get()) != bits(content)).any())
    ]


def refusal_cases(kernel: Kernel) -> Iterator[Judged]:
    """Cases that a kernel which takes only multiples rejects other sizes, by its own name and before a launch."""
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
    for axis, size in step.items():
        if size == 1:
            continue
        shape = Shape(**{name: 2 * step[name] + (1 if name == axis else 0) for name in "mnk"})
        message = f"{shape} should be refused: {axis} is not a multiple of {size}"
        try:
            kernel.check(shape)
        except UserError as error:
            message = "" if kernel.id in str(error) and str(getattr(shape, axis)) in str(error) else str(error)
        verdict = Verdict(not message, None, None, message)
        yield Judged(Case(shape, 1.0, 0.0, "refused size", 0), verdict, bound(kernel.problem, shape.k))


class Gemm(Gate):
    """C = alpha A B + beta C, within the bound of `bounds`."""

    def __init__(self) -> None:
        self._references = References()

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        yield from self._run(session, kernel, launch, gemm_cases(kernel, seeds))
        yield from refusal_cases(kernel)

    def large_cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        return self._run(session, kernel, launch, large_cases(kernel, seeds))

    def _run(self, session: Session, kernel: Kernel, launch: Launcher, cases: Iterable[Case]) -> Iterator[Judged]:
        for case in cases:
            yield run_case(session, launch, case, kernel.problem, kernel=kernel, references=self._references)

    def reference(self, operands: Operands) -> tuple[Any, Any]:
        """C* and its scale, both [m, n] float64, computed in blocks of rows."""
        import cupy

        shape, dtype = operands.shape, operands.problem.dtype_in
        a, b = _matrices(operands)
        wide_b = widen(b, dtype)
        whole = cupy.empty((2, shape.m, shape.n), dtype=cupy.float64)
        for start in range(0, shape.m, REFERENCE_ROWS):
            rows = slice(start, start + REFERENCE_ROWS)
            whole[0, rows], whole[1, rows] = reference_gemm(widen(a[rows], dtype), wide_b, 1.0, 0.0, None, cupy)
        return whole[0], whole[1]

    def judge(self, operands: Operands, reference: tuple[Any, Any], kernel: Kernel | None = None) -> Verdict:
        problem, shape = operands.problem, operands.shape
        scheme: Any = 0.0
        reach: Any = None
        if kernel is not None and kernel.promises.error is not None:
            import cupy

            a, b = (each if each.dtype == np.float64 else widen(each, problem.dtype_in) for each in _matrices(operands))
            scheme = kernel.promises.error(a, b, cupy)
        if kernel is not None and _accumulator(kernel) == "fp16":
            halves = _half_sums_of(operands, kernel.compute.promoted)
            scheme, reach = scheme + halves.error, halves.reach
        return compare(
            operands.output.reshape(shape.m, shape.n),
            *reference,
            bound(problem, shape.k),
            dtype=problem.dtype_out,
            underflow=underflow_allowance(shape.k, 1.0, problem.dtype_out, _accumulator(kernel)),
            scheme=scheme,
            reach=reach,
            rows=REFERENCE_ROWS,
        )


def _half_sums_of(operands: Operands, promoted: int) -> HalfSums:
    """The error that sums in fp16 may add to `operands`' product, [m,n] float64, computed in blocks of rows."""
    import cupy

    dtype, shape = operands.problem.dtype_in, operands.shape
    a, b = _matrices(operands)
    wide_b = widen(b, dtype)
    error, reach = cupy.empty((2, shape.m, shape.n), dtype=cupy.float64)
    for start in range(0, shape.m, REFERENCE_ROWS):
        rows = slice(start, start + REFERENCE_ROWS)
        halves = half_sums(widen(a[rows], dtype), wide_b, promoted, cupy)
        error[rows], reach[rows] = halves.error, halves.reach
    return HalfSums(error, reach)


def _matrices(operands: Operands) -> tuple[Any, Any]:
    """Stored A[m,k] and B[k,n]; an M-major A and a K-major B are transposed views."""
    a, b = (array.reshape(operands.lengths(name)) for name, array in zip("ab", operands.inputs, strict=True))
    return a.T if operands.problem.a_is_m_major else a, b.T if operands.problem.b_is_k_major else b
