"""The numerical gate: is a kernel's result right, to what its arithmetic can promise?

Every element of C = alpha A B + beta C0 must lie within `error_bounds` of the same expression in float64. Operands of
small integers, whose sums are exact in fp32, are judged too where the bound is coarse: there C must be C* rounded to
nearest, bit for bit. Outputs are poisoned with NaN before every launch, all arrays stand between guard bands of NaN
whose payload is checked afterwards, inputs must come back untouched, and launches on the same input must agree bit for
bit (a difference is a race).

    python -m gemmrepro.numeric --kernel ladder.naive --build results/build --seeds 2 \\
        --out results/gates/numeric/ladder.naive.json
    python -m gemmrepro.numeric --family ladder --build results/build --seeds 2 --out-dir results/gates/numeric
"""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import ceiling_gate, gpu, pointwise_gate, registry, vector_gate
from gemmrepro.comparison import Verdict, compare, reference_gemm
from gemmrepro.error_bounds import allowed_error, bound, underflow_allowance
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import write_json
from gemmrepro.gate_cases import EXACT_LAWS, Case, deepen, draw, gemm_cases
from gemmrepro.guarded import POISON_BITS, SOURCE_GUARD_BITS, Guarded
from gemmrepro.operands import INTEGERS, VECTORS, Launcher, Operands, bits, narrow, widen
from gemmrepro.ozaki.arrays import set_aside, spoil
from gemmrepro.registry import Kernel, Problem, Shape

FP32_GEMM = Problem()

REPEATS = 3
"""Launches of one case that must agree bit for bit."""
ROWS = 32
"""Rows of C that are compared at a time: on the host, a block of them fits the caches."""
ON_HOST = 1 << 21
"""Multiply-adds from which a reference is left to the GPU."""
PATIENCE = 120.0
"""Seconds that a kernel's gate may take among others."""
BROKEN = 74
"""Exit code of a process whose GPU context a kernel broke (sysexits' EX_IOERR)."""
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
    session: gpu.Session,
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


def _exact(
    session: gpu.Session,
    launch: Launcher,
    problem: Problem,
    shape: Shape,
    inputs: list[np.ndarray],
    expected: np.ndarray,
) -> Verdict:
    """Run an operation whose result is exact and compare bit for bit, guards included."""
    arrays = [Guarded(values, SOURCE_GUARD_BITS) for values in inputs]
    out = Guarded(np.full(expected.shape, POISON_BITS[expected.itemsize], bits(expected).dtype).view(expected.dtype))
    launch(Operands(problem, shape, tuple(guarded.array for guarded in arrays), out.array))
    session.sync()
    got = out.array.get()
    wrong = bits(got) != bits(expected)
    problems = []
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        problems.append(
            f"{int(wrong.sum())} of {got.size} elements are wrong; the first is [{index}] = {got.flat[index]:.9g}, "
            f"expected {expected.flat[index]:.9g}"
        )
    broken = out.broken() + sum(guarded.broken() for guarded in arrays)
    if broken:
        problems.append(f"{broken} elements outside the arrays were overwritten")
    return Verdict(not problems, 0.0 if not wrong.any() else None, None, "; ".join(problems))


