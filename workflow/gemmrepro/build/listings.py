"""Listings of a fat binary, from the toolkit's cuobjdump."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from gemmrepro.build import sass
from gemmrepro.build.toolkit import run


class Listings:
    """Listings of one fat binary, each made on first use.

    Every member raises UserError if cuobjdump cannot read the binary.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def resources(self) -> str:
        """``cuobjdump --dump-resource-usage``."""
        return run(["cuobjdump", "--dump-resource-usage", str(self.path)]).stdout

    @cached_property
    def elf(self) -> str:
        """``cuobjdump -elf``."""
        return run(["cuobjdump", "-elf", str(self.path)]).stdout

    @cached_property
    def _code(self) -> tuple[sass.Function, ...]:
        """``cuobjdump -sass``, of all entry points at once: it starts a disassembler for each architecture."""
        return sass.parse(run(["cuobjdump", "-sass", str(self.path)]).stdout)

    def functions(self, entry: str) -> Mapping[str, sass.Function]:
        """The machine code of `entry`, by its architecture ("sm_90a")."""
        return {function.arch: function for function in self._code if function.name == entry}
