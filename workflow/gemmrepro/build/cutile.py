"""Kernels written in cuTile Python, compiled ahead of time to machine code where no GPU is.

`build` asks this module as it would any other compiler of `registry.COMPILERS`. cuTile's compiler, tileiras, makes a
cubin an architecture; there is no PTX between, hence none to keep for newer GPUs. Each architecture is compiled in a
process of its own, which runs this module:

    python -m gemmrepro.build.cutile SPEC.json sm_90 OUT.cubin

A source holds functions decorated with ``cuda.tile.kernel``: arrays first, in the order of `Kernel.arguments`
(``array:a``), then the integers that a step of a kernel of several launches gives, then the constants that
`Kernel.defines` gives (`registry.parameters`). What is promised of an array follows from the record: rows are
contiguous, arrays begin at whole 16 bytes, and lengths and strides are multiples of what `Kernel.multiple_of` says.
``HINTS`` among the defines holds hints for the compiler: ``occupancy=2``.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.build import cuobjdump
from gemmrepro.build.sass import Function
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError, run_stage
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

PACKAGES = ("cuda-tile", "nvidia-cuda-tileiras")
"""The language and its compiler."""

KEEPS_PTX = False
"""There is none, so no newer GPU is served."""

ALIGNMENT = 16
"""Bytes at whose multiples every array is promised to begin."""

HINTS = ("num_ctas", "occupancy", "num_worker_warps", "opt_level")
"""What ``cuda.tile.kernel`` may be told."""

REFUSED = 3
"""Exit code of the compiling process where the compiler, and nothing else, said no."""

_ELEMENTS = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "int8": "int8",
    "int32": "int32",
}

TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
"""What may name a CUDA toolkit. cuda-tile's compiler takes libNVVM from there before its own, and with an older one it
fails without saying why: it is not to see them."""


@dataclass(frozen=True)
class Array:
    """What the compiler is told of an array: element type, and of each axis what its length is a multiple of."""

    name: str
    element: str
    multiples: tuple[int, ...]


def packages(kernel: Kernel) -> dict[str, str]:
    """Versions of the packages that compile `kernel`, by name.

    Raises:
        UserError: one of them is not installed.
    """
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"{kernel.id} is compiled by the Python package {name}, which is not installed; run Snakemake with "
                f"--use-singularity, which brings it in a container, or pip install 'cuda-tile[tileiras]'."
            ) from None
    return found


def flags(kernel: Kernel) -> tuple[str, ...]:
    """What decides the machine code beside the source and the versions: constants, hints, promises of the arrays."""
    if kernel.steps:
        return tuple(f"{code.entry}:{flag}" for code in kernel.codes for flag in (code.function, *flags(code)) if flag)
    promised = (f"{one.name}:{one.element}/{'x'.join(map(str, one.multiples))}" for one in arrays(kernel))
    constants = (f"{name}={value}" for name, value in _pairs(kernel, "PARAMETERS").items())
    return (*promised, *constants, *(f"{name}={value}" for name, value in hints(kernel).items()))


def arrays(kernel: Kernel) -> tuple[Array, ...]:
    """The arrays of `kernel` in the order of its arguments.

    Raises:
        UserError: an argument that cuTile's kernels do not take, or an operation whose arrays are not known here.
    """
    axes = {
        "gemm": {"a": "mk", "b": "nk" if kernel.layout == "row,col,row" else "kn", "c": "mn"},
        "vector_add": {"a": "n", "b": "n", "c": "n"},
    }.get(kernel.op)
    if axes is None:
        raise UserError(f"{kernel.id}: operation '{kernel.op}' has no arrays in gemmrepro.build_cutile; add them.")
    found = []
    for argument in kernel.arguments:
        if isinstance(argument, int):
            continue
        name = argument.removeprefix("array:")
        if name in kernel.workspace and name != argument:
            buffer = kernel.workspace[name]
            multiples = buffer.multiples or (1,) * len(buffer.lengths(Shape(1, 1, 1)))
            found.append(Array(name, _ELEMENTS[buffer.dtype], multiples))
            continue
        if name == argument or name not in axes:
            raise UserError(f"{kernel.id}: argument '{argument}' is no array, and a kernel in cuTile takes only those.")
        element = _ELEMENTS[kernel.dtype_out if name == "c" else kernel.dtype_in]
        found.append(Array(name, element, tuple(kernel.multiple_of.get(axis, 1) for axis in axes[name])))
    return tuple(found)


def integers(kernel: Kernel) -> int:
    """How many integers (int32) a launch passes behind the arrays.

    Raises:
        UserError: one of them stands before an array.
    """
    given = [isinstance(argument, int) for argument in kernel.arguments]
    if given != sorted(given):
        raise UserError(f"{kernel.id}: integers among the arguments of a kernel in cuTile stand behind its arrays.")
    return sum(given)


def hints(kernel: Kernel) -> dict[str, int]:
    """What the compiler is told beside the source. Raises UserError at a hint that it does not know."""
    found = _pairs(kernel, "HINTS")
    if unknown := set(found) - set(HINTS):
        raise UserError(f"{kernel.id}: {', '.join(sorted(unknown))} is no hint for cuTile; known: {', '.join(HINTS)}.")
    return found


def usage(entry: str, resources: str, elf: str, functions: Mapping[str, Function]) -> dict[str, dict[str, int]]:
    """Registers, spills, stack and shared memory of `entry` by architecture, of a compiler that says nothing of them.

    Spills are the stores and loads of local memory. The threads of a block stand beside them, since only the compiler
    knows them. From sm_90 on the 1024 bytes that the system keeps are part of the shared memory.

    Args:
        resources, elf: what ``cuobjdump --dump-resource-usage`` and ``cuobjdump -elf`` print of the binary.
        functions: the machine code of `entry` by architecture.
    """
    found, blocks = {}, cuobjdump.parse_blocks(elf, entry)
    for arch, facts in cuobjdump.parse_resources(resources, entry).items():
        if arch in blocks and arch in functions:
            instructions = functions[arch].histogram
            spills = {
                f"spill_{name}_bytes": sum(
                    count * cuobjdump.local_bytes(opcode, unit) for opcode, count in instructions.items()
                )
                for name, unit in (("store", "STL"), ("load", "LDL"))
            }
            found[arch] = {**facts, **spills, "threads": blocks[arch]}
    return found


def asked_for(arch: str) -> str:
    """The architecture that the compiler was asked for, of that which its code is for: for sm_90 it makes sm_90a's.

    wgmma and its like are architecture-specific.
    """
    return arch.rstrip("af")


def _pairs(kernel: Kernel, name: str) -> dict[str, int]:
    """``NAME=1,OTHER=2`` of a record's defines."""
    pairs = (pair.split("=") for pair in kernel.defines.get(name, "").split(",") if pair)
    return {key: int(value) for key, value in pairs}