def _cases(
    session: gpu.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
) -> Iterator[tuple[Case, Verdict, float]]:
    if kernel.op == "gemm":
        for case in gemm_cases(kernel, seeds):
            verdict, limit = run_case(session, launch, case, kernel.problem, kernel=kernel)
            yield case, verdict, limit
        for case, verdict in refusal_cases(kernel):
            yield case, verdict, bound(kernel.problem, case.shape.k)
    elif kernel.op in ("vector_add", "ceiling_bytes"):
        for seed in seeds:
            for n in (1, 31, 1023, 4096, 100_003, (1 << 20) + 5):
                shape = Shape(1, n, 1)
                rng = np.random.default_rng([seed, n])
                x, y = rng.standard_normal((2, n), dtype=np.float32)
                special = rng.integers(0, n, 3)
                x[special], y[special[:1]] = (np.inf, 1e-42, 3e38), 3e38
                with np.errstate(over="ignore", invalid="ignore"):
                    if kernel.op == "vector_add":
                        verdict = _exact(session, launch, kernel.problem, shape, [x, y], x + y)
                    else:
                        data = np.concatenate([x, y, x[::-1], y[::-1]])
                        verdict = _exact(session, launch, kernel.problem, shape, [data], data)
                yield Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0
    elif kernel.op == "copy":
        step = {axis: kernel.multiple_of.get(axis, 1) for axis in "mn"}
        for seed in seeds:
            for m, n in ((1, 1), (3, 17), (129, 9), (200, 16), (1000, 130)):
                shape = Shape(m * step["m"], n * step["n"], 1)
                # Any bits at all, NaNs of every payload among them.
                data = np.random.default_rng([seed, m, n]).integers(0, 2**16, shape.m * shape.n).astype(np.uint16)
                verdict = _exact(session, launch, kernel.problem, shape, [data], data)
                yield Case(shape, 1.0, 0.0, "random bits", seed), verdict, 0.0
    elif kernel.op in VECTORS:
        yield from vector_gate.cases(session, kernel, launch, seeds)
    elif kernel.op in pointwise_gate.OPERATIONS:
        yield from pointwise_gate.cases(session, kernel, launch, seeds)
    elif kernel.op == "ceiling_flops":
        for case, verdict in ceiling_gate.cases(session, kernel, launch):
            yield case, verdict, 0.0
    else:
        raise UserError(f"{kernel.id}: operation '{kernel.op}' has no numerical gate; add one to gemmrepro.numeric.")


def judge(session: gpu.Session, loaded: gpu.Loaded, seeds: Sequence[int]) -> dict[str, Any]:
    """The gate's verdict on one loaded binary: an entry of ``toolkits`` in the gate's JSON."""
    kernel = loaded.kernel
    records, failures = [], []
    try:
        for part in kernel.parts:
            named = {"entry": part.entry} if kernel.variants else {}

            def launch(operands: gpu.Operands, part: Kernel = part) -> None:
                loaded.bind(operands, part)()

            for case, verdict, limit in _cases(session, part, launch, seeds):
                records.append({**_case_record(case, verdict, limit), **named})
                if not verdict.passed:
                    failures.append(" ".join([*named.values(), f"{case.shape} {case.inputs}: {verdict.message}"]))
        reason = f"{len(failures)} of {len(records)} cases failed; {failures[0]}" if failures else ""
    except UserError as error:
        # A launch that breaks the GPU's context ends this kernel's gate; that is a verdict too.
        failures.append(str(error))
        reason = str(error)
    return {
        "status": "failed" if failures else "passed",
        "build_key": loaded.build_key,
        "reason": reason,
        "cases": records,
    }


