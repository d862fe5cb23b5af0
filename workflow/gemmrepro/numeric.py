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
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import ceiling_gate, gpu, pointwise_gate, registry, vector_gate
from gemmrepro.comparison import Verdict, compare, reference_gemm
from gemmrepro.error_bounds import UNIT_ROUNDOFF, bound, underflow_allowance
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import write_json
from gemmrepro.gate_cases import EXACT_LAWS, Case, deepen, draw, gemm_cases
from gemmrepro.guarded import POISON_BITS, Guarded
from gemmrepro.operands import INTEGERS, VECTORS, Launcher, Operands, bits, narrow, widen
from gemmrepro.ozaki.arrays import set_aside, spoil
from gemmrepro.registry import Kernel, Problem, Shape

FP32_GEMM = Problem()

REPEATS = 3
"""Launches of one case that must agree bit for bit."""
ROWS = 32
"""Rows of C that are compared at a time: on the host, a block of them fits the caches."""


def run_case(
    session: gpu.Session,
    launch: Launcher,
    case: Case,
    problem: Problem = FP32_GEMM,
    repeats: int = REPEATS,
    kernel: Kernel | None = None,
) -> tuple[Verdict, float]:
    """Run a GEMM `case` of `problem` `repeats` times and judge it, by what `kernel` says of its scheme if it is given.

    Returns the verdict and gamma.
    """
    import cupy

    host_a, host_b, host_c = draw(case)
    exact = case.inputs in EXACT_LAWS.values()
    if problem.dtype_in == "fp64" and not exact:
        host_a, host_b = deepen(host_a, case.seed), deepen(host_b, case.seed + 1)
    if problem.dtype_out in INTEGERS:
        host_c = np.zeros_like(host_c)  # no integer is NaN
    host_a, host_b = (narrow(values, problem.dtype_in) for values in (host_a, host_b))
    host_c = narrow(host_c, problem.dtype_out)
    k_major = problem.layout == "row,col,row"
    a, c = Guarded(host_a), Guarded(host_c)
    b = Guarded(np.ascontiguousarray(host_b.T) if k_major else host_b)
    before = [a.array.copy(), b.array.copy()]
    operands = Operands(problem, case.shape, (a.array, b.array), c.array, case.alpha, case.beta)
    poison = POISON_BITS[c.array.dtype.itemsize]
    start = c.array.copy()
    if case.beta == 0.0:
        bits(start)[...] = poison
    results = []
    for _ in range(repeats):
        c.array[...] = start
        launch(operands)
        session.sync()
        results.append(c.array.copy())
    # Widened on the host: CuPy compiles its own kernels to flush fp32 subnormals to zero, which would judge a kernel
    # that keeps them against a reference that does not. In float64 nothing is flushed.
    types = (problem.dtype_in, problem.dtype_in, problem.dtype_out)
    wide = [cupy.asarray(widen(values, dtype)) for values, dtype in zip((host_a, host_b, host_c), types, strict=True)]
    reference, scale = (array.get() for array in reference_gemm(*wide[:2], case.alpha, case.beta, wide[2], cupy))
    scheme: Any = 0.0
    if kernel is not None and kernel.error is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            scheme = kernel.error(*(one.get() for one in wide[:2]), np)
    if kernel is not None and kernel.spoils:
        _, _, rows, columns = set_aside(*wide[:2])
        reference = spoil(reference, rows.get(), columns.get())
    limit = bound(problem, case.shape.k)
    got = results[0].get()
    allowance = underflow_allowance(case.shape.k, case.alpha, problem.dtype_out)
    verdict = compare(
        got, reference, scale, limit, dtype=problem.dtype_out, underflow=allowance, scheme=scheme, rows=ROWS
    )
    problems = [verdict.message] if verdict.message else []
    if exact:
        # + 0.0: a sum of zeros may be of either sign.
        wide_out = problem.dtype_out == "fp64" or problem.dtype_out in INTEGERS
        right = narrow(reference if wide_out else reference.astype(np.float32), problem.dtype_out)
        wrong = int((widen(got, problem.dtype_out) + 0.0 != widen(right, problem.dtype_out)).sum())
        if wrong:
            problems.append(f"{wrong} elements of a product of small integers are not exact")
    poisoned = int((bits(results[0]) == poison).sum())
    if poisoned:
        problems.append(f"{poisoned} elements were never written")
    if any(bool((bits(other) != bits(results[0])).any()) for other in results[1:]):
        problems.append("launches on the same input differ: a race")
    for name, guarded in (("A", a), ("B", b), ("C", c)):
        if guarded.broken():
            problems.append(f"{guarded.broken()} elements outside {name} were overwritten")
    for name, array, old in (("A", a.array, before[0]), ("B", b.array, before[1])):
        if bool((bits(array) != bits(old)).any()):
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
    arrays = [Guarded(values) for values in inputs]
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
        unit = UNIT_ROUNDOFF[registry.kernel(result["kernel"]).dtype_out]
        worst = max((error * unit / (limit + unit * (unit > 2**-24)) for error, limit in errors if limit), default=0.0)
        parts.append(
            f"{toolkit} {verdict['status']:7} {len(verdict['cases']):3} cases, worst {100 * worst:5.1f}% of the bound"
        )
        if verdict["reason"]:
            parts.append(verdict["reason"])
    return f"{result['kernel']:24} " + " | ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.numeric", description=__doc__.split("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--kernel", help="a kernel id, such as ladder.naive")
    which.add_argument("--family", help="every kernel of a family, in one process")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--seeds", type=int, default=2, help="how many fresh seeds each case is drawn with")
    parser.add_argument("--seed", type=int, action="append", help="a seed to use again, instead of fresh ones")
    parser.add_argument("--out", type=Path, help="where the verdict goes, with --kernel")
    parser.add_argument("--out-dir", type=Path, help="folder for one verdict a kernel, with --family")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if arguments.kernel:
        if not arguments.out:
            raise UserError("--kernel needs --out, the file its verdict goes to.")
        targets = [(registry.kernel(arguments.kernel), arguments.out)]
    else:
        if not arguments.out_dir:
            raise UserError("--family needs --out-dir, the folder the verdicts go to.")
        registry.family(arguments.family)
        targets = [(kernel, arguments.out_dir / f"{kernel.id}.json") for kernel in registry.kernels(arguments.family)]
    session = gpu.open_gpu()
    seeds = arguments.seed or fresh_seeds(arguments.seeds)
    with gpu.shared(session):
        for kernel, path in targets:
            result = gate(session, kernel, arguments.build, seeds)
            write_json(path, result)
            print(summary_line(result), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    run_stage(main)
