"""Compiles kernels written in cuTile Python to machine code, ahead of time and without a GPU.

tileiras, its compiler, makes one cubin per architecture, in a process each (`cutile_export`), and no PTX for newer
GPUs. What several kernels share is compiled once.

A source defines functions decorated with ``cuda.tile.kernel``. Their parameters are arrays, as in `Call.arguments`
(``array:a``); then a `Step`'s integers; then the constants in `Code.defines` (`registry.parameters`). The record
guarantees: rows are contiguous, arrays aligned to 16 bytes, lengths and strides multiples as in `Accepts.multiple_of`.
The define ``HINTS`` has hints for the compiler: ``occupancy=2``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.build import cutile_export
from gemmrepro.build.listings import Function, Listings, local_bytes, parse_blocks, parse_resources
from gemmrepro.build.nvcc import Compiler, child_environment, installed
from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import Toolkit, assemble
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

PACKAGES = ("cuda-tile", "nvidia-cuda-tileiras")

HINTS = ("num_ctas", "occupancy", "num_worker_warps", "opt_level")
"""Hints that ``cuda.tile.kernel`` knows."""

_ELEMENTS = {
    **{"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"},
    **{"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "int8": "int8", "int32": "int32"},
}

TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
"""Variables hidden from the compiler: it would prefer their toolkit's libNVVM, and fail silently with an older one."""


@dataclass(frozen=True)
class Array:
    """Assumptions of the compiler about an array: its element type, and a divisor of each dimension."""

    name: str
    element: str
    multiples: tuple[int, ...]


