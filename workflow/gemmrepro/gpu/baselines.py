"""Baselines: the vendor libraries that kernels are compared with, called as their manuals recommend.

- ``cublas.sgemm``: cuBLAS's fp32 GEMM.
- ``cublas.sgemm_emulated``: the same call with fp32 emulated by nine bf16 products, wherever cuBLAS supports it.
- ``cublas.sgemm_tf32``: the same call with operands rounded to TF32.
- ``cublas.gemm``: the GEMM of every other type, the fastest of cublasGemmEx and cublasLt's candidates. It accumulates
  16-bit types, 8-bit floats and TF32 in fp32, fp64 in fp64, 8-bit integers in int32.
- ``cublas.gemm_k_major``: the same with K-major B, for families that have both layouts; rows do not state the layout.
- ``cublas.gemm_fast``: 8-bit floats accumulated within the tensor core ("fast accumulation").
- ``cublas.gemm_block_scaled``: 8-bit floats with an fp32 scale for 1 x 128 of A and 128 x 128 of B (cublasLt 12.9).
- ``cublas.gemm_half_sums``: fp16 accumulated in fp16 (CUBLAS_COMPUTE_16F).
- ``cublas.gemm_gelu_bias``: a product with a bias and GELU in cublasLt's epilogue, the fastest of its candidates.
- ``cublas.gemm_emulated``: cublasGemmEx with fp64 emulated by 8-bit integers, wherever cuBLAS supports it.
- ``cuda.memcpy``: the driver's device-to-device copy.
- ``cub.reduce``, ``cub.histogram``: CUB's device-wide sum and histogram of even bins, as bundled with CuPy.
"""

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from gemmrepro.core.names import baseline_at
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu import device
from gemmrepro.gpu.cublas import FAST, FUSED, HALF_SUMS, LT_ONLY, Sums, opened, opened_lt
from gemmrepro.gpu.graphs import captured
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

LT_CANDIDATES = 8
"""Algorithms requested from cublasLt's heuristic."""

TRIAL_SAMPLE_MS = 0.2
"""Minimum duration of one sample of a trial."""

TRIAL_ROUNDS = (5, 60)
"""Minimum and maximum rounds of a trial, whatever its duration."""

WARM_UP = 3 / 8
"""Duration of a trial's warm-up, relative to the trial."""


@dataclass(frozen=True)
class Baseline:
    """A library call for one operation.

    Attributes:
        rung: its name in figures and tables.
        bind: returns a function that calls the library once on operands, asynchronously on the session's stream.
        half_sums: whether it accumulates in fp16, by whose bound it is then judged.
    """

    id: str
    rung: str
    op: str
    bind: Callable[[device.Session, Operands], Callable[[], None]]
    version: Callable[[device.Session], str]
    half_sums: bool = False


def _sgemm(session: device.Session, operands: Operands, math: str = "default") -> Callable[[], None]:
    return opened(session, math).sgemm(operands)


def _gemm(session: device.Session, operands: Operands, name: str = "cublas.gemm") -> Callable[[], None]:
    """The fastest of cublasGemmEx and cublasLt's candidates, by the median time of a trial on the operands.
    cublasGemmEx may choose a slower kernel than cublasLt has. Raises UserError for unsupported types or layout."""
    sums = _sums(name)
    calls = list(opened_lt(session).candidates(operands, LT_CANDIDATES, sums))
    if operands.problem.dtype_in not in LT_ONLY:
        calls.insert(0, opened(session).gemm_ex(operands, sums))
    if not calls:
        raise UserError(
            f"cuBLAS has no algorithm for {operands.problem} in layout {operands.problem.layout}; "
            "8-bit floats need a K-major B and lengths that are multiples of 16, and not both operands in e5m2."
        )
    return _fastest(session, operands, calls, name)


def _gemm_gelu_bias(session: device.Session, operands: Operands) -> Callable[[], None]:
    """The fastest of cublasLt's candidates with GELU and a bias in the epilogue. Raises UserError if it has none."""
    return _fastest(session, operands, opened_lt(session).fused(operands, LT_CANDIDATES), FUSED)


