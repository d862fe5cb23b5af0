"""Loads fat binaries and launches their kernels; and says how many blocks of a launch fit on an SM."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.build.record import Build, read_build
from gemmrepro.core.architectures import compiles, pick_arch
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.errors import UserError
from gemmrepro.gpu.cublas import opened, opened_lt
from gemmrepro.gpu.device import Gpu, HeldArrays, Session
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch, LibraryStep, Step
from gemmrepro.registry.requirements import requirement

PORTABLE_SHARED_BYTES = 48 * 1024

FATBIN_MAGIC = 0xBA55ED50
"""First word of a fat binary (fatbinary.h); version, header size and body size follow."""


def fat_binaries(data: bytes) -> list[bytes]:
    """Split `data` into the fat binaries that it concatenates; a cubin is returned unchanged.
    Raises UserError if the data is malformed or truncated."""
    if data.startswith(b"\x7fELF"):
        return [data]
    binaries, start = [], 0
    while start < len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data.ljust(start + 16, b"\0"), start)
        end = start + header + size
        if magic != FATBIN_MAGIC or end > len(data):
            raise UserError("the binary is not a fat binary, or is truncated; run the build stage again.")
        binaries.append(data[start:end])
        start = end
    return binaries


@dataclass(frozen=True)
class Binary:
    """A kernel's fat binary or cubin, and the architecture of the machine code that a GPU runs."""

    kernel: Kernel
    toolkit: str
    build_key: str
    arch: str
    path: Path

    @classmethod
    def built(cls, gpu: Gpu, kernel: Kernel, build: Path, toolkit: str) -> Binary:
        """The binary that the build stage made.
        Raises UserError if it is missing, has no code for this GPU, or needs a newer driver."""
        if needs := requirement(kernel, gpu.compute_capability):
            raise UserError(f"needs {needs}")
        record = read_build(kernel, build, toolkit)
        arch = pick_arch(list(record.archs), gpu.compute_capability)
        if arch is None:
            raise _no_code(gpu, kernel, record)
        toolkit_major = int(record.toolkit_version.split(".")[0])
        if toolkit_major > gpu.driver_cuda[0]:
            raise UserError(
                f"driver {gpu.driver} supports CUDA {gpu.driver_cuda[0]}.{gpu.driver_cuda[1]} and cannot load what "
                f"CUDA {record.toolkit_version} built; update the driver, or leave {toolkit} out of sweep.toolkits."
            )
        path = Path(build) / toolkit / f"{kernel.id}.fatbin"
        if not path.is_file():
            raise UserError(f"the binary {path} is missing; run the build stage again.")
        return cls(kernel, toolkit, record.build_key, arch, path)


def _no_code(gpu: Gpu, kernel: Kernel, record: Build) -> UserError:
    """Why a kernel has no machine code for `gpu`, and what to do."""
    toolkit, archs = record.toolkit, record.archs
    number = compiles(toolkit, gpu.compute_capability)
    if number is None:
        return UserError(f"not compiled for {gpu.arch}: {toolkit} does not know it")
    if message := record.refused.get(f"sm_{number}"):
        return UserError(f"not built for sm_{number}: {' '.join(message.splitlines()[:2])}")
    if not archs:
        return UserError(
            f"{kernel.id} was not compiled with {toolkit}; take {kernel.family} out of compiled_once in the "
            "configuration and build again."
        )
    return UserError(
        f"the {toolkit} binary of {kernel.id} has code for {', '.join(archs)} and none for the "
        f"{gpu.name} ({gpu.arch}); add {number} to build.{toolkit} in the configuration and build again."
    )


