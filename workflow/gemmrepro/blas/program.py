"""R10 of `crt`, loaded once for each GPU, and its launches in order.

The record launches all of R10's kernels whatever the device decides. Here the host reads the decision, 24 bytes, before
it goes on, for what only it can launch: cuBLAS's DGEMM where no tile takes residues, and tiles in double beside the
passes over A and B, which leave tensor cores idle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import registry
from gemmrepro.blas import library
from gemmrepro.blas.matrices import Matrix
from gemmrepro.build.key import build_key
from gemmrepro.build.record import read_build
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu.loaded import fat_binaries
from gemmrepro.operands import encoded
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided
from gemmrepro.registry import Kernel, Launch

KERNEL = "crt.certified"
BUILT = ROOT / "results" / "build" / "cuda13"
NATIVES = {(False, False): "nn", (False, True): "nt", (True, False): "tn", (True, True): "tt"}
"""Endings of the entry points in double, by whether A and B are transposed."""

NATIVE_SHARED = {(a, b): 5 * 8 * ((16 * 132 if a else 128 * 20) + (96 * 20 if b else 16 * 100)) for a, b in NATIVES}
"""Bytes of their rings: 5 stages of 128 x 16 and 16 x 96 doubles, rows padded by 4 in the order they are stored in."""

CHUNK, DEPTH, LINES = 256, 128, 32
"""Elements of a column that a block measures and reduces to residues, and columns of a block."""

_int = np.int32


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Factors:
    """One product: C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows.

    Attributes:
        loosened: `decided.decide`'s.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    alpha: float
    beta: float
    loosened: int

    @property
    def shape(self) -> Shape:
        return Shape(self.a.rows, self.b.columns, self.a.columns)

    @property
    def tiles(self) -> int:
        """Tiles of C."""
        height, width = decided.TILE
        return _ceil(self.a.rows, height) * _ceil(self.b.columns, width)


@dataclass(frozen=True)
class Plan:
    """What the device decided: moduli, 13 to 16, or 0; tiles of 128 x 192 of C that take residues, and in double."""

    moduli: int
    tiles: int
    native_tiles: int


