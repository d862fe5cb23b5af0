"""Compile kernels in cuTile just in time on this machine's GPU, and check that they do what their binaries do.

The article calls ``cuda.tile.launch``, which compiles for the arrays that it is passed; this suite runs binaries that
were compiled ahead of time for no particular array (`gemmrepro.build.cutile`). Both must write the same bits here. The
verdict also says whether the machine code is the same: arrays tell the compiler more than the record promises.

    python -m gemmrepro just-in-time --family cutile --build results/build --out results/just_in_time/cutile.json

Without a GPU or the CUDA 13 image's packages the check is skipped, and the verdict says why.
"""

import ctypes
import importlib.metadata
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build import cutile
from gemmrepro.build.cutile import specification
from gemmrepro.build.cutile_export import tile_kernel
from gemmrepro.build.record import read_build
from gemmrepro.core.architectures import pick_arch
from gemmrepro.core.dtypes import bits
from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gates.gate import POISON_BITS
from gemmrepro.gpu import device
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, LibraryStep, Step

TOOLKIT = "cuda13"

SEED = 7

Run = Callable[[], None]
"""Makes all launches of one run, asynchronously."""


CODES = {"bf16": 4, "fp8_e4m3": 10, "fp8_e5m2": 12}
"""``DLDataTypeCode`` (dlpack.h, version 1.1) of element types that CuPy lacks and holds as unsigned integers
(`core.dtypes.STORAGE`): cuTile reads a type from DLPack's structure, where it is overwritten."""


class Tensor(ctypes.Structure):
    """``DLTensor``, the head of a capsule named ``dltensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def tensor(capsule: Any) -> Tensor:
    """The tensor in `capsule`, to read and write in place; it lives as long as the capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return Tensor.from_address(pointer(capsule, b"dltensor"))


class Typed:
    """An array of unsigned integers that DLPack exports with an element type of `CODES`."""

    def __init__(self, array: Any, dtype: str) -> None:
        self._array, self._code = array, CODES[dtype]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        capsule = self._array.__dlpack__(stream=stream)
        tensor(capsule).code = self._code
        return capsule


def shapes_for(kernel: Kernel) -> tuple[Shape, ...]:
    """A shape of several tiles with tails, and those that `Promises.gate_shapes` names."""
    tails, step = kernel.problem.operation.tails, {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "nk"}
    return (Shape(tails.m, tails.n * step["n"], tails.k * step["k"]), *kernel.promises.gate_shapes)


def launches_at(kernel: Kernel, shape: Shape) -> list[Kernel]:
    """The records of the launches that make a run on `shape`, in their order."""
    return [kernel.part(step) for step in kernel.steps_at(shape) if isinstance(step, Step)] or [kernel]