class CuTile(Compiler):
    """cuTile, whose compiler is tileiras."""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        return installed(kernel, PACKAGES, "cuda-tile[tileiras]", len(PACKAGES))

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        if kernel.run.steps:
            return tuple(
                f"{code.code.entry}:{flag}"
                for code in kernel.codes
                for flag in (code.code.function, *self.flags(code))
                if flag
            )
        promises = (f"{array.name}:{array.element}/{'x'.join(map(str, array.multiples))}" for array in arrays(kernel))
        constants = (f"{name}={value}" for name, value in _pairs(kernel, "PARAMETERS").items())
        return (*promises, *constants, *(f"{name}={value}" for name, value in hints(kernel).items()))

    def target_flags(self, kernel: Kernel, archs: Sequence[str]) -> list[str]:
        return []

    def units(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """A cubin contains one entry point."""
        return kernel.codes

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        return assemble(compile_cubins(kernel, archs, threads, binary.parent), binary)

    def refusals(self, kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, str | None]:
        tried = attempts(kernel, archs, threads, folder)
        return {arch: message if cubin is None else None for arch, (cubin, message) in tried.items()}

    def code_arch(self, arch: str) -> str:
        """Code for sm_90 is built as sm_90a, since instructions such as wgmma are architecture-specific."""
        return arch.rstrip("af")

    def usage(self, entry: str, log: str, listings: Listings) -> dict[str, Usage]:
        functions = {self.code_arch(arch): function for arch, function in listings.functions(entry).items()}
        return read_usage(entry, listings.resources, listings.elf, functions)


def arrays(kernel: Kernel) -> tuple[Array, ...]:
    """The arrays of `kernel` in the order of its arguments. Raises UserError if it takes others, or has no `axes`."""
    axes = kernel.problem.operation.axes(kernel.problem)
    if not axes:
        raise UserError(
            f"{kernel.id}: operation '{kernel.compute.op}' names no axes of its arrays, which cuTile's compiler needs; "
            "add them to its record in gemmrepro.operations."
        )
    promised = []
    for argument in kernel.call.arguments:
        if isinstance(argument, int):
            continue
        name = argument.removeprefix("array:")
        if name in kernel.run.workspace and name != argument:
            buffer = kernel.run.workspace[name]
            multiples = buffer.multiples or (1,) * len(buffer.lengths(Shape(1, 1, 1)))
            promised.append(Array(name, _ELEMENTS[buffer.dtype], multiples))
            continue
        if name == argument or name not in axes:
            raise UserError(f"{kernel.id}: argument '{argument}' is no array, and cuTile kernels take only arrays.")
        element = _ELEMENTS[kernel.problem.dtype_of(name)]
        promised.append(Array(name, element, tuple(kernel.accepts.multiple_of.get(axis, 1) for axis in axes[name])))
    return tuple(promised)


def integers(kernel: Kernel) -> int:
    """Number of integers (int32) that a launch passes after the arrays. Raises UserError if one precedes an array."""
    is_integer = [isinstance(argument, int) for argument in kernel.call.arguments]
    if is_integer != sorted(is_integer):
        raise UserError(f"{kernel.id}: integers among the arguments of a kernel in cuTile must follow its arrays.")
    return sum(is_integer)


def hints(kernel: Kernel) -> dict[str, int]:
    """Hints for the compiler. Raises UserError if one is unknown."""
    pairs = _pairs(kernel, "HINTS")
    if unknown := set(pairs) - set(HINTS):
        raise UserError(f"{kernel.id}: {', '.join(sorted(unknown))} is no hint for cuTile; known: {', '.join(HINTS)}.")
    return pairs


def read_usage(entry: str, resources: str, elf: str, functions: Mapping[str, Function]) -> dict[str, Usage]:
    """Resources of `entry` by architecture, from listings of its binary, since this compiler reports none.
    Spills are local memory's stores and loads; from sm_90 on, shared memory includes the system's 1024 bytes."""
    blocks = parse_blocks(elf, entry)

    def spills(arch: str, unit: str) -> int:
        opcodes = functions[arch].histogram
        return sum(count * local_bytes(opcode, unit) for opcode, count in opcodes.items())

    return {
        arch: Usage(
            registers=facts["REG"],
            stack_bytes=facts["STACK"],
            shared_bytes=facts["SHARED"],
            spill_store_bytes=spills(arch, "STL"),
            spill_load_bytes=spills(arch, "LDL"),
            threads=blocks[arch],
        )
        for arch, facts in parse_resources(resources, entry).items()
        if arch in blocks and arch in functions
    }


def _pairs(kernel: Kernel, name: str) -> dict[str, int]:
    """The define `name` of a record, ``NAME=1,OTHER=2``."""
    pairs = (pair.split("=") for pair in kernel.code.defines.get(name, "").split(",") if pair)
    return {key: int(value) for key, value in pairs}


def compile_cubins(kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, Path]:
    """A cubin in `folder` for each of `archs` ("90"). Raises UserError, as the compiler says, if it refuses one."""
    cubins = {}
    for arch, (cubin, message) in attempts(kernel, archs, threads, folder).items():
        if cubin is None:
            raise UserError(
                f"{kernel.id} does not compile with {PACKAGES[0]} for sm_{arch}:\n{message}\n"
                f"Correct {kernel.source_path.name} and run the same command again."
            )
        cubins[arch] = cubin
    return cubins


Compiled = tuple[bytes | None, str]
"""A cubin, or None and the compiler's message."""

_COMPILED: dict[Hashable, Future[Compiled]] = {}
"""Cubins compiled in this process. Kernels of FP64 by slices share entry points: of their 114, 60 differ."""


def attempts(
    kernel: Kernel, archs: Sequence[str], threads: int, folder: Path, python: str = sys.executable
) -> dict[str, tuple[Path | None, str]]:
    """By architecture, a cubin in `folder`, or None and the message of the compiler, which `python` has as a package.
    Raises UserError if the source is missing, or does not define what the record says."""
    if not kernel.source_path.is_file():
        raise UserError(f"the source {kernel.source_path.name} of {kernel.id} is missing; restore it.")
    spec, source = json.dumps(specification(kernel)), kernel.source_path.read_bytes()
    (folder / "spec.json").write_text(spec)

    def compile_for(arch: str) -> tuple[Path | None, str]:
        mine = Future[Compiled]()
        shared = _COMPILED.setdefault((python, arch, spec, source), mine)
        if shared is mine:
            try:
                mine.set_result(_compile(kernel, arch, folder, python))
            except BaseException as error:
                mine.set_exception(error)
        code, message = shared.result()  # of another thread, if it began first
        if code is None:
            return None, message
        cubin = folder / f"sm_{arch}.cubin"
        cubin.write_bytes(code)
        return cubin, ""

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(archs, pool.map(compile_for, archs), strict=True))


def _compile(kernel: Kernel, arch: str, folder: Path, python: str) -> Compiled:
    cubin, scratch = folder / f"sm_{arch}.cubin", folder / f"sm_{arch}"
    scratch.mkdir(exist_ok=True)
    command = [python, "-m", cutile_export.__name__, str(folder / "spec.json"), f"sm_{arch}", str(cubin)]
    told = dict.fromkeys(("CUDA_TILE_TEMP_DIR", "CUDA_TILE_CACHE_DIR"), str(scratch))
    environment = child_environment(scratch, [*TOOLKIT_VARIABLES, "CUDA_TILE_"], **told)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode == 0 and cubin.is_file():
        return cubin.read_bytes(), ""
    message = (done.stderr or done.stdout).strip()[-3000:].replace(f"{ROOT}{os.sep}", "")
    if done.returncode != cutile_export.REFUSED:
        raise UserError(f"{kernel.id} cannot be given to {PACKAGES[0]} for sm_{arch}:\n{message}")
    return None, message


def specification(kernel: Kernel) -> dict[str, Any]:
    """The description of `kernel` that `cutile_export` reads, as JSON."""
    return {
        "source": os.path.relpath(kernel.source_path, ROOT),
        "entry": kernel.code.entry,
        "function": kernel.code.function or kernel.code.entry,
        "arrays": [[array.element, list(array.multiples)] for array in arrays(kernel)],
        "integers": integers(kernel),
        "constants": _pairs(kernel, "PARAMETERS"),
        "hints": hints(kernel),
    }
