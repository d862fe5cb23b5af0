"""Compilers: what the build asks of each, and nvcc."""

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.build.listings import Listings, parse_ptxas
from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import Toolkit, gencode, relative, run
from gemmrepro.core.paths import KERNELS_DIR, ROOT, shown
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel

COMMON_FLAGS = ("-fatbin", "-std=c++17", "-O3", "-no-compress")
"""Flags that can affect the code; `Nvcc.compile` adds those that cannot (verbosity, search paths, threads).
-no-compress: the binaries are small, and every driver and tool can read them."""

HEADER_PACKAGES = {"nvidia-cutlass": "cutlass_library/source/include"}
"""Python packages that contain C++ headers, with the include folder in each."""


class Compiler:
    """A compiler. Architectures are written "80", "90a"; traits that records need are in `registry.groups`."""

    entry_hint = ""
    """Declaration of an entry point in a source, to end the sentence "check that <source> defines it"."""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        """Versions of the Python packages that determine the machine code. Raises UserError if one is not installed."""
        raise NotImplementedError

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        """Whatever determines the machine code besides source and architecture; part of the build key."""
        raise NotImplementedError

    def target_flags(self, kernel: Kernel, archs: Sequence[str]) -> list[str]:
        """Flags that name the architectures, for the build record."""
        return gencode(archs, kernel.code.ptx)

    def units(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The records that are each compiled to one fat binary."""
        return (kernel,)

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        """Compile one of `units` for `archs` to a fat binary at `binary`, whose folder takes what is temporary.
        Returns the assembler's log. Raises UserError, with the compiler's own message, if it does not compile."""
        raise NotImplementedError

    def refusals(self, kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, str | None]:
        """The compiler's message by architecture that the record expects it to refuse; None where it accepts."""
        raise NotImplementedError(f"a record for {kernel.code.compiler} cannot expect refusals")

    def code_arch(self, arch: str) -> str:
        """The requested architecture ("sm_90") for that of the machine code ("sm_90a")."""
        return arch

    def usage(self, entry: str, log: str, listings: Listings) -> dict[str, Usage]:
        """Resources of `entry` by architecture ("sm_90"), from the log that `compile` returned or from the binary."""
        return parse_ptxas(log, entry)


def installed(kernel: Kernel, names: Sequence[str], install: str, needed: int) -> dict[str, str]:
    """Versions of Python packages that compile a kernel. Raises UserError, which names what to `install`.
    Only the first `needed` of them must be there."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name in names[:needed]:
                raise UserError(
                    f"{kernel.id} is compiled by the Python package {name}, which is not installed; run Snakemake with "
                    f"--use-singularity, which brings it in a container, or pip install '{install}'."
                ) from None
    return versions


def child_environment(scratch: Path, hidden: Sequence[str], **variables: str) -> dict[str, str]:
    """The environment of a child process that compiles Python in the folder `scratch`, and is told `variables`.
    `hidden` are the beginnings of the names of variables that it must not see."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(tuple(hidden))}
    return kept | variables | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT / "workflow")}


class Nvcc(Compiler):
    """nvcc, for CUDA C++."""

    entry_hint = ' as extern "C" __global__'

    def packages(self, kernel: Kernel) -> dict[str, str]:
        return {name: version for name, (version, _) in header_packages(kernel).items()}

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        return (*COMMON_FLAGS, *kernel.code.flags, *defines(kernel))

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        if not kernel.source_path.is_file():
            raise UserError(f"the source {shown(kernel.source_path)} of {kernel.id} is missing; restore it.")
        command = ["nvcc", *self.flags(kernel), *self.target_flags(kernel, archs)]
        command += ["-Xptxas", "-v", "--threads", str(threads)]
        # As system headers, whose warnings nvcc suppresses.
        command += [word for _, include in header_packages(kernel).values() for word in ("-isystem", str(include))]
        command += ["-I", relative(KERNELS_DIR), "-o", str(binary), relative(kernel.source_path)]
        # It runs in the repository's root, so that messages show the source's path from there.
        done = run(command, check=False, env={**os.environ, "TMPDIR": str(binary.parent)})
        log = done.stdout + done.stderr
        if done.returncode:
            errors = "\n".join(line for line in log.splitlines() if not line.startswith("ptxas info"))
            raise UserError(
                f"{kernel.id} does not compile with {toolkit.name} ({toolkit.version}) for sm_{', sm_'.join(archs)}:\n"
                f"{errors.strip()}\n"
                f"Correct {shown(kernel.source_path)} and run the same command again."
            )
        return log


def header_packages(kernel: Kernel) -> dict[str, tuple[str, Path]]:
    """Version and include folder of each package of headers that `kernel` names.
    Raises UserError if one is not in HEADER_PACKAGES, not installed, or has no headers in the expected folder."""
    packages = {}
    for name in kernel.code.packages:
        if name not in HEADER_PACKAGES:
            known = ", ".join(sorted(HEADER_PACKAGES))
            raise UserError(
                f"{kernel.id} needs headers of '{name}', and it is not known where that package keeps them; known "
                f"packages: {known}. Add it to HEADER_PACKAGES in gemmrepro.build.nvcc."
            )
        version = installed(kernel, [name], name, 1)[name]
        include = Path(str(importlib.metadata.distribution(name).locate_file(HEADER_PACKAGES[name])))
        if not include.is_dir():
            raise UserError(
                f"{name} {version} has no headers in {HEADER_PACKAGES[name]}; install the version that "
                f"envs/requirements/cuda13.txt pins."
            )
        packages[name] = (version, include)
    return packages


def defines(kernel: Kernel) -> list[str]:
    """nvcc's flags for the macros of a record. Commas are escaped: nvcc splits values at bare ones."""
    return [f"-D{name}={value}".replace(",", "\\,") for name, value in sorted(kernel.code.defines.items())]
