"""The compilers that a kernel record may name, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from gemmrepro.build.cute_dsl import CuteDsl
from gemmrepro.build.cutile import CuTile
from gemmrepro.build.listings import Listings
from gemmrepro.build.nvcc import Nvcc
from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel


class Compiler(Protocol):
    """A compiler, as the build, tuning and the build key use it.

    Architectures are written "80", "90a". Traits that the registry needs without this package are in
    `registry.compilers`.
    """

    @property
    def entry_hint(self) -> str:
        """How a source declares an entry point, to end the sentence "check that <source> defines it"."""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        """Versions of the Python packages that determine the machine code, by name; part of the build key.

        Raises:
            UserError: one of them is not installed.
        """

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        """Whatever determines the machine code besides source and architecture; part of the build key."""

    def target_flags(self, kernel: Kernel, archs: Sequence[str]) -> list[str]:
        """Flags that name the architectures, for the build record."""

    def units(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The records that are each compiled to one fat binary."""

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        """Compile one of `units` for `archs`, `threads` of them in parallel, to a fat binary at `binary`.

        Temporary files go to the folder of `binary`.

        Returns: the assembler's log.

        Raises:
            UserError: the source is missing or does not compile; the message is the compiler's own.
        """

    def refusals(self, kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, str | None]:
        """Try to compile `kernel` for `archs`, which its record expects the compiler to refuse.

        Returns: the compiler's message by architecture; None if it accepted the source.
        """

    def code_arch(self, arch: str) -> str:
        """The requested architecture ("sm_90") for that of the machine code ("sm_90a")."""

    def usage(self, entry: str, log: str, listings: Listings) -> dict[str, Usage]:
        """Resources of `entry` by architecture ("sm_90"), from the log that `compile` returned or from the binary."""


COMPILERS: Mapping[str, Compiler] = MappingProxyType({"nvcc": Nvcc(), "cute_dsl": CuteDsl(), "cutile": CuTile()})
"""Compilers by the name that records use."""


def compiler(kernel: Kernel) -> Compiler:
    """The compiler of `kernel`. Raises UserError if there is none of that name."""
    try:
        return COMPILERS[kernel.code.compiler]
    except KeyError:
        raise UserError(
            f"{kernel.id} names the compiler '{kernel.code.compiler}', which is none of {', '.join(COMPILERS)}; "
            f"correct its record in family.py."
        ) from None