def compile_images(kernel: Kernel, archs: list[str], threads: int, folder: Path) -> dict[str, Path]:
    """Compile `kernel` for each of `archs` ("90"), `threads` of them at a time.

    Returns: a cubin in `folder` by architecture.

    Raises:
        UserError: the source is missing or the compiler refuses it; the message is the compiler's own.
    """
    images = {}
    for arch, (image, said) in _compile(kernel, archs, threads, folder).items():
        if image is None:
            raise UserError(
                f"{kernel.id} does not compile with {PACKAGES[0]} for sm_{arch}:\n{said}\n"
                f"Correct {kernel.source_path.name} and run the same command again."
            )
        images[arch] = image
    return images


def refusals(kernel: Kernel, archs: list[str], threads: int, folder: Path) -> dict[str, str | None]:
    """What the compiler says to `kernel` for each of `archs`, which its record expects it to refuse.

    Returns: by architecture the compiler's message; None where it accepted the source after all.
    """
    tried = _compile(kernel, archs, threads, folder)
    return {arch: said if image is None else None for arch, (image, said) in tried.items()}


def _compile(kernel: Kernel, archs: list[str], threads: int, folder: Path) -> dict[str, tuple[Path | None, str]]:
    """A cubin, or None and the compiler's message, by architecture."""
    if not kernel.source_path.is_file():
        raise UserError(f"the source {kernel.source_path.name} of {kernel.id} is missing; restore it.")
    (folder / "spec.json").write_text(json.dumps(specification(kernel)))

    def one(arch: str) -> tuple[Path | None, str]:
        cubin = folder / f"sm_{arch}.cubin"
        scratch = folder / f"sm_{arch}"
        scratch.mkdir()
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in TOOLKITS and not name.startswith("CUDA_TILE_")
        }
        environment |= {
            "CUDA_TILE_TEMP_DIR": str(scratch),
            "CUDA_TILE_CACHE_DIR": str(scratch),
            "TMPDIR": str(scratch),
            "PYTHONPATH": str(ROOT / "workflow"),
        }
        command = [sys.executable, "-m", "gemmrepro.build.cutile", str(folder / "spec.json"), f"sm_{arch}", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
        if done.returncode == 0 and cubin.is_file():
            return cubin, ""
        said = (done.stderr or done.stdout).strip()[-3000:].replace(f"{ROOT}{os.sep}", "")
        if done.returncode != REFUSED:
            raise UserError(f"{kernel.id} cannot be given to {PACKAGES[0]} for sm_{arch}:\n{said}")
        return None, said

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(archs, pool.map(one, archs), strict=True))


