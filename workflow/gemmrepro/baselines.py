"""What kernels are measured against: vendor libraries, called the plain way.

``cublas.sgemm`` goes to libcublas itself through ctypes: CuPy's binding refuses to run while a stream is being
captured, and sizes whose launches take microseconds are timed as CUDA graphs. Row-major C = AB is asked for as the
column-major C' = B'A', so that neither side transposes anything. The handle's math mode is set to the default one and
read back: TF32, BF16x9 emulation and the like are off. ``cublas.gemm`` is the 16-bit GEMM with fp32 accumulation: the
fastest of cublasGemmEx and of what cublasLt offers. ``cuda.memcpy`` is the driver's device-to-device copy.

    python -m gemmrepro.baselines --names '["cublas.sgemm", "gemm", "fp32", "fp32", "row,row,row", 256]'
    prints which GPU kernels the library chose (through PyTorch's profiler, hence in a process of its own)
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro import gpu
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, write_json
from gemmrepro.operands import Operands, random
from gemmrepro.registry import Problem, Shape

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
COMPUTE_32F = 68
"""cublasComputeType_t: fp32 accumulation."""
CUDA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}
"""cudaDataType_t values."""
LT_TRANSA = 3
"""cublasLtMatmulDescAttributes_t."""
LT_MAX_WORKSPACE = 1
"""cublasLtMatmulPreferenceAttributes_t."""
LT_CANDIDATES = 8
TRIAL_SAMPLE_MS, TRIAL_MS = 0.2, 800.0
"""A sample of a trial lasts at least the one, and a trial about the other, within the fewest and most rounds of it."""
TRIAL_ROUNDS = (5, 60)
WARM_UP_MS = 300.0
MATH_MODES = {"default": 0, "tf32": 3}
"""cublasMath_t values. "tf32" exists so that tests can show that the gate rejects it."""
WORKSPACE_BYTES = 32 << 20
"""What cuBLAS's manual recommends for Hopper; smaller GPUs need less. Set by hand, since a captured call that lets
cuBLAS allocate its own would put the allocation into the graph that is timed."""


@dataclass(frozen=True)
class Baseline:
    """A library call that does what the kernels of one operation do.

    `bind` returns a function that calls it once on operands, asynchronously on the session's stream.
    """

    id: str
    rung: str
    op: str
    bind: Callable[[gpu.Session, Operands], Callable[[], None]]
    version: Callable[[gpu.Session], str]


def _load(name: str) -> ctypes.CDLL:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except Exception as error:
        raise UserError(
            f"lib{name} cannot be loaded ({error}); install nvidia-cublas beside CuPy, or the CUDA toolkit."
        ) from None


def _workspace() -> Any:
    import cupy

    return cupy.empty(WORKSPACE_BYTES, dtype=cupy.uint8)


class Cublas:
    """One libcublas handle on the session's stream."""

    def __init__(self, session: gpu.Session, math: str = "default") -> None:
        """Open it.

        Raises:
            UserError: libcublas is not installed, or does not keep the math mode it is given.
        """
        self._library = _load("cublas")
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(session.stream.ptr))
        self._workspace = _workspace()
        self._call(
            "cublasSetWorkspace_v2",
            self._handle,
            ctypes.c_void_p(self._workspace.data.ptr),
            ctypes.c_size_t(WORKSPACE_BYTES),
        )
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(MATH_MODES[math]))
        mode = ctypes.c_int(-1)
        self._call("cublasGetMathMode", self._handle, ctypes.byref(mode))
        if mode.value != MATH_MODES[math]:
            raise UserError(
                f"cuBLAS is in math mode {mode.value} although {MATH_MODES[math]} was asked for; unset the CUBLAS_* "
                "and NVIDIA_TF32_OVERRIDE variables of your shell."
            )
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        # Encoded as major * 10000 + minor * 100 + patch since cuBLAS 11.
        self.version = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def sgemm(self, operands: Operands) -> Callable[[], None]:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, all row-major fp32."""
        m, n, k = operands.shape.m, operands.shape.n, operands.shape.k
        a, b = (array.data.ptr for array in operands.inputs)
        alpha, beta = ctypes.c_float(operands.alpha), ctypes.c_float(operands.beta)
        function, handle = self._library.cublasSgemm_v2, self._handle
        integers = [ctypes.c_int(value) for value in (n, m, k)]
        arguments = (
            *(handle, ctypes.c_int(CUBLAS_OP_N), ctypes.c_int(CUBLAS_OP_N), *integers),
            *(ctypes.byref(alpha), ctypes.c_void_p(b), ctypes.c_int(n), ctypes.c_void_p(a), ctypes.c_int(k)),
            *(ctypes.byref(beta), ctypes.c_void_p(operands.output.data.ptr), ctypes.c_int(n)),
        )
        return _repeatable("cublasSgemm", function, arguments, (alpha, beta))

    def gemm_ex(self, operands: Operands) -> Callable[[], None]:
        """C[m,n] = alpha A B + beta C in the problem's types and layout, accumulated in fp32; cuBLAS chooses how."""
        form = ColumnMajor.of(operands)
        alpha, beta = ctypes.c_float(operands.alpha), ctypes.c_float(operands.beta)
        arguments = (
            *(self._handle, ctypes.c_int(form.op_first), ctypes.c_int(CUBLAS_OP_N)),
            *(ctypes.c_int(value) for value in (form.m, form.n, form.k)),
            *(ctypes.byref(alpha), form.first, ctypes.c_int(form.type_in), ctypes.c_int(form.ld_first)),
            *(form.second, ctypes.c_int(form.type_in), ctypes.c_int(form.ld_second), ctypes.byref(beta)),
            *(form.out, ctypes.c_int(form.type_out), ctypes.c_int(form.ld_out)),
            *(ctypes.c_int(COMPUTE_32F), ctypes.c_int(-1)),  # CUBLAS_GEMM_DEFAULT
        )
        return _repeatable("cublasGemmEx", self._library.cublasGemmEx, arguments, (alpha, beta, form))


