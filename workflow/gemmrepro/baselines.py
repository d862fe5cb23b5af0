"""What kernels are measured against: vendor libraries, called the plain way.

``cublas.sgemm`` goes to libcublas itself through ctypes: CuPy's binding refuses to run while a stream is being
captured, and sizes whose launches take microseconds are timed as CUDA graphs. Row-major C = AB is asked for as the
column-major C' = B'A', so that neither side transposes anything. The handle's math mode is set to the default one and
read back: TF32, BF16x9 emulation and the like are off. ``cuda.memcpy`` is the driver's device-to-device copy.

    python -m gemmrepro.baselines --names cublas.sgemm=256,1024
    prints which GPU kernels the library chose (through PyTorch's profiler, hence in a process of its own)
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro import gpu
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, write_json
from gemmrepro.registry import Shape

CUBLAS_OP_N = 0
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
    bind: Callable[[gpu.Session, gpu.Operands], Callable[[], None]]
    version: Callable[[gpu.Session], str]


class Cublas:
    """One libcublas handle on the session's stream."""

    def __init__(self, session: gpu.Session, math: str = "default") -> None:
        """Open it.

        Raises:
            UserError: libcublas is not installed, or does not keep the math mode it is given.
        """
        import cupy

        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            self._library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
        except Exception as error:
            raise UserError(
                f"libcublas cannot be loaded ({error}); install nvidia-cublas beside CuPy, or the CUDA toolkit."
            ) from None
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(session.stream.ptr))
        self._workspace = cupy.empty(WORKSPACE_BYTES, dtype=cupy.uint8)
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
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise UserError(
                f"{name} failed with cuBLAS status {status}; check that cuBLAS and the driver fit together."
            )

    def sgemm(self, operands: gpu.Operands) -> Callable[[], None]:
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

        def call() -> None:
            status = function(*arguments)
            if status != 0:
                raise UserError(f"cublasSgemm failed with status {status} at {operands.shape}.")

        # byref() keeps its argument alive only as long as the tuple; the closure holds both.
        call.scalars = (alpha, beta)  # type: ignore[attr-defined]
        return call


@cache
def cublas(session: gpu.Session, math: str = "default") -> Cublas:
    """The session's handle in `math` mode."""
    return Cublas(session, math)


def _sgemm(session: gpu.Session, operands: gpu.Operands) -> Callable[[], None]:
    return cublas(session).sgemm(operands)


def _memcpy(session: gpu.Session, operands: gpu.Operands) -> Callable[[], None]:
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


def gpu_kernel_names(wanted: dict[str, list[int]]) -> dict[str, str]:
    """Which GPU kernel each baseline runs at each size, asked in a process of its own.

    Profiling attaches to the whole process and would slow the launches that are timed in it.

    Args:
        wanted: sizes by baseline id.

    Returns:
        names by "<baseline> <size>"; empty, with the reason on stderr, where PyTorch's profiler cannot be used.
    """
    items = [f"{name}={','.join(map(str, sizes))}" for name, sizes in wanted.items() if sizes]
    if not items:
        return {}
    command = [sys.executable, "-m", "gemmrepro.baselines", "--names", *items]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "workflow")
    if answer.returncode != 0:
        reason = answer.stderr.strip().splitlines()[-1:] or ["no reason given"]
        print(f"gemmrepro: the baselines' kernel names stay unknown: {reason[0]}", file=sys.stderr, flush=True)
        return {}
    return json.loads(answer.stdout.splitlines()[-1])


def _profile(wanted: dict[str, list[int]]) -> dict[str, str]:
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise UserError(f"PyTorch cannot be imported ({error}); it is only needed for the kernels' names.") from None
    session = gpu.open_gpu()
    import cupy

    names: dict[str, str] = {}
    for name, sizes in wanted.items():
        entry = baseline(name)
        for size in sizes:
            shape = Shape.cube(size) if entry.op == "gemm" else Shape(1, size, 1)
            inputs, output = gpu.array_floats(entry.op, shape)
            arrays = [cupy.zeros(count, dtype=cupy.float32) for count in (*inputs, output)]
            call = entry.bind(session, gpu.Operands(entry.op, shape, tuple(arrays[:-1]), arrays[-1]))
            call()
            session.sync()
            with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
                call()
                session.sync()
                torch.cuda.synchronize()
            seen = [event.name for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
            if seen:
                names[f"{name} {size}"] = " + ".join(dict.fromkeys(seen))
    return names


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.baselines", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--names",
        nargs="+",
        required=True,
        metavar="BASELINE=SIZES",
        help="print the GPU kernels that run, for instance cublas.sgemm=256,1024",
    )
    parser.add_argument("--out", type=Path, help="write them to this file too")
    arguments = parser.parse_args()
    wanted = {}
    for item in arguments.names:
        name, _, sizes = item.partition("=")
        try:
            wanted[name] = [int(size) for size in sizes.split(",")]
        except ValueError:
            raise UserError(f"'{item}' is not of the form baseline=size,size; for instance cublas.sgemm=256.") from None
        baseline(name)
    names = _profile(wanted)
    if arguments.out:
        write_json(arguments.out, names)
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    run_stage(main)