class Program:
    """The loaded kernels of one GPU."""

    def __init__(self, path: Path, device: int) -> None:
        """Load them from a fat binary.

        Raises:
            UserError: the GPU is not of compute capability 9.0, or its driver cannot load the binary.
        """
        import cupy
        from cuda.core import Device, ObjectCode

        properties = cupy.cuda.runtime.getDeviceProperties(device)
        if (properties["major"], properties["minor"]) != (9, 0):
            raise UserError(
                f"dgemm runs on Hopper (compute capability 9.0) and GPU {device} has {properties['major']}."
                f"{properties['minor']}; use the library's own product there."
            )
        Device(device).set_current()
        try:
            (image,) = fat_binaries(path.read_bytes())
            self._code = ObjectCode.from_fatbin(image, name=KERNEL)
            self._code.get_kernel("decide")  # which loads it
        except Exception as error:
            raise UserError(f"{path} cannot be loaded on GPU {device} ({error}); build it again.") from None
        self._device, self._functions = device, dict[str, Any]()
        self.kernel: Kernel = registry.kernel(KERNEL)
        self._steps = {step.entry: step for step in self.kernel.own_launches}

    def workspace(self, factors: Factors) -> dict[str, Any]:
        """Arrays beside A, B and C, on the current stream of CuPy.

        Raises:
            UserError: the GPU has too little memory left.
        """
        import cupy

        shape = factors.shape
        lengths = {name: (array.dtype, array.lengths(shape)) for name, array in self.kernel.run.workspace.items()}
        widest = max(shape.m, shape.n)  # a transposed A is measured as B is, in the same arrays
        lengths |= {"partial": ("fp64", (_ceil(shape.k, CHUNK), 3 * widest)), "largest": ("int32", (widest,))}
        sizes = {name: math.prod(each) * np.dtype(STORAGE[dtype]).itemsize for name, (dtype, each) in lengths.items()}
        total = sum(_ceil(size, 256) * 256 for size in sizes.values())
        try:
            memory = cupy.empty(total, np.uint8)
        except cupy.cuda.memory.OutOfMemoryError:
            raise UserError(
                f"dgemm needs {total / 2**30:.1f} GiB beside A, B and C for {shape}, which GPU {self._device} does not "
                "have left; free arrays, or multiply in blocks."
            ) from None
        arrays, start = {}, 0
        for name, (dtype, each) in lengths.items():
            arrays[name] = memory[start : start + sizes[name]].view(STORAGE[dtype]).reshape(each)
            start += _ceil(sizes[name], 256) * 256
        return arrays

    def run(self, factors: Factors, arrays: dict[str, Any], stream: Any, cupy_stream: Any) -> Plan:
        """Launch everything, and wait until the device has decided.

        `stream` and `cupy_stream` are one stream, as cuda.core and as CuPy know it.
        """
        self._decide(factors, arrays, stream)
        plan = Plan(*map(int, arrays["plan"].get(stream=cupy_stream)[:3]))
        if plan.moduli == 0:
            library.multiply(factors.a, factors.b, factors.c, factors.alpha, factors.beta)
            return plan
        done = self._natively_beside(factors, arrays, cupy_stream) if plan.native_tiles else None
        self._with_residues(factors, arrays, stream)
        if done is not None:
            cupy_stream.wait_event(done)
        return plan

    def _natively_beside(self, factors: Factors, arrays: dict[str, Any], cupy_stream: Any) -> Any:
        """Launch the tiles in double on a stream of their own; the event after them."""
        import cupy
        from cuda.core import Stream

        beside = cupy.cuda.Stream(non_blocking=True)
        beside.wait_event(cupy_stream.record())
        self._natively(factors, arrays, Stream.from_handle(beside.ptr))
        return beside.record()

    def _decide(self, factors: Factors, arrays: dict[str, Any], stream: Any) -> None:
        shape, a, b = factors.shape, factors.a, factors.b
        m, n, k = map(_int, (shape.m, shape.n, shape.k))
        step_a = (1, a.ld) if a.by_columns else (a.ld, 1)
        step_b = (1, b.ld) if b.by_columns else (b.ld, 1)
        self._launch(
            stream,
            "sample_inner",
            self._steps["sample_inner"].launch(shape),
            *(a.pointer, *map(_int, step_a), b.pointer, *map(_int, step_b)),
            *(_at(arrays, "inner"), m, n, k),
        )
        self._launch(stream, "settle_inner", self._once, _at(arrays, "inner", "plan"), k)
        self._launch(
            stream,
            "glance",
            self._steps["glance"].launch(shape),
            *(a.pointer, *map(_int, step_a), b.pointer, *map(_int, step_b)),
            *(_at(arrays, "inner", "plan"), m, n, k, _int(factors.loosened), _int(0)),
        )
        for side, one, lines, sign in (("a", a, shape.m, 1), ("b", b.transposed, shape.n, -1)):
            before = (
                one.pointer,
                _int(one.ld),
                _at(arrays, "inner"),
                _int(sign),
                _at(arrays, "plan", f"coarse_{side}"),
            )
            measures = _at(arrays, f"summaries_{side}", f"gauges_{side}")
            if one.by_columns:
                grid = Launch((_ceil(lines, LINES), _ceil(shape.k, CHUNK), 1), (256, 1, 1))
                halves, plan = _at(arrays, "partial", "largest"), _at(arrays, "plan")
                self._launch(stream, "measure_columns", grid, *before, halves, _int(lines), k)
                self._launch(
                    stream,
                    "join_columns",
                    Launch((_ceil(lines, 128), 1, 1), (128, 1, 1)),
                    plan,
                    halves,
                    measures,
                    _int(lines),
                    k,
                )
            else:
                self._launch(stream, "measure_rows", Launch((lines, 1, 1), (256, 1, 1)), *before, measures, k)
        gauges = _at(arrays, "plan", "gauges_a", "gauges_b", "worst")
        self._launch(
            stream,
            "bound_tiles",
            self._steps["bound_tiles"].launch(shape),
            *self._maps("bound_tiles", arrays),
            gauges,
            m,
            n,
            k,
        )
        lists = _at(arrays, "worst", "plan", "list", "natives", "kinds")
        self._launch(stream, "decide", self._once, lists, m, n, k, _int(factors.loosened), _int(0))

    def _with_residues(self, factors: Factors, arrays: dict[str, Any], stream: Any) -> None:
        shape, c = factors.shape, factors.c
        m, n, k = map(_int, (shape.m, shape.n, shape.k))
        for side, one, lines, sign in (("a", factors.a, shape.m, 1), ("b", factors.b.transposed, shape.n, -1)):
            entry = "columns_to_residues" if one.by_columns else "rows_to_residues"
            blocks = (_ceil(lines, LINES), _ceil(shape.k, DEPTH)) if one.by_columns else (lines, 1)
            self._launch(
                stream,
                entry,
                Launch((*blocks, 1), (256, 1, 1)),
                *(one.pointer, _int(one.ld), _at(arrays, "inner"), _int(sign)),
                *(_at(arrays, "plan", f"summaries_{side}", f"exponents_{side}", f"residues_{side}"), _int(lines), k),
            )
        product = self._steps["multiply"].launch(shape)
        listed = _at(arrays, "plan", "list", "residues")
        self._launch(stream, "multiply", product, *self._maps("multiply", arrays), listed, m, n, k)
        self._launch(
            stream,
            "reconstruct",
            self._steps["reconstruct"].launch(shape),
            _at(arrays, "plan", "kinds", "residues", "exponents_a", "exponents_b"),
            *(c.pointer, _int(c.ld), m, n, np.float64(factors.alpha), np.float64(factors.beta)),
        )

    def _natively(self, factors: Factors, arrays: dict[str, Any], stream: Any) -> None:
        shape, a, b, c = factors.shape, factors.a, factors.b, factors.c
        transposed = (a.by_columns, b.by_columns)
        blocks = self._steps["native_nn"].launch(shape).grid
        self._launch(
            stream,
            f"native_{NATIVES[transposed]}",
            Launch(blocks, (256, 1, 1), shared_bytes=NATIVE_SHARED[transposed]),
            *(a.pointer, _int(a.ld), b.pointer, _int(b.ld), _at(arrays, "plan", "natives")),
            *(c.pointer, _int(c.ld), *map(_int, (shape.m, shape.n, shape.k))),
            *(np.float64(factors.alpha), np.float64(factors.beta)),
        )

    @property
    def _once(self) -> Launch:
        return Launch((1, 1, 1), (1024, 1, 1))

    def _maps(self, entry: str, arrays: dict[str, Any]) -> list[Any]:
        maps = self._steps[entry].tensor_maps
        flat = {name: arrays[name].reshape(-1, arrays[name].shape[-1]) for name in maps}
        return [encoded(flat[name], "int8", wanted, KERNEL, name) for name, wanted in maps.items()]

    def _launch(self, stream: Any, entry: str, shape: Launch, *arguments: Any) -> None:
        from cuda.core import LaunchConfig, launch

        flat = [value for each in arguments for value in (each if isinstance(each, tuple) else (each,))]
        config = LaunchConfig(grid=shape.grid, block=shape.block, shmem_size=shape.shared_bytes)
        launch(stream, config, self._function(entry, shape.shared_bytes), *flat)

    def _function(self, entry: str, shared_bytes: int) -> Any:
        if entry not in self._functions:
            try:
                function = self._code.get_kernel(entry)
            except Exception as error:
                raise UserError(f"the binary of {KERNEL} has no launch '{entry}' ({error}); build it again.") from None
            if shared_bytes:
                from cuda.bindings import driver

                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                handle = driver.CUkernel(int(function.handle))
                (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, handle, driver.CUdevice(self._device))
                if status != driver.CUresult.CUDA_SUCCESS:
                    raise UserError(
                        f"GPU {self._device} refuses {shared_bytes} bytes of shared memory ({status.name})."
                    )
            self._functions[entry] = function
        return self._functions[entry]


