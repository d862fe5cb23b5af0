"""Kernels written in CuTe's Python DSL, compiled ahead of time to PTX where no GPU is.

`build` asks this module as it would any other compiler of `registry.COMPILERS`: for the versions and the flags that
decide the machine code, and for one image an architecture. The DSL takes its architecture from the environment when it
is imported, so each one is compiled in a process of its own, which runs this module:

    python -m gemmrepro.build.cute_dsl SPEC.json OUT.ptx

A source holds device code alone, as a .cu file does: one function decorated with ``cute.kernel``, whose parameters are
those of `Kernel.arguments`: ``Int32`` for m, n, k; ``Float32`` for alpha, beta; ``cute.Pointer`` for a, b, c. The host
function that the DSL wants around a kernel is made here and thrown away; of the launch only the block's shape enters
the code (``.reqntid``). With pointers and integers for parameters the entry point has the C signature of a CUDA C++
kernel: no descriptor of a tensor is passed, and the launcher needs to know nothing of the DSL.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError, run_stage
from gemmrepro.registry import Kernel

PACKAGES = (
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu13",
)
"""What the DSL consists of; the first is asked for, the others come with it."""

OPTIONS = "--opt-level 3"
"""Options of ``cute.compile`` that may change the code."""

ALIGNMENT = 16
"""Bytes to which every array is promised to be aligned: one access of 128 bits."""

SUFFIX = "_0"
"""What the DSL appends to the name of the first kernel that it traces, whatever name it was told."""

_POINTERS = {"a": "dtype_in", "b": "dtype_in", "c": "dtype_out"}
_SCALARS = {"m": "Int32", "n": "Int32", "k": "Int32", "iterations": "Int32", "alpha": "Float32", "beta": "Float32"}
_ELEMENTS = {"fp32": "Float32", "fp16": "Float16", "bf16": "BFloat16"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def packages(kernel: Kernel) -> dict[str, str]:
    """Versions of the packages that compile `kernel`, by name.

    Raises:
        UserError: the DSL is not installed.
    """
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if PACKAGES[0] not in found:
        raise UserError(
            f"{kernel.id} is compiled by the Python package {PACKAGES[0]}, which is not installed; run Snakemake with "
            f"--use-singularity, which brings it in a container, or pip install '{PACKAGES[0]}[cu13]'."
        )
    return found


def flags(kernel: Kernel) -> tuple[str, ...]:
    """What decides the machine code beside the source and the versions: options, the block, the parameters' types."""
    shape = "x".join(map(str, _block(kernel)))
    return (OPTIONS, f"block={shape}", *(f"{name}:{kind}" for name, kind in _parameters(kernel)))


def compile_images(kernel: Kernel, archs: list[str], threads: int, folder: Path) -> dict[str, Path]:
    """Compile `kernel` for each of `archs` ("90"), `threads` of them at a time.

    Returns: a file of PTX in `folder` by architecture.

    Raises:
        UserError: the source is missing or the DSL refuses it; the message is the DSL's own.
    """
    if not kernel.source_path.is_file():
        raise UserError(f"the source {kernel.source_path.name} of {kernel.id} is missing; restore it.")
    spec = {
        "source": str(kernel.source_path),
        "entry": kernel.entry,
        "parameters": _parameters(kernel),
        "block": _block(kernel),
    }
    (folder / "spec.json").write_text(json.dumps(spec))

    def one(arch: str) -> Path:
        ptx = folder / f"sm_{arch}.ptx"
        scratch = folder / f"sm_{arch}"
        scratch.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUTE_DSL_")}
        environment |= {
            "CUTE_DSL_ARCH": f"sm_{arch}",
            "CUTE_DSL_KEEP": "ptx",
            "CUTE_DSL_DUMP_DIR": str(scratch),
            "CUTE_DSL_CACHE_DIR": str(scratch),
            "CUTE_DSL_DISABLE_FILE_CACHING": "1",
            "TMPDIR": str(scratch),
            "PYTHONPATH": str(ROOT / "workflow"),
        }
        command = [sys.executable, "-m", "gemmrepro.build.cute_dsl", str(folder / "spec.json"), str(ptx)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode or not ptx.is_file():
            said = _COLOURS.sub("", done.stderr or done.stdout).strip()[-3000:]
            raise UserError(
                f"{kernel.id} does not compile with {PACKAGES[0]} for sm_{arch}:\n{said}\n"
                f"Correct {kernel.source_path.name} and run the same command again."
            )
        return ptx

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(archs, pool.map(one, archs), strict=True))


def _block(kernel: Kernel) -> tuple[int, int, int]:
    """The block's shape, which the DSL compiles in: it may not depend on the problem's."""
    if len(kernel.blocks) != 1:
        raise UserError(
            f"{kernel.id} is compiled for one shape of block and its record's launch gives {len(kernel.blocks)} for "
            f"usual problems; make it give the same for all that it takes."
        )
    return kernel.blocks[0]


def _parameters(kernel: Kernel) -> list[tuple[str, str]]:
    """Name and type of each parameter; a pointer's type is that of its elements with a star."""
    found = []
    for name in kernel.arguments:
        if name in _POINTERS:
            found.append((name, _ELEMENTS[getattr(kernel, _POINTERS[name])] + "*"))
        elif name in _SCALARS:
            found.append((name, _SCALARS[name]))
        else:
            raise UserError(f"{kernel.id}: argument '{name}' has no counterpart in a kernel of the Python DSL.")
    return found


def trace(spec: dict[str, Any], ptx: Path) -> None:
    """Compile what `spec` describes for the architecture that the environment names, and write its PTX.

    Runs in a process of its own, with the DSL's settings in its environment.

    Raises:
        UserError: the source has no such kernel, or the DSL gave it another name.
    """
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_ptr

    path = Path(spec["source"])
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[path.stem] = module
    module_spec.loader.exec_module(module)

    entry, name = spec["entry"], spec["entry"].removesuffix(SUFFIX)
    kernel = getattr(module, name, None)
    if kernel is None:
        raise UserError(f"{path.name} defines no kernel '{name}', which the entry point '{entry}' is made from.")
    kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)

    # Values are given for their types alone: a number or an address that reaches a host function is not compiled in.
    given = []
    for _, kind in spec["parameters"]:
        element = getattr(cutlass, kind.removesuffix("*"))
        pointer = kind.endswith("*")
        given.append(make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=ALIGNMENT) if pointer else element(1))
    block = tuple(spec["block"])

    @cute.jit
    def host(*values):
        # The grid is known at run time only, so that nothing is derived from it.
        kernel(*values[:-3]).launch(grid=values[-3:], block=block)

    compiled = cute.compile(host, *given, *(cutlass.Int32(1) for _ in range(3)), options=OPTIONS)
    names = list(compiled.kernel_info)
    if names != [entry]:
        raise UserError(
            f"the DSL calls the kernel of {path.name} {', '.join(names)}, and its record says entry='{entry}'; "
            f"enter the DSL's name into family.py."
        )
    ptx.write_text(compiled.__ptx__)


def main() -> int:
    spec, ptx = map(Path, sys.argv[1:])
    trace(json.loads(spec.read_text()), ptx)
    return 0


if __name__ == "__main__":
    run_stage(main)