def specification(kernel: Kernel) -> dict[str, Any]:
    """What the compiling process is told of `kernel`."""
    return {
        "source": os.path.relpath(kernel.source_path, ROOT),
        "entry": kernel.entry,
        "function": kernel.function or kernel.entry,
        "arrays": [[one.element, list(one.multiples)] for one in arrays(kernel)],
        "integers": integers(kernel),
        "constants": _pairs(kernel, "PARAMETERS"),
        "hints": hints(kernel),
    }


def tile_kernel(spec: dict[str, Any]) -> Any:
    """The cuda.tile.kernel that `spec` describes, with its hints.

    Raises:
        UserError: the source has no such kernel, or its constants are not those of the record.
    """
    import inspect

    import cuda.tile as ct

    # Compiled under the name that the specification gives it, relative to the folder this process runs in: it goes into
    # the line table of the machine code, which must not depend on where the repository lies.
    path = Path(spec["source"])
    module = types.ModuleType("cutile_source")
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    kernel = getattr(module, spec["function"], None)
    if not isinstance(kernel, ct.kernel):
        raise UserError(f"{path.name} defines no cuda.tile kernel '{spec['function']}'; mend the record's entry.")
    names = list(inspect.signature(kernel._pyfunc).parameters)
    given, constants = len(spec["arrays"]) + spec["integers"], spec["constants"]
    if names[given:] != list(constants):
        raise UserError(
            f"the kernel '{spec['function']}' of {path.name} takes the constants {', '.join(names[given:]) or 'none'} "
            f"behind {given} arrays and integers, its record gives {', '.join(constants) or 'none'}; mend one of them."
        )
    return kernel.replace_hints(**spec["hints"]) if spec["hints"] else kernel


def export(spec: dict[str, Any], arch: str, cubin: Path) -> None:
    """Compile what `spec` describes for `arch` ("sm_90") and write the machine code.

    Raises:
        UserError: see `tile_kernel`.
        cuda.tile.TileError: the compiler refuses it.
    """
    import cuda.tile as ct
    from cuda.tile import compilation

    kernel = tile_kernel(spec)

    def array(element: str, multiples: list[int]) -> Any:
        axes = len(multiples)
        return compilation.ArrayConstraint(
            getattr(ct, element),
            axes,
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            # Row-major and without gaps: the last stride is 1, and each one before it the lengths behind it multiplied.
            stride_constant=(None,) * (axes - 1) + (1,),
            stride_divisible_by=tuple(math.prod(multiples[axis + 1 :]) for axis in range(axes)),
            shape_divisible_by=tuple(multiples),
            base_addr_divisible_by=ALIGNMENT,
        )

    signature = compilation.KernelSignature(
        [
            *(array(*one) for one in spec["arrays"]),
            *[compilation.ScalarConstraint(ct.int32)] * spec["integers"],
            *spec["constants"].values(),
        ],
        compilation.CallingConvention.cutile_python_v1(),
        spec["entry"],
    )
    compilation.export_kernel(kernel, [signature], cubin, gpu_code=arch, output_format="cubin")


def main() -> int:
    spec, arch, cubin = sys.argv[1:]
    try:
        export(json.loads(Path(spec).read_text()), arch, Path(cubin))
    except Exception as error:
        if not type(error).__module__.startswith("cuda.tile"):
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    run_stage(main)