@dataclass(frozen=True)
class ColumnMajor:
    """A row-major GEMM as column-major BLAS sees it: C'[n,m] = op(B') A', so M is n and N is m there.

    `first` and `second` are the pointers of B and A; `op_first` is CUBLAS_OP_T where B is stored K-major.
    """

    m: int
    n: int
    k: int
    op_first: int
    first: ctypes.c_void_p
    second: ctypes.c_void_p
    out: ctypes.c_void_p
    ld_first: int
    ld_second: int
    ld_out: int
    type_in: int
    type_out: int

    @classmethod
    def of(cls, operands: Operands) -> ColumnMajor:
        m, n, k = operands.shape.m, operands.shape.n, operands.shape.k
        k_major = operands.problem.layout == "row,col,row"
        return cls(
            m=n,
            n=m,
            k=k,
            op_first=CUBLAS_OP_T if k_major else CUBLAS_OP_N,
            first=ctypes.c_void_p(operands.inputs[1].data.ptr),
            second=ctypes.c_void_p(operands.inputs[0].data.ptr),
            out=ctypes.c_void_p(operands.output.data.ptr),
            ld_first=k if k_major else n,
            ld_second=k,
            ld_out=n,
            type_in=CUDA_TYPES[operands.problem.dtype_in],
            type_out=CUDA_TYPES[operands.problem.dtype_out],
        )


class CublasLt:
    """One libcublasLt handle, and its own ranking of the ways to multiply."""

    def __init__(self, session: gpu.Session) -> None:
        self._session = session
        self._library = _load("cublasLt")
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._workspace = _workspace()

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def _made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *arguments)
        return made

    def _set(self, function: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(function, descriptor, ctypes.c_int(attribute), ctypes.byref(value), size)

    def candidates(self, operands: Operands, most: int) -> list[Callable[[], None]]:
        """Up to `most` ways to do what `Cublas.gemm_ex` does, in the order in which cublasLt's heuristic puts them."""
        form = ColumnMajor.of(operands)
        alpha, beta = ctypes.c_float(operands.alpha), ctypes.c_float(operands.beta)
        matmul = self._made("cublasLtMatmulDescCreate", ctypes.c_int(COMPUTE_32F), ctypes.c_int(CUDA_TYPES["fp32"]))
        self._set("cublasLtMatmulDescSetAttribute", matmul, LT_TRANSA, ctypes.c_int32(form.op_first))

        def layout(kind: int, rows: int, columns: int, ld: int) -> ctypes.c_void_p:
            sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(ld))
            return self._made("cublasLtMatrixLayoutCreate", ctypes.c_int(kind), *sizes)

        first = (form.k, form.m) if form.op_first == CUBLAS_OP_T else (form.m, form.k)
        layouts = (
            layout(form.type_in, *first, form.ld_first),
            layout(form.type_in, form.k, form.n, form.ld_second),
            layout(form.type_out, form.m, form.n, form.ld_out),
        )
        preference = self._made("cublasLtMatmulPreferenceCreate")
        workspace = ctypes.c_uint64(WORKSPACE_BYTES)
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, LT_MAX_WORKSPACE, workspace)
        found, count = (LtHeuristicResult * most)(), ctypes.c_int()
        self._call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self._handle, matmul, *layouts, layouts[2], preference, ctypes.c_int(most), found, ctypes.byref(count)),
        )
        calls = []
        for result in found[: count.value]:
            if result.state:
                continue
            arguments = (
                *(self._handle, matmul, ctypes.byref(alpha), form.first, layouts[0], form.second, layouts[1]),
                *(ctypes.byref(beta), form.out, layouts[2], form.out, layouts[2], ctypes.byref(result.algo)),
                *(ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(WORKSPACE_BYTES)),
                ctypes.c_void_p(self._session.stream.ptr),
            )
            kept = (alpha, beta, form, found, result)
            calls.append(_repeatable("cublasLtMatmul", self._library.cublasLtMatmul, arguments, kept))
        return calls


class LtHeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def _check(name: str, status: int) -> None:
    if status != 0:
        raise UserError(f"{name} failed with cuBLAS status {status}; check that cuBLAS and the driver fit together.")


def _repeatable(name: str, function: Any, arguments: tuple[Any, ...], kept: tuple[Any, ...]) -> Callable[[], None]:
    """A function that calls the library with these arguments; `kept` is what they point to."""

    def call() -> None:
        status = function(*arguments)
        if status != 0:
            raise UserError(f"{name} failed with status {status}.")

    call.kept = kept  # type: ignore[attr-defined]
    return call


@cache
def cublas(session: gpu.Session, math: str = "default") -> Cublas:
    """The session's handle in `math` mode."""
    return Cublas(session, math)


@cache
def cublas_lt(session: gpu.Session) -> CublasLt:
    """The session's cublasLt handle."""
    return CublasLt(session)


def _sgemm(session: gpu.Session, operands: Operands) -> Callable[[], None]:
    return cublas(session).sgemm(operands)


_fastest: dict[tuple[Any, ...], int] = {}
"""Which of the library's ways won at a problem and shape, in this process."""


def way(session: gpu.Session, problem: Problem, shape: Shape) -> int | None:
    """Which of the library's ways `cublas.gemm` takes here; None where it was not asked yet."""
    return _fastest.get((problem, shape, session.gpu.pci_bus))


def take_way(session: gpu.Session, problem: Problem, shape: Shape, chosen: int) -> None:
    """Have `cublas.gemm` take the way that an earlier process chose: one sweep compares with one and the same."""
    _fastest[problem, shape, session.gpu.pci_bus] = chosen


def _gemm(session: gpu.Session, operands: Operands) -> Callable[[], None]:
    """The fastest of cublasGemmEx and the ways that cublasLt's heuristic offers, each tried here and now.

    What a kernel is compared with must be the library's best: cublasGemmEx may choose a slower kernel than cublasLt
    knows. They are tried on the operands themselves, and the least median wins.
    """
    calls = [cublas(session).gemm_ex(operands), *cublas_lt(session).candidates(operands, LT_CANDIDATES)]
    chosen = way(session, operands.problem, operands.shape)
    if chosen is None:
        if session.stream.is_capturing():
            raise UserError("a baseline must be bound before its launches are captured.")
        chosen = _try(session, calls)
        take_way(session, operands.problem, operands.shape, chosen)
    return calls[chosen]  # the heuristic answers the same question with the same list


def _try(session: gpu.Session, calls: list[Callable[[], None]]) -> int:
    """Index of the fastest of `calls`, launched in turn so that a drift of the clock touches them all alike."""
    import cupy

    def sample(call: Callable[[], None], launches: int) -> tuple[Any, Any]:
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(session.stream)
        for _ in range(launches):
            call()
        last.record(session.stream)
        return first, last

    def elapsed(pair: tuple[Any, Any]) -> float:
        return float(cupy.cuda.get_elapsed_time(*pair))

    for call in calls:
        call()
    once = [sample(call, 1) for call in calls]
    session.sync()
    least = max(1e-3, min(elapsed(pair) for pair in once))
    # At the clock that this load leaves, not at that of an idle GPU: the ranking may differ.
    for index in range(math.ceil(WARM_UP_MS / least)):
        calls[index % len(calls)]()
    session.sync()
    launches = max(1, round(TRIAL_SAMPLE_MS / least))
    rounds = max(TRIAL_ROUNDS[0], min(TRIAL_ROUNDS[1], round(TRIAL_MS / (launches * least * len(calls)))))
    samples = [[sample(call, launches) for call in calls] for _ in range(rounds)]
    session.sync()
    columns = zip(*samples, strict=True)
    medians = [statistics.median(elapsed(pair) for pair in column) for column in columns]
    return medians.index(min(medians))