def _at(arrays: dict[str, Any], *names: str) -> tuple[int, ...]:
    """Where arrays of the workspace are."""
    return tuple(arrays[name].data.ptr for name in names)


BUILD_IT = f"`envs/run snakemake --use-singularity --cores 1 results/build/cuda13/{KERNEL}.fatbin`"


def usable(binary: str | Path | None, built: Path = BUILT) -> Path:
    """The fat binary to load: `binary`, or by default the one in `built`.

    Raises:
        UserError: there is none; or that of the build stage is of other sources than today's, whose launches it gets.
    """
    path = Path(binary) if binary is not None else built / f"{KERNEL}.fatbin"
    if not path.is_file():
        raise UserError(f"the binary {path} is missing; build it with {BUILD_IT}, or pass binary=.")
    if binary is None:
        _check_sources(built)
    return path


@cache  # hashing takes longer than a small product; what is raised is not kept
def _check_sources(built: Path) -> None:
    """Raise UserError unless the build stage compiled the binary in `built` from what is in the tree."""
    kernel = registry.kernel(KERNEL)
    record = read_build(kernel, built.parent, built.name)
    if record.build_key != build_key(kernel, record.toolkit_version, record.packages):
        raise UserError(
            f"{KERNEL} in {built} was built from other sources than today's; build it again with {BUILD_IT}."
        )


@cache
def program(path: Path, device: int) -> Program:
    """The loaded kernels; see `Program`."""
    return Program(path, device)