def launch_config(launch: Launch, kernel: str) -> Any:
    """`launch` as cuda.core takes it. Raises UserError if the grid of `kernel` is not a multiple of its cluster."""
    from cuda.core import LaunchConfig

    grid: tuple[int, ...] = launch.grid
    options: dict[str, Any] = {}
    if launch.cluster is not None:
        if any(blocks % size for blocks, size in zip(grid, launch.cluster, strict=True)):
            raise UserError(f"{kernel}: grid {grid} is not a multiple of its cluster {launch.cluster}.")
        # The registry counts the grid in blocks, cuda.core in clusters.
        grid = tuple(blocks // size for blocks, size in zip(grid, launch.cluster, strict=True))
        options["cluster"] = launch.cluster
    if launch.early:
        options["programmatic_stream_serialization"] = True
    return LaunchConfig(grid=grid, block=launch.block, shmem_size=launch.shared_bytes, **options)


WARP = 32
"""Threads of a warp."""

PARTITIONS = 4
"""An SM's registers are in so many parts; a warp's are all in one (since Volta)."""

REGISTER_UNIT, SHARED_UNIT = 256, 128
"""Registers are given to a warp, and bytes of shared memory to a block, in multiples of this (since Volta)."""


@dataclass(frozen=True)
class Multiprocessor:
    """Resources shared by blocks: an SM's registers and bytes of shared memory, `reserved` for each block."""

    count: int
    registers: int
    shared_bytes: int
    reserved_bytes: int

    def by_registers(self, registers: int, threads: int) -> int:
        """Blocks of `threads`, of so many registers each, whose registers an SM has."""
        each = REGISTER_UNIT * math.ceil(registers * WARP / REGISTER_UNIT)
        warps = PARTITIONS * (self.registers // PARTITIONS // each)
        return warps // math.ceil(threads / WARP)

    def by_shared_memory(self, shared_bytes: int) -> int:
        """Blocks whose shared memory, static and dynamic, an SM has."""
        each = SHARED_UNIT * math.ceil((shared_bytes + self.reserved_bytes) / SHARED_UNIT)
        return self.shared_bytes // each


@dataclass(frozen=True)
class Occupancy:
    """Blocks per SM that the registers, the shared memory, and all that limits them allow; waves of the grid."""

    by_registers: int
    by_shared_memory: int
    resident: int
    waves: float


def occupancy(function: Any, launch: Launch) -> Occupancy:
    """The occupancy of a launch of `function`, a kernel of cuda.core's, on the current GPU."""
    from cuda.core import Device

    properties = Device().properties
    sm = Multiprocessor(
        properties.multiprocessor_count,
        properties.max_registers_per_multiprocessor,
        properties.max_shared_memory_per_multiprocessor,
        properties.reserved_shared_memory_per_block,
    )
    threads = math.prod(launch.block)
    held = function.attributes
    resident = function.occupancy.max_active_blocks_per_multiprocessor(threads, launch.shared_bytes)
    return Occupancy(
        by_registers=sm.by_registers(held.num_regs, threads),
        by_shared_memory=sm.by_shared_memory(held.shared_size_bytes + launch.shared_bytes),
        resident=resident,
        waves=math.prod(launch.grid) / (sm.count * resident),
    )


class Loaded:
    """A kernel of the registry, loaded on the GPU."""

    def __init__(self, session: Session, binary: Binary) -> None:
        """Load it. Raises UserError if the driver cannot load the binary, or it has no such entry point."""
        from cuda.core import ObjectCode

        self.session, self.kernel, self.toolkit = session, binary.kernel, binary.toolkit
        self.build_key, self.arch, self.path = binary.build_key, binary.arch, binary.path
        kernel, path = binary.kernel, binary.path
        try:
            images = [ObjectCode.from_fatbin(image, name=kernel.id) for image in fat_binaries(path.read_bytes())]
            held = images if len(images) == len(kernel.codes) else images * len(kernel.codes)
            self._functions = {
                code.code.entry: image.get_kernel(code.code.entry)
                for code, image in zip(kernel.codes, held, strict=True)
            }
        except Exception as error:
            raise UserError(
                f"{path} cannot be loaded on the {session.gpu.name} by driver {session.gpu.driver} ({error}); update "
                f"the driver if it is older than the toolkit, else build it again, with code for {session.gpu.arch}, "
                f"and check that its entry point is called '{kernel.code.entry}'."
            ) from None
        self._code = images
        self._shared_set = dict.fromkeys(self._functions, 0)

    @classmethod
    def built(cls, session: Session, kernel: Kernel, build: Path, toolkit: str) -> Loaded:
        """Load the binary that the build stage made.
        Raises UserError if it is missing, has no code for this GPU, needs a newer driver, or cannot be loaded."""
        return cls(session, Binary.built(session.gpu, kernel, build, toolkit))

    @classmethod
    def from_file(cls, session: Session, kernel: Kernel, path: Path, toolkit: str = "test") -> Loaded:
        """Load `kernel` from any fat binary or cubin without a build record, for tuning and tests."""
        return cls(session, Binary(kernel, toolkit, "unrecorded", session.gpu.arch, Path(path)))

    def _config(self, launch: Launch, entry: str) -> Any:
        if launch.shared_bytes > PORTABLE_SHARED_BYTES and launch.shared_bytes > self._shared_set[entry]:
            from cuda.bindings import driver

            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuKernelSetAttribute(
                attribute, launch.shared_bytes, driver.CUkernel(int(self._functions[entry].handle)), driver.CUdevice(0)
            )
            if status != driver.CUresult.CUDA_SUCCESS:
                raise UserError(
                    f"{self.kernel.id} needs {launch.shared_bytes} bytes of dynamic shared memory per block, which the "
                    f"{self.session.gpu.name} does not have ({status.name})."
                )
            self._shared_set[entry] = launch.shared_bytes
        return launch_config(launch, self.kernel.id)

    def bind(self, operands: Operands, part: Kernel | None = None) -> Callable[[], None]:
        """A function that launches the kernel once on `operands`, asynchronously on the session's stream.
        `part`: one of `Kernel.parts`; by default the one that the kernel chooses for the shape. Raises UserError if the
        kernel cannot run this shape."""
        self.kernel.check(operands.shape)
        part = part or self.kernel.at(operands.shape)
        steps = part.steps_at(operands.shape)
        if not steps:
            return self._bound(operands, part, self.workspace(operands.shape) if part.run.workspace else {})
        if part.run.program is not None:
            launches, program = self.launches(operands), part.run.program
            return lambda: program(launches)
        arrays = self.workspace(operands.shape)
        calls = [
            self._bound(operands, part.part(step), arrays)
            if isinstance(step, Step)
            else self._library(operands.shape, step, arrays)
            for step in steps
        ]
        return _in_order(calls)

    def workspace(self, shape: Shape) -> dict[str, Any]:
        """The kernel's arrays beside A, B and C for `shape`; reused until another kernel or shape is bound.
        All bits are set (NaN in floats) except of those that the record declares zeroed, so that a kernel that relies
        on zeroed memory elsewhere fails its gate. Bound launches keep their arrays alive."""
        import cupy

        held = self.session.workspace
        if held is None or (held.kernel, held.shape) != (self.kernel.id, shape):
            self.session.workspace = None
            cupy.get_default_memory_pool().free_all_blocks()  # blocks of the previous sizes do not fit
            arrays = {}
            for name, buffer in self.kernel.run.workspace.items():
                arrays[name] = cupy.empty(buffer.lengths(shape), STORAGE[buffer.dtype])
                content = 0 if buffer.zeroed else 0xFF
                cupy.cuda.runtime.memsetAsync(
                    arrays[name].data.ptr, content, arrays[name].nbytes, self.session.stream.ptr
                )
            held = self.session.workspace = HeldArrays(self.kernel.id, shape, arrays)
        return held.arrays

    def occupancy(self, shape: Shape) -> Occupancy | None:
        """The occupancy of its launch; None if a run is more than one, or cuTile's, whose threads its compiler chose.
        Raises UserError if the kernel cannot run this shape."""
        part = self.kernel.at(shape)
        if part.steps_at(shape) or part.code.compiler == "cutile":
            return None
        launch, entry = part.launch(shape), part.code.entry
        self._config(launch, entry)  # allows the launch its shared memory
        return occupancy(self._functions[entry], launch)

    def launches(self, operands: Operands) -> Launches:
        """Its launches on `operands`, for a host program."""
        return Launches(self, operands)

    def _bound(self, operands: Operands, part: Kernel, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """A function that makes one launch on the operands and the workspace `arrays`, which it keeps alive."""
        from cuda.core import launch

        config = self._config(part.launch(operands.shape), part.code.entry)
        arguments = operands.arguments(part, arrays)
        stream, function = self.session.core_stream, self._functions[part.code.entry]

        def call(kept: Any = arrays) -> None:
            launch(stream, config, function, *arguments)

        return call

    def _library(self, shape: Shape, step: LibraryStep, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """A function that runs `step` with cuBLAS, by the first algorithm of cublasLt's heuristic."""
        strides = step.strides(shape)
        flat = [arrays[name].reshape(-1) for name in step.arrays]
        calls = []
        for i in range(step.count):
            a, b, c = (array[i * stride :] for array, stride in zip(flat, strides, strict=True))
            part = Operands(step.problem, step.shape(shape), (a, b), c)
            offered = opened_lt(self.session).candidates(part, 1)
            calls.append(offered[0] if offered else opened(self.session).gemm_ex(part))
        return _in_order(calls)


def _in_order(calls: list[Callable[[], None]]) -> Callable[[], None]:
    """A function that makes all `calls` in order."""

    def call() -> None:
        for launch in calls:
            launch()

    return call


class Launches:
    """The argument of a kernel's `Run.program`: launches by entry point, workspace, operands and copies to the host."""

    def __init__(self, loaded: Loaded, operands: Operands) -> None:
        self._loaded, self._operands = loaded, operands
        self.shape = operands.shape
        self.workspace = loaded.workspace(operands.shape)
        self.operands = {name: array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()}

    def bind(self, *entries: str, **arrays: Any) -> Callable[[], None]:
        """A function that makes the launches of `entries`, in the order of the run, asynchronously.
        `arrays` replace those that the arguments name. Raises UserError if the kernel has no such launch."""
        kernel = self._loaded.kernel
        launches = [step for step in kernel.steps_at(self.shape) if isinstance(step, Step)]
        if unknown := {*entries} - {step.entry for step in launches}:
            named = ", ".join(f"'{entry}'" for entry in sorted(unknown))
            raise UserError(f"{kernel.id} has no launch {named}; correct its program, or add a step of that name.")
        steps = [step for step in launches if step.entry in entries]
        passed = {**self.workspace, **arrays}
        return _in_order([self._loaded._bound(self._operands, kernel.part(step), passed) for step in steps])

    def __call__(self, entry: str, **arrays: Any) -> None:
        """Make the launches of `entry`; see `bind`."""
        self.bind(entry, **arrays)()

    def read(self, array: Any) -> Any:
        """Copy `array` to the host, after everything that was launched before."""
        return array.get(stream=self._loaded.session.stream)