def passed_to(launch: Kernel, operands: Operands, workspace: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of ``cuda.tile.launch``: arrays with their lengths and types, integers, constants."""
    inputs = {name: array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()}
    arrays = {**inputs, **workspace}
    dtypes = {name: launch.problem.dtype_of(name) for name in inputs}
    dtypes |= {name: buffer.dtype for name, buffer in launch.run.workspace.items()}

    def value(argument: str | int) -> Any:
        if isinstance(argument, int):
            return argument
        name = argument.removeprefix("array:")
        return Typed(arrays[name], dtypes[name]) if dtypes[name] in CODES else arrays[name]

    return (*map(value, launch.call.arguments), *specification(launch)["constants"].values())


def difference(runs: Mapping[str, Run], sync: Callable[[], None], output: Any, workspace: Mapping[str, Any]) -> str:
    """Do two runs, each on poisoned memory; returns how their outputs differ in bits, or '' if they do not."""
    results = {}
    for name, run in runs.items():
        for array in (output, *workspace.values()):
            bits(array)[...] = POISON_BITS[array.dtype.itemsize]
        run()
        sync()
        results[name] = bits(output).copy()
    (first, expected), (second, actual) = results.items()
    if wrong := int((expected != actual).sum()):
        return f"{wrong} of {expected.size} elements differ between {first} and {second}"
    return ""


class TwoCompilations:
    """A kernel loaded from its binary, and its source for just-in-time compilation."""

    def __init__(self, session: device.Session, kernel: Kernel, build: Path, toolkit: str) -> None:
        """Raises UserError if the binary cannot be loaded, or the source does not fit the record."""
        self.session, self.kernel = session, kernel
        self.loaded = Loaded.built(session, kernel, build, toolkit)
        self._tiles = {code.code.entry: tile_kernel(specification(code)) for code in kernel.codes}

    def bind(self, operands: Operands) -> dict[str, Run]:
        """The run on `operands` of each compilation, by its name."""
        import cuda.tile as ct

        launches = [
            (launch.launch(operands.shape).grid, self._tiles[launch.code.entry], passed)
            for launch, passed in self._launches(operands)
        ]

        def just_in_time() -> None:
            for grid, tile, passed in launches:
                ct.launch(self.session.stream, grid, tile, passed)

        return {"ahead of time": self.loaded.bind(operands), "just in time": just_in_time}

    def codes(self, operands: Operands) -> dict[str, bytes]:
        """The cubins compiled just in time for `operands`, by entry point."""
        from cuda.tile import compilation

        codes, convention = {}, compilation.CallingConvention.cutile_python_v1()
        for launch, passed in self._launches(operands):
            entry, cubin = launch.code.entry, io.BytesIO()
            tile = self._tiles[entry]
            signature = compilation.KernelSignature.from_kernel_args(tile, passed, convention, symbol=entry)
            arch = self.session.gpu.arch
            compilation.export_kernel(tile, [signature], cubin, gpu_code=arch, output_format="cubin")
            codes[entry] = cubin.getvalue()
        return codes

    def _launches(self, operands: Operands) -> list[tuple[Kernel, tuple[Any, ...]]]:
        """The launches of a run on `operands`: (record, arguments)."""
        workspace = self.loaded.workspace(operands.shape)
        return [(launch, passed_to(launch, operands, workspace)) for launch in launches_at(self.kernel, operands.shape)]


Verdict = dict[str, Any]
"""The check of one kernel: its `status` (passed, failed or skipped), the `reason` if it did not pass, else whether both
compilations made the `same_code`."""


def verdict(status: str, reason: str = "", **found: Any) -> Verdict:
    """A verdict with what was found."""
    return {"status": status, "reason": reason, **found}


def require_compiler() -> None:
    """Raises UserError if cuTile or its compiler is not installed."""
    for name in cutile.PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(f"{name} is not installed (the CUDA 13 image has it)") from None


def check(session: device.Session, kernel: Kernel, build: Path) -> Verdict:
    """Compare both compilations of `kernel` on this GPU."""
    if kernel.run.program is not None:
        return verdict("skipped", "the host chooses between its launches as it goes")
    if any(isinstance(step, LibraryStep) for shape in shapes_for(kernel) for step in kernel.steps_at(shape)):
        return verdict("skipped", "a library does some of its steps")
    archs = list(read_build(kernel, build, TOOLKIT).archs)
    if pick_arch(archs, session.gpu.compute_capability) is None:
        return verdict("skipped", f"the binary has no code for {session.gpu.arch}")
    both = TwoCompilations(session, kernel, build, TOOLKIT)
    codes: dict[str, bytes] = {}
    for shape in shapes_for(kernel):
        operands = Operands.of(kernel, shape, *random(kernel.problem, shape, SEED))
        workspace = both.loaded.workspace(shape)
        if reason := difference(both.bind(operands), session.sync, operands.output, workspace):
            return verdict("failed", f"at {shape} {reason}")
        codes |= both.codes(operands)
    binary = (build / TOOLKIT / f"{kernel.id}.fatbin").read_bytes()
    return verdict("passed", same_code=all(code in binary for code in codes.values()))


def check_all(kernels: Sequence[Kernel], build: Path) -> dict[str, Verdict]:
    """A verdict per kernel; one whose check raises has failed. Raises UserError for a missing or corrupt binary."""
    try:
        require_compiler()
        session = device.open_gpu()
    except UserError as error:
        return {kernel.id: verdict("skipped", str(error)) for kernel in kernels}
    for name in cutile.TOOLKIT_VARIABLES:
        os.environ.pop(name, None)
    verdicts = {}
    with device.shared(session):
        for kernel in kernels:
            try:
                verdicts[kernel.id] = check(session, kernel, build)
            except UserError:
                raise
            except Exception as error:  # whatever the compiler or the driver reports
                verdicts[kernel.id] = verdict("failed", f"{type(error).__name__}: {error}"[:500])
    return verdicts


def main(arguments: Namespace) -> int:
    """Write the verdicts; 1 if two compilations of a kernel differ."""
    registry.family(arguments.family)
    kernels = [kernel for kernel in registry.kernels(arguments.family) if kernel.compiler_traits.just_in_time]
    if not kernels:
        raise UserError(f"family {arguments.family} has no kernels in cuTile; nothing is compiled just in time there.")
    build = arguments.build.resolve()
    out = arguments.out.resolve()
    os.chdir(ROOT)  # sources are named relative to it, in machine code too
    verdicts = check_all(kernels, build)
    write_json(out, verdicts)
    for name, found in verdicts.items():
        told = found["reason"] or ("the same machine code" if found["same_code"] else "different machine code")
        print(f"{name:32} {found['status']:8} {told}", file=sys.stderr)
    return int(any(found["status"] == "failed" for found in verdicts.values()))