def _fastest(
    session: device.Session, operands: Operands, calls: list[Callable[[], None]], name: str
) -> Callable[[], None]:
    """The one of `calls` that a trial chose for the baseline `name`, now or before."""
    chosen = session.trials.algorithm(operands.problem, operands.shape, name)
    if chosen is None:
        if session.stream.is_capturing():
            raise UserError("a baseline must be bound before its launches are captured.")
        chosen = _try(session, calls)
        session.trials.take(operands.problem, operands.shape, chosen, name)
    return calls[chosen]


def _sums(name: str) -> Sums:
    return {FAST: Sums.FAST, HALF_SUMS: Sums.HALF}.get(name, Sums.USUAL)


def algorithm_name(session: device.Session, name: str, problem: Problem, shape: Shape, chosen: int) -> str:
    """The algorithm behind a number that a trial chose: ``cublasGemmEx``, or cublasLt's algorithm with its tile.
    What cublasGemmEx chooses itself cuBLAS does not tell; `gpu_kernel_names` finds its kernel."""
    own = [] if problem.dtype_in in LT_ONLY else ["cublasGemmEx"]
    return [*own, *opened_lt(session).described(problem, shape, LT_CANDIDATES, _sums(name))][chosen]


def _try(session: device.Session, calls: list[Callable[[], None]]) -> int:
    """Index of the fastest of `calls`, launched alternately so that clock drift affects all of them equally."""
    import cupy

    trial_ms = session.trials.milliseconds

    def sample(call: Callable[[], None]) -> tuple[Any, Any]:
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(session.stream)
        call()
        last.record(session.stream)
        return first, last

    def elapsed(pair: tuple[Any, Any]) -> float:
        return float(cupy.cuda.get_elapsed_time(*pair))

    for call in calls:
        call()
    once = [sample(call) for call in calls]
    session.sync()
    least = max(1e-3, min(elapsed(pair) for pair in once))
    # Warm up first: the ranking at the sustained clock may differ from that at an idle GPU's clock.
    for index in range(math.ceil(WARM_UP * trial_ms / least)):
        calls[index % len(calls)]()
    session.sync()
    launches = max(1, round(TRIAL_SAMPLE_MS / least))
    rounds = max(TRIAL_ROUNDS[0], min(TRIAL_ROUNDS[1], round(trial_ms / (launches * least * len(calls)))))
    batches = calls
    if launches > 1:  # one by one, a short GEMM takes as long as its launch by the host, whichever algorithm it is
        graphs = [captured(session.stream, [call] * launches) for call in calls]
        batches = [partial(graph.launch, session.stream) for graph in graphs]
    samples = [[sample(batch) for batch in batches] for _ in range(rounds)]
    session.sync()
    columns = zip(*samples, strict=True)
    medians = [statistics.median(elapsed(pair) for pair in column) for column in columns]
    return medians.index(min(medians))


def _memcpy(session: device.Session, operands: Operands) -> Callable[[], None]:
    from cupy.cuda import runtime

    source, target = operands.inputs[0].data.ptr, operands.output.data.ptr
    size, stream = operands.output.nbytes, session.stream.ptr

    def call() -> None:
        runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, stream)

    return call


def _cub_reduce(session: device.Session, operands: Operands) -> Callable[[], None]:
    from cupy.cuda import cub

    values, output = operands.inputs[0], operands.output.reshape(())

    def call() -> None:
        cub.device_reduce(values, cub.CUPY_CUB_SUM, (0,), (), output)

    return call


def _cub_histogram(session: device.Session, operands: Operands) -> Callable[[], None]:
    """CuPy's CUB counts in 64 bits, so a second kernel narrows the counts: two microseconds for few bins.
    CUB ignores ids outside the bins, so the last count is zero; timed ids are all inside."""
    import cupy
    from cupy.cuda import cub

    bins = operands.shape.k
    ids, wide = operands.inputs[0], cupy.zeros(bins + 1, dtype=cupy.int64)
    counts = wide[:bins]

    def call() -> None:
        cub.device_histogram(ids, counts, bins + 1)
        cupy.copyto(operands.output, wide, casting="unsafe")

    return call


