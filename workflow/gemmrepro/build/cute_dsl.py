"""Compiles kernels written in CuTe's Python DSL to PTX, ahead of time and without a GPU.

The DSL reads its target from the environment at import: each architecture is a process (`cute_dsl_trace`).

A source holds one function decorated with ``cute.kernel``, with parameters as in `Call.arguments`: ``Int32`` for m, n,
k; ``Float32`` for alpha, beta; ``cute.Pointer`` for a, b, c; ``cute.CopyAtom`` for map:a, map:b, map:c. The DSL wants a
host function around it; the child process makes one and discards it. Only the block's shape enters the code from the
launch (``.reqntid``). The entry point has the C signature of a CUDA C++ kernel: a copy atom is passed as the 128 bytes
of its tensor map (``const __grid_constant__ CUtensorMap``), which the launcher makes without the DSL; the record gives
the element type, box and swizzle of the matrix behind it.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gemmrepro.build import cute_dsl_trace
from gemmrepro.build.cute_dsl_trace import MAP, OPTIONS, SWIZZLE
from gemmrepro.build.nvcc import Compiler, child_environment, installed
from gemmrepro.build.toolkit import Toolkit, assemble
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel

PACKAGES = (
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu13",
)
"""The packages of the DSL; the first is required, the others are its dependencies."""

_POINTERS = {"a": "dtype_in", "b": "dtype_in", "c": "dtype_out"}
_SCALARS = {"m": "Int32", "n": "Int32", "k": "Int32", "iterations": "Int32", "alpha": "Float32", "beta": "Float32"}
_ELEMENTS = {"fp32": "Float32", "fp16": "Float16", "bf16": "BFloat16"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class CuteDsl(Compiler):
    """The compiler of CuTe's Python DSL."""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        return installed(kernel, PACKAGES, f"{PACKAGES[0]}[cu13]", 1)

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        return (OPTIONS, f"block={_by_x(block(kernel))}", *(f"{name}:{kind}" for name, kind in parameter_types(kernel)))

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        return assemble(compile_ptx(kernel, archs, threads, binary.parent), binary)


def compile_ptx(kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, Path]:
    """A PTX file in `folder` for each of `archs` ("90"). Raises UserError, which quotes the DSL, if it refuses one."""
    if not kernel.source_path.is_file():
        raise UserError(f"the source {kernel.source_path.name} of {kernel.id} is missing; restore it.")
    spec = {
        "source": str(kernel.source_path),
        "entry": kernel.code.entry,
        "parameters": parameter_types(kernel),
        "block": block(kernel),
    }
    (folder / "spec.json").write_text(json.dumps(spec))

    def compile_for(arch: str) -> Path:
        ptx = folder / f"sm_{arch}.ptx"
        scratch = folder / f"sm_{arch}"
        scratch.mkdir()
        command = [sys.executable, "-m", cute_dsl_trace.__name__, str(folder / "spec.json"), str(ptx)]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(arch, scratch), check=False)
        if done.returncode or not ptx.is_file():
            message = _COLOURS.sub("", done.stderr or done.stdout).strip()[-3000:]
            raise UserError(
                f"{kernel.id} does not compile with {PACKAGES[0]} for sm_{arch}:\n{message}\n"
                f"Correct {kernel.source_path.name} and run the same command again."
            )
        return ptx

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(archs, pool.map(compile_for, archs), strict=True))


def block(kernel: Kernel) -> tuple[int, int, int]:
    """The block's shape, which becomes part of the code. Raises UserError if it depends on the problem's shape."""
    if len(kernel.blocks) != 1:
        raise UserError(
            f"{kernel.id} is compiled for one block shape, but the launch in its record has {len(kernel.blocks)} on "
            f"usual problems; make it the same for all shapes that the kernel takes."
        )
    return kernel.blocks[0]


def parameter_types(kernel: Kernel) -> list[tuple[str, str]]:
    """Name and type of each parameter: ``BFloat16*``, or with the box of a tensor map ``BFloat16[128x64]``.
    Raises UserError if an argument has no counterpart in the DSL."""
    types = []
    for name in map(str, kernel.call.arguments):
        operand = name.removeprefix(MAP)
        if operand in _POINTERS:
            element = _ELEMENTS[getattr(kernel.compute, _POINTERS[operand])]
            types.append((name, element + (_box(kernel, operand) if name != operand else "*")))
        elif name in _SCALARS:
            types.append((name, _SCALARS[name]))
        else:
            raise UserError(f"{kernel.id}: argument '{name}' has no counterpart in a kernel of the Python DSL.")
    return types


def _box(kernel: Kernel, operand: str) -> str:
    """Raises UserError if the map's swizzle is not the one that the trace writes into the atom."""
    tensor_map = kernel.call.tensor_maps[operand]
    if tensor_map.swizzle != SWIZZLE:
        raise UserError(
            f"{kernel.id}: the tensor map of {operand} has a swizzle of {tensor_map.swizzle} bytes; kernels of the "
            f"Python DSL are compiled for {SWIZZLE}."
        )
    return f"[{_by_x(tensor_map.box)}]"


def _by_x(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _environment(arch: str, scratch: Path) -> dict[str, str]:
    told = {"ARCH": f"sm_{arch}", "KEEP": "ptx", "DUMP_DIR": str(scratch), "CACHE_DIR": str(scratch)}
    told["DISABLE_FILE_CACHING"] = "1"
    return child_environment(scratch, ["CUTE_DSL_"], **{f"CUTE_DSL_{name}": value for name, value in told.items()})