def gate(session: gpu.Session, kernel: Kernel, build: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Judge every toolkit's binary of `kernel` that is in `build`."""
    toolkits: dict[str, Any] = {}
    for toolkit in kernel.toolkits:
        if not (Path(build) / toolkit / f"{kernel.id}.json").is_file():
            continue
        key = gpu.build_record(kernel, build, toolkit)["build_key"]
        try:
            loaded = gpu.Loaded(session, kernel, build, toolkit)
        except UserError as error:
            toolkits[toolkit] = {"status": "not run", "build_key": key, "reason": str(error), "cases": []}
            continue
        toolkits[toolkit] = judge(session, loaded, seeds)
    if not toolkits:
        raise UserError(f"there is no build of {kernel.id} in {build}; run the build stage first.")
    return {"kernel": kernel.id, "gpu": session.gpu.name, "driver": session.gpu.driver, "toolkits": toolkits}


def fresh_seeds(count: int) -> list[int]:
    """`count` seeds nobody could have tuned for; the report records them, so a failure can be run again."""
    return [secrets.randbits(31) for _ in range(count)]


def summary_line(result: dict[str, Any]) -> str:
    """One aligned line a kernel."""
    parts = []
    for toolkit, verdict in result["toolkits"].items():
        errors = [
            (case["err_scaled_max"], case["gamma"]) for case in verdict["cases"] if case["err_scaled_max"] is not None
        ]
        kernel = registry.kernel(result["kernel"])
        of = "the bound" if kernel.error is None else "a sum's bound, beside the scheme's own"
        worst = max((error / allowed_error(limit, kernel.dtype_out) for error, limit in errors if limit), default=0.0)
        parts.append(
            f"{toolkit} {verdict['status']:7} {len(verdict['cases']):3} cases, worst {100 * worst:5.1f}% of {of}"
        )
        if verdict["reason"]:
            parts.append(verdict["reason"])
    return f"{result['kernel']:24} " + " | ".join(parts)


def in_turn(kernels: Sequence[Kernel], build: Path, seeds: Sequence[int], out: Path, patience: float) -> None:
    """Judge `kernels` one after the other in a process of their own, a verdict each in `out`.

    A kernel that breaks the GPU's context, or does not end within `patience` seconds, ends that process: it has failed,
    and the next process goes on behind it.
    """
    paths = {kernel.id: out / f"{kernel.id}.json" for kernel in kernels}
    for path in paths.values():
        path.unlink(missing_ok=True)
    left = list(kernels)
    while left:
        command = [sys.executable, "-m", "gemmrepro.numeric", "--build", str(build), "--out-dir", str(out)]
        command += ["--patience", str(patience), "--worker"]
        command += [f"--seed={seed}" for seed in seeds] + [f"--kernel={kernel.id}" for kernel in left]
        code = subprocess.run(command).returncode
        left = [kernel for kernel in left if not paths[kernel.id].is_file()]
        if left and code not in (-signal.SIGALRM, BROKEN):
            raise UserError(f"the numerical gate of {left[0].id} ended with exit code {code}; see above.")
        if left and code == -signal.SIGALRM:
            reason = f"it did not end within {patience:g} s"
            write_json(paths[left[0].id], unfinished(left[0], build, reason))
            print(f"{left[0].id:24} failed: {reason}", file=sys.stderr, flush=True)
            left = left[1:]


def unfinished(kernel: Kernel, build: Path, reason: str) -> dict[str, Any]:
    """The verdict on a kernel that ended its process."""
    machine = gpu.described()
    toolkits = {
        toolkit: {
            "status": "failed",
            "build_key": gpu.build_record(kernel, build, toolkit)["build_key"],
            "reason": reason,
            "cases": [],
        }
        for toolkit in kernel.toolkits
        if (Path(build) / toolkit / f"{kernel.id}.json").is_file()
    }
    return {"kernel": kernel.id, "gpu": machine["name"], "driver": machine["driver"], "toolkits": toolkits}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.numeric", description=__doc__.split("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--kernel", action="append", help="a kernel id, such as ladder.naive; or several")
    which.add_argument("--family", help="every kernel of a family")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--seeds", type=int, default=2, help="how many fresh seeds each case is drawn with")
    parser.add_argument("--seed", type=int, action="append", help="a seed to use again, instead of fresh ones")
    parser.add_argument("--out", type=Path, help="where the verdict goes, with one --kernel")
    parser.add_argument("--out-dir", type=Path, help="folder for one verdict a kernel")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help="with --out-dir: seconds that a kernel may take",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if bool(arguments.out) == bool(arguments.out_dir) or (arguments.out and len(arguments.kernel or ()) != 1):
        raise UserError("give --out with one --kernel, or --out-dir, the folder that the verdicts go to.")
    if arguments.family:
        registry.family(arguments.family)
        kernels = list(registry.kernels(arguments.family))
    else:
        kernels = [registry.kernel(name) for name in arguments.kernel]
    seeds = arguments.seed or fresh_seeds(arguments.seeds)
    if arguments.out_dir and not arguments.worker:
        in_turn(kernels, arguments.build, seeds, arguments.out_dir, arguments.patience)
        return 0
    session = gpu.open_gpu()
    with gpu.shared(session):
        for kernel in kernels:
            if arguments.worker:
                # Not a handler's affair: nothing of Python runs while the driver waits for a launch.
                signal.setitimer(signal.ITIMER_REAL, arguments.patience)
            result = gate(session, kernel, arguments.build, seeds)
            signal.setitimer(signal.ITIMER_REAL, 0)
            write_json(arguments.out or arguments.out_dir / f"{kernel.id}.json", result)
            print(summary_line(result), file=sys.stderr, flush=True)
            if arguments.worker and not usable(session):
                return BROKEN
    return 0


def usable(session: gpu.Session) -> bool:
    """Whether the GPU's context survived what was launched."""
    try:
        session.sync()
    except UserError:
        return False
    return True


if __name__ == "__main__":
    run_stage(main)