def _cublas_version(session: device.Session, math: str = "default") -> str:
    return f"cuBLAS {opened(session, math).version}"


def _cub_version(session: device.Session) -> str:
    import cupy
    from cupy.cuda import cub

    return f"CUB of CuPy {cupy.__version__}, build {cub.get_build_version()}"


_FP32, _TF32, _FP64 = "fp32 emulated", "tf32", "fp64 emulated"


def _emulated(session: device.Session, operands: Operands) -> Callable[[], None]:
    return opened(session, _FP64).gemm_ex(operands)


def _version_in(math: str) -> Callable[[device.Session], str]:
    return partial(_cublas_version, math=math)


BASELINES = {
    entry.id: entry
    for entry in (
        Baseline("cublas.sgemm", "cuBLAS", "gemm", _sgemm, _cublas_version),
        Baseline("cublas.sgemm_emulated", f"cuBLAS, {_FP32}", "gemm", partial(_sgemm, math=_FP32), _version_in(_FP32)),
        Baseline("cublas.sgemm_tf32", "cuBLAS, TF32", "gemm", partial(_sgemm, math=_TF32), _version_in(_TF32)),
        Baseline("cublas.gemm", "cuBLAS", "gemm", _gemm, _cublas_version),
        Baseline("cublas.gemm_k_major", "cuBLAS, B K-major", "gemm", _gemm, _cublas_version),
        Baseline(FAST, "cuBLAS, fast sums", "gemm", partial(_gemm, name=FAST), _cublas_version),
        Baseline("cublas.gemm_block_scaled", "cuBLAS, block scales", "gemm_scaled", _gemm, _cublas_version),
        Baseline(HALF_SUMS, "cuBLAS, fp16 sums", "gemm", partial(_gemm, name=HALF_SUMS), _cublas_version, True),
        Baseline(FUSED, "cuBLAS, fused epilogue", "gemm_epilogue", _gemm_gelu_bias, _cublas_version),
        Baseline("cublas.gemm_emulated", f"cuBLAS, {_FP64}", "gemm", _emulated, _version_in(_FP64)),
        Baseline("cuda.memcpy", "cudaMemcpy", "ceiling_bytes", _memcpy, lambda session: f"driver {session.gpu.driver}"),
        Baseline("cub.reduce", "CUB", "reduce", _cub_reduce, _cub_version),
        Baseline("cub.histogram", "CUB", "histogram", _cub_histogram, _cub_version),
    )
}


def baseline(name: str) -> Baseline:
    """The baseline called `name`. Raises UserError if there is none."""
    if name not in BASELINES:
        raise UserError(f"there is no baseline '{name}'; known baselines: {', '.join(sorted(BASELINES))}.")
    return BASELINES[name]


def place(name: str, problem: Problem, shape: Shape) -> str:
    """A baseline at a size as run.json names it."""
    return baseline_at(name, problem.dtype_in, shape.n)


def gpu_kernel_names(wanted: Sequence[tuple[str, Problem, Shape, int | None]]) -> dict[str, str]:
    """The GPU kernel that each baseline launches at each size, by `place`; empty, with the reason on stderr, without a
    profiler. A child process looks, since profiling affects the whole process and slows down timed launches.

    Args:
        wanted: (baseline id, problem, shape, the algorithm that its trial chose; None: the child makes a trial).
    """
    if not wanted:
        return {}
    items = [json.dumps([name, *astuple(problem), *astuple(shape), chosen]) for name, problem, shape, chosen in wanted]
    command = [sys.executable, "-m", "gemmrepro", "baseline-kernels", "--names", *items]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "workflow")
    if answer.returncode != 0:
        reason = answer.stderr.strip().splitlines()[-1:] or ["no reason given"]
        print(f"gemmrepro: the baselines' kernel names stay unknown: {reason[0]}", file=sys.stderr, flush=True)
        return {}
    return json.loads(answer.stdout.splitlines()[-1])
