"""Compiles kernels written in CuTe's Python DSL ahead of time, to PTX, where no GPU is.

The DSL takes its architecture from the environment when it is imported, so each one is compiled in a process of its
own (`cute_dsl_trace`).

A source holds device code alone, as a .cu file does: one function decorated with ``cute.kernel``, whose parameters are
those of `Kernel.arguments`: ``Int32`` for m, n, k; ``Float32`` for alpha, beta; ``cute.Pointer`` for a, b, c. The host
function that the DSL wants around a kernel is made there and thrown away; of the launch only the block's shape enters
the code (``.reqntid``). With pointers and integers for parameters the entry point has the C signature of a CUDA C++
kernel: no descriptor of a tensor is passed, and the launcher needs to know nothing of the DSL.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gemmrepro.build import cute_dsl_trace
from gemmrepro.build.cute_dsl_trace import OPTIONS
from gemmrepro.build.fatbin import assemble, gencode
from gemmrepro.build.listings import Listings
from gemmrepro.build.ptxas import parse_ptxas
from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel

PACKAGES = (
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu13",
)
"""What the DSL consists of; the first is asked for, the others come with it."""

_POINTERS = {"a": "dtype_in", "b": "dtype_in", "c": "dtype_out"}
_SCALARS = {"m": "Int32", "n": "Int32", "k": "Int32", "iterations": "Int32", "alpha": "Float32", "beta": "Float32"}
_ELEMENTS = {"fp32": "Float32", "fp16": "Float16", "bf16": "BFloat16"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class CuteDsl:
    """See `compilers.Compiler`."""

    entry_hint = ""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        versions = {}
        for name in PACKAGES:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        if PACKAGES[0] not in versions:
            raise UserError(
                f"{kernel.id} is compiled by the Python package {PACKAGES[0]}, which is not installed; run Snakemake "
                f"with --use-singularity, which brings it in a container, or pip install '{PACKAGES[0]}[cu13]'."
            )
        return versions

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        """The DSL's options, the block, and the parameters' types."""
        shape = "x".join(map(str, block(kernel)))
        return (OPTIONS, f"block={shape}", *(f"{name}:{kind}" for name, kind in parameter_types(kernel)))

    def target_flags(self, kernel: Kernel, archs: Sequence[str]) -> list[str]:
        return gencode(archs)

    def units(self, kernel: Kernel) -> tuple[Kernel, ...]:
        return (kernel,)

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        return assemble(compile_ptx(kernel, archs, threads, binary.parent), binary)

    def refusals(self, kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, str | None]:
        raise NotImplementedError("a record for CuTe's DSL expects no refusal")

    def code_arch(self, arch: str) -> str:
        return arch

    def usage(self, entry: str, log: str, listings: Listings) -> dict[str, Usage]:
        return parse_ptxas(log, entry)


def compile_ptx(kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, Path]:
    """Compile `kernel` for each of `archs` ("90"), `threads` of them at a time.

    Returns: a file of PTX in `folder` by architecture.

    Raises:
        UserError: the source is missing or the DSL refuses it; the message is the DSL's own.
    """
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
    """The block's shape, which the DSL compiles in.

    Raises:
        UserError: it depends on the problem's shape.
    """
    if len(kernel.blocks) != 1:
        raise UserError(
            f"{kernel.id} is compiled for one shape of block and its record's launch gives {len(kernel.blocks)} for "
            f"usual problems; make it give the same for all that it takes."
        )
    return kernel.blocks[0]


def parameter_types(kernel: Kernel) -> list[tuple[str, str]]:
    """Name and type of each parameter; a pointer's type is that of its elements followed by a star.

    Raises:
        UserError: the DSL has no counterpart of an argument.
    """
    types = []
    for name in kernel.call.arguments:
        if name in _POINTERS:
            types.append((name, _ELEMENTS[getattr(kernel.compute, _POINTERS[name])] + "*"))
        elif name in _SCALARS:
            types.append((name, _SCALARS[name]))
        else:
            raise UserError(f"{kernel.id}: argument '{name}' has no counterpart in a kernel of the Python DSL.")
    return types


def _environment(arch: str, scratch: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUTE_DSL_")}
    return environment | {
        "CUTE_DSL_ARCH": f"sm_{arch}",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": str(scratch),
        "CUTE_DSL_CACHE_DIR": str(scratch),
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(ROOT / "workflow"),
    }