def _memcpy(session: gpu.Session, operands: Operands) -> Callable[[], None]:
    from cupy.cuda import runtime

    source, target = operands.inputs[0].data.ptr, operands.output.data.ptr
    size, stream = 16 * operands.shape.n, session.stream.ptr

    def call() -> None:
        runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, stream)

    return call


BASELINES = {
    baseline.id: baseline
    for baseline in (
        Baseline("cublas.sgemm", "cuBLAS", "gemm", _sgemm, lambda session: f"cuBLAS {cublas(session).version}"),
        Baseline("cublas.gemm", "cuBLAS", "gemm", _gemm, lambda session: f"cuBLAS {cublas(session).version}"),
        Baseline(
            "cuda.memcpy",
            "cudaMemcpy",
            "ceiling_bytes",
            _memcpy,
            lambda session: f"driver {session.gpu.driver}",
        ),
    )
}


def baseline(name: str) -> Baseline:
    """The baseline called `name`. Raises UserError if there is none."""
    if name not in BASELINES:
        raise UserError(f"there is no baseline '{name}'; known baselines: {', '.join(sorted(BASELINES))}.")
    return BASELINES[name]


def gpu_kernel_names(wanted: Sequence[tuple[str, Problem, int]]) -> dict[str, str]:
    """Which GPU kernel each baseline runs at each size, asked in a process of its own.

    Profiling attaches to the whole process and would slow the launches that are timed in it.

    Args:
        wanted: (baseline id, problem, size).

    Returns:
        names by "<baseline> <size>", or "<baseline> <dtype> <size>" where it serves several types; empty, with the
        reason on stderr, where PyTorch's profiler cannot be used.
    """
    if not wanted:
        return {}
    items = [json.dumps([name, *astuple(problem), size]) for name, problem, size in wanted]
    command = [sys.executable, "-m", "gemmrepro.baselines", "--names", *items]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "workflow")
    if answer.returncode != 0:
        reason = answer.stderr.strip().splitlines()[-1:] or ["no reason given"]
        print(f"gemmrepro: the baselines' kernel names stay unknown: {reason[0]}", file=sys.stderr, flush=True)
        return {}
    return json.loads(answer.stdout.splitlines()[-1])


def _profile(wanted: Sequence[tuple[str, Problem, int]]) -> dict[str, str]:
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise UserError(f"PyTorch cannot be imported ({error}); it is only needed for the kernels' names.") from None
    session = gpu.open_gpu()

    names: dict[str, str] = {}
    for name, problem, size in wanted:
        entry = baseline(name)
        shape = Shape.cube(size) if entry.op == "gemm" else Shape(1, size, 1)
        inputs, output = random(problem, shape, size)
        call = entry.bind(session, Operands(problem, shape, tuple(inputs), output))
        call()
        session.sync()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
            call()
            session.sync()
            torch.cuda.synchronize()
        seen = [event.name for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        if seen:
            kind = "" if problem.dtype_in == "fp32" else f" {problem.dtype_in}"
            names[f"{name}{kind} {size}"] = " + ".join(dict.fromkeys(seen))
    return names


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.baselines", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--names",
        nargs="+",
        required=True,
        metavar="JSON",
        help="print the GPU kernels that run for lists of baseline, op, dtype in, dtype out, layout and size",
    )
    parser.add_argument("--out", type=Path, help="write them to this file too")
    arguments = parser.parse_args()
    wanted = []
    for item in arguments.names:
        try:
            name, *problem, size = json.loads(item)
            wanted.append((name, Problem(*problem), int(size)))
        except (ValueError, TypeError):
            raise UserError(f"'{item}' is not a list of baseline, op, dtype in, dtype out, layout and size.") from None
        baseline(name)
    names = _profile(wanted)
    if arguments.out:
        write_json(arguments.out, names)
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    run_stage(main)
