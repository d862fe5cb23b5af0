"""Listings of fat binaries, from the toolkit's cuobjdump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from gemmrepro.build import sass
from gemmrepro.build.disassembly import disassembled
from gemmrepro.build.toolkit import run


class Together:
    """The machine code of several fat binaries, which is listed when the first of them is asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths

    @cached_property
    def code(self) -> Mapping[Path, tuple[sass.Function, ...]]:
        """See `disassembled`. Alone, a binary has nothing to gain."""
        return disassembled(self.paths) if len(self.paths) > 1 else {}


class Listings:
    """Listings of one fat binary, each made on first use.

    Every member raises UserError if cuobjdump cannot read the binary.

    Args:
        together: the binaries that machine code is listed with, this one among them.
    """

    def __init__(self, path: Path, together: Together | None = None) -> None:
        self.path = path
        self._together = together

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
        if self._together and (code := self._together.code.get(self.path)):
            return code
        return sass.parse(run(["cuobjdump", "-sass", str(self.path)]).stdout)

    def functions(self, entry: str) -> Mapping[str, sass.Function]:
        """The machine code of `entry`, by its architecture ("sm_90a")."""
        return {function.arch: function for function in self._code if function.name == entry}
