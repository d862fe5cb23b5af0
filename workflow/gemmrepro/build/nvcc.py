"""Compiles CUDA C++ with nvcc, and reads what ptxas reports."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmrepro import registry
from gemmrepro.build.compilers import COMPILERS
from gemmrepro.build.toolkit import Toolkit, _relative, _run, _shown
from gemmrepro.core import paths
from gemmrepro.errors import UserError

# Flags that may change the code. Those that cannot (verbosity, search paths, threads) are added in `compile_fatbin`.
# -no-compress: the binaries are small, and any driver and any tool reads them.
COMMON_FLAGS = ("-fatbin", "-std=c++17", "-O3", "-no-compress")
_DEFINED = {"nvcc": ' as extern "C" __global__'}

HEADER_PACKAGES = {"nvidia-cutlass": "cutlass_library/source/include"}
"""Python packages that carry C++ headers, and the folder in them that a source's includes start from."""


@dataclass(frozen=True)
class HeaderPackage:
    """An installed package of C++ headers."""

    name: str
    version: str
    include: Path


def header_packages(kernel: registry.Kernel) -> tuple[HeaderPackage, ...]:
    """The packages of headers that `kernel` names, as the environment has them.

    Raises:
        UserError: one is not known to this module, not installed, or holds no headers where they should be.
    """
    found = []
    for name in kernel.packages:
        if name not in HEADER_PACKAGES:
            known = ", ".join(sorted(HEADER_PACKAGES))
            raise UserError(
                f"{kernel.id} wants headers of '{name}', and it is not known where that package keeps them; known "
                f"packages: {known}. Add it to gemmrepro.build.HEADER_PACKAGES."
            )
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"{kernel.id} is compiled with the headers of the Python package {name}, which is not installed; run "
                f"Snakemake with --use-singularity, which brings it in a container, or pip install --no-deps {name}."
            ) from None
        include = Path(str(distribution.locate_file(HEADER_PACKAGES[name])))
        if not include.is_dir():
            raise UserError(
                f"{name} {distribution.version} has no headers in {HEADER_PACKAGES[name]}; install the version that "
                f"envs/requirements/cuda13.txt pins."
            )
        found.append(HeaderPackage(name, distribution.version, include))
    return tuple(found)


def parse_ptxas(log: str, entry: str) -> dict[str, dict[str, int]]:
    """Read ``ptxas -v``: registers, spills, stack and static shared memory of `entry`, by architecture.

    cuobjdump knows no spills, and from sm_90 on it adds the 1024 bytes that the system keeps to the shared memory.
    """
    result: dict[str, dict[str, int]] = {}
    for block in re.split(r"Compiling entry function ", log)[1:]:
        head = re.match(r"'(\S+)' for '(sm_\w+)'", block)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
        registers = re.search(r"Used (\d+) registers", block)
        if not (head and stack and registers) or head[1] != entry:
            continue
        shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", block)
        result[head[2]] = {
            "registers": int(registers[1]),
            "stack_bytes": int(stack[1]),
            "spill_store_bytes": int(stack[2]),
            "spill_load_bytes": int(stack[3]),
            "shared_bytes": int(shared[1]) if shared else 0,
        }
    return result


def parse_advisories(log: str) -> list[str]:
    """What ptxas says it could not do as it was asked, such as (C7508) setmaxnreg ignored (C7510) wgmma serialized."""
    return sorted({found[1].strip() for found in re.finditer(r"ptxas \w+\s*: (\(C\d+\).*)", log)})


def compile_fatbin(kernel: registry.Kernel, toolkit: Toolkit, archs: list[str], threads: int, binary: Path) -> str:
    """Compile `kernel` into a fat binary at `binary`; return what ptxas said.

    nvcc runs in the repository's root, so that messages name the source as the user knows it.

    Raises:
        UserError: the source is missing, or does not compile; holds what the compiler said.
    """
    if kernel.compiler in COMPILERS:
        images = COMPILERS[kernel.compiler].compile_images(kernel, archs, threads, binary.parent)
        return assemble(images, binary)
    if not kernel.source_path.is_file():
        raise UserError(f"the source {_shown(kernel.source_path)} of {kernel.id} is missing; restore it.")
    command = ["nvcc", *COMMON_FLAGS, *kernel.flags, *defines(kernel), *_gencode(archs, kernel.ptx)]
    command += ["-Xptxas", "-v", "--threads", str(threads)]
    # As system headers: their warnings are not ours to mend.
    command += [word for package in header_packages(kernel) for word in ("-isystem", str(package.include))]
    command += ["-I", _relative(paths.KERNELS_DIR), "-o", str(binary), _relative(kernel.source_path)]
    done = _run(command, check=False, env={**os.environ, "TMPDIR": str(binary.parent)})
    log = done.stdout + done.stderr
    if done.returncode:
        said = "\n".join(line for line in log.splitlines() if not line.startswith("ptxas info"))
        raise UserError(
            f"{kernel.id} does not compile with {toolkit.name} ({toolkit.version}) for sm_{', sm_'.join(archs)}:\n"
            f"{said.strip()}\n"
            f"Correct {_shown(kernel.source_path)} and run the same command again."
        )
    return log


def assemble(images: Mapping[str, Path], binary: Path) -> str:
    """Assemble PTX, a file an architecture ("90a"), into the fat binary that nvcc would make; return ptxas's log.

    A cubin is packed as it is.

    Raises:
        UserError: the toolkit lacks its assembler or packer, or ptxas refuses the PTX.
    """
    for tool in ("ptxas", "fatbinary"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not on PATH; it comes with nvcc (package nvidia-cuda-nvcc): put both there.")
    log, contents = "", []
    for arch, image in images.items():
        cubin = image.with_suffix(".cubin")
        if image != cubin:
            done = _run(["ptxas", "-v", f"-arch=sm_{arch}", "-m64", str(image), "-o", str(cubin)])
            log += done.stdout + done.stderr
        contents.append(f"kind=elf,sm={arch},file={cubin}")
    if portable := _portable([arch for arch, image in images.items() if image.suffix == ".ptx"]):
        contents.append(f"kind=ptx,sm={portable},file={images[portable]}")
    _run(["fatbinary", f"--create={binary}", "-64", "-compress=false", *(f"--image3={one}" for one in contents)])
    return log


def defines(kernel: registry.Kernel) -> list[str]:
    """nvcc's flags for the macros that a record defines. It would split a value at a bare comma."""
    return [f"-D{name}={value}".replace(",", "\\,") for name, value in sorted(kernel.defines.items())]


def _gencode(archs: list[str], ptx: str = "") -> list[str]:
    flags = [f"-gencode=arch=compute_{ptx or arch},code=sm_{arch}" for arch in archs]
    if portable := _portable(archs):
        portable = ptx or portable
        flags.append(f"-gencode=arch=compute_{portable},code=compute_{portable}")
    return flags


def _portable(archs: Iterable[str]) -> str | None:
    """The architecture whose PTX goes into the binary: the newest that is not architecture-specific.

    A GPU newer than every architecture here can still run the kernel: its driver compiles this PTX. An
    architecture-specific target (90a) promises nothing to newer GPUs, so its PTX would serve none.
    """
    return next((arch for arch in reversed(list(archs)) if arch.isdigit()), None)
