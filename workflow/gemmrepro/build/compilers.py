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
    """What the build, tuning and the build key ask of a compiler.

    Architectures are written "80", "90a". What the registry must know of a compiler without this package is in
    `registry.compilers`.
    """

    @property
    def entry_hint(self) -> str:
        """How a source declares an entry point, to end the sentence "check that <source> defines it"."""

    def packages(self, kernel: Kernel) -> dict[str, str]:
        """Versions of the Python packages that decide the machine code, by name; part of the build key.

        Raises:
            UserError: one of them is not installed.
        """

    def flags(self, kernel: Kernel) -> tuple[str, ...]:
        """What else decides the machine code, architectures and source aside; part of the build key."""

    def target_flags(self, kernel: Kernel, archs: Sequence[str]) -> list[str]:
        """Flags that name the architectures, for the build record."""

    def units(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """Records that are compiled to one fat binary each."""

    def compile(self, kernel: Kernel, toolkit: Toolkit, archs: Sequence[str], threads: int, binary: Path) -> str:
        """Compile one of `units` for `archs`, `threads` of them at a time, to a fat binary at `binary`.

        Temporary files go beside `binary`.

        Returns: what the assembler printed.

        Raises:
            UserError: the source is missing or does not compile; the message is the compiler's own.
        """

    def refusals(self, kernel: Kernel, archs: Sequence[str], threads: int, folder: Path) -> dict[str, str | None]:
        """Try `kernel` for `archs`, which its record expects the compiler to refuse.

        Returns: by architecture the compiler's message; None where it accepted the source after all.
        """

    def code_arch(self, arch: str) -> str:
        """The architecture that was asked for ("sm_90"), given that of the machine code ("sm_90a")."""

    def usage(self, entry: str, log: str, listings: Listings) -> dict[str, Usage]:
        """What `entry` takes by architecture ("sm_90"): from `log`, what `compile` returned, or from the binary."""


COMPILERS: Mapping[str, Compiler] = MappingProxyType({"nvcc": Nvcc(), "cute_dsl": CuteDsl(), "cutile": CuTile()})
"""By the name that a record gives them."""


def compiler(kernel: Kernel) -> Compiler:
    """What compiles `kernel`. Raises UserError if the build knows no compiler of that name."""
    try:
        return COMPILERS[kernel.code.compiler]
    except KeyError:
        raise UserError(
            f"{kernel.id} names the compiler '{kernel.code.compiler}', which is none of {', '.join(COMPILERS)}; "
            f"correct its record in family.py."
        ) from None
