"""Listings of fat binaries, from the toolkit's cuobjdump; of several by as few starts of nvdisasm as targets allow."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from gemmrepro.build import sass
from gemmrepro.build.cubins import Cubin, Section, Target, merge, read_cubin
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


_BY_TABLE = ("BRX", "BRXU", "JMX", "JMXU")
"""Branches to one of several targets, which are listed in another section than the code."""


def disassembled(binaries: Iterable[Path]) -> dict[Path, tuple[sass.Function, ...]]:
    """The functions of each fat binary, in the words of ``cuobjdump -sass``.

    A binary is left out if listing its functions apart from it might change a word or if the toolkit cannot read it:
    that one is to be listed by itself.
    """
    by_target: dict[tuple[str, Target], list[tuple[Path, str, Section]]] = defaultdict(list)
    for binary in binaries:
        for arch, cubin in _cubins(binary):
            by_target[arch, cubin.target] += [(binary, name, code) for name, code in cubin.functions.items()]
    found: dict[Path, list[sass.Function]] = defaultdict(list)
    unlisted: set[Path] = set()
    for (arch, target), functions in by_target.items():
        listed = _listed(target, [code for _, _, code in functions])
        for place, (binary, name, _) in enumerate(functions):
            function = listed.get(str(place))
            if function is None or any(_opcode(instruction) in _BY_TABLE for instruction in function.instructions):
                unlisted.add(binary)
            else:
                found[binary].append(sass.Function(arch, name, function.instructions))
    return {binary: tuple(functions) for binary, functions in found.items() if binary not in unlisted}


def _cubins(binary: Path) -> list[tuple[str, Cubin]]:
    """The cubins in a fat binary, each with its architecture; none if one cannot be read or is still to be linked.

    The architecture is in the name that cuobjdump gives a cubin: "kernel.1.sm_90a.cubin". In a merged one,
    that of CUDA 13 calls sm_90a sm_90.
    """
    with tempfile.TemporaryDirectory(prefix="gemmrepro-cubins-") as folder:
        done = run(["cuobjdump", "-xelf", "all", str(binary.resolve())], check=False, folder=Path(folder))
        files = sorted(Path(folder).glob("*.cubin"))
        try:
            cubins = [(file.name.split(".")[-2], read_cubin(file.read_bytes())) for file in files]
        except ValueError:
            return []
    return [] if done.returncode or any(cubin.relocated for _, cubin in cubins) else cubins


def _listed(target: Target, functions: list[Section]) -> dict[str, sass.Function]:
    """The listings of functions for one target, by their places in the list; none if the toolkit refuses."""
    with tempfile.NamedTemporaryFile(prefix="gemmrepro-merged-", suffix=".cubin") as file:
        Path(file.name).write_bytes(merge(target, functions))
        done = run(["cuobjdump", "-sass", file.name], check=False)
    return {} if done.returncode else {function.name: function for function in sass.parse(done.stdout)}


def _opcode(instruction: sass.Instruction) -> str:
    return instruction.opcode.split(".", 1)[0]
