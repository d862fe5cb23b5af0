"""Listings of fat binaries, from the toolkit's cuobjdump; of several by as few starts of nvdisasm as targets allow.

nvdisasm takes 0.4 s of CPU time to start, whatever it lists, so the functions of several cubins are put into one. A
cubin is an ELF-64 object: its structures are those of the System V ABI, the names of sections are NVIDIA's.
"""

from __future__ import annotations

import struct
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from gemmrepro.build import sass
from gemmrepro.build.toolkit import run


class Listings:
    """Listings of one fat binary, each made on first use; UserError if cuobjdump cannot read the binary.
    `listed`: functions of binaries that were listed together, this one perhaps among them; see `disassembled`."""

    def __init__(self, path: Path, listed: Mapping[Path, tuple[sass.Function, ...]] | None = None) -> None:
        self.path = path
        self._listed = (listed or {}).get(path)

    @cached_property
    def resources(self) -> str:
        return run(["cuobjdump", "--dump-resource-usage", str(self.path)]).stdout

    @cached_property
    def elf(self) -> str:
        return run(["cuobjdump", "-elf", str(self.path)]).stdout

    @cached_property
    def _code(self) -> tuple[sass.Function, ...]:
        """``cuobjdump -sass``, of all entry points at once: it starts a disassembler for each architecture."""
        return self._listed or sass.parse(run(["cuobjdump", "-sass", str(self.path)]).stdout)

    def functions(self, entry: str) -> Mapping[str, sass.Function]:
        """The machine code of `entry`, by its architecture ("sm_90a")."""
        return {function.arch: function for function in self._code if function.name == entry}


_BY_TABLE = ("BRX", "BRXU", "JMX", "JMXU")
"""Branches to one of several targets, which are listed in another section than the code."""


def disassembled(binaries: Sequence[Path]) -> dict[Path, tuple[sass.Function, ...]]:
    """The functions of each fat binary, in the words of ``cuobjdump -sass``.
    Left out, to be listed by itself, is a binary that is alone, that the toolkit cannot read, or whose functions might
    be listed in other words apart from it."""
    by_target: dict[tuple[str, Target], list[tuple[Path, str, Section]]] = defaultdict(list)
    for binary in binaries if len(binaries) > 1 else ():
        for arch, cubin in _cubins(binary):
            by_target[arch, cubin.target] += [(binary, name, code) for name, code in cubin.functions.items()]
    found: dict[Path, list[sass.Function]] = defaultdict(list)
    unlisted: set[Path] = set()
    for (arch, target), functions in by_target.items():
        listed = _listed(target, [code for _, _, code in functions])
        for place, (binary, name, _) in enumerate(functions):
            function = listed.get(str(place))
            if function is None or any(instruction.unit in _BY_TABLE for instruction in function.instructions):
                unlisted.add(binary)
            else:
                found[binary].append(sass.Function(arch, name, function.instructions))
    return {binary: tuple(functions) for binary, functions in found.items() if binary not in unlisted}


def _cubins(binary: Path) -> list[tuple[str, Cubin]]:
    """The cubins in a fat binary, each with its architecture; none if one cannot be read or is still to be linked.
    cuobjdump names a cubin "kernel.1.sm_90a.cubin". (That of CUDA 13 lists the sm_90a of a merged one as sm_90.)"""
    with tempfile.TemporaryDirectory(prefix="gemmrepro-cubins-") as folder:
        done = run(["cuobjdump", "-xelf", "all", str(binary.resolve())], check=False, folder=Path(folder))
        files = sorted(Path(folder).glob("*.cubin"))
        try:
            cubins = [(file.name.split(".")[-2], read_cubin(file.read_bytes())) for file in files]
        except ValueError:
            return []
    return [] if done.returncode or any(cubin.relocated for _, cubin in cubins) else cubins


def _listed(target: Target, functions: list[Section]) -> dict[str, sass.Function]:
    """Functions for one target by their places in the list; none if the toolkit refuses."""
    with tempfile.NamedTemporaryFile(prefix="gemmrepro-merged-", suffix=".cubin") as file:
        Path(file.name).write_bytes(merge(target, functions))
        done = run(["cuobjdump", "-sass", file.name], check=False)
    return {} if done.returncode else {function.name: function for function in sass.parse(done.stdout)}


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_CODE = ".text."
_RELOCATIONS = (".rel.text.", ".rela.text.")
_TARGET = (".nv.compat", ".note.nv.cuinfo")
"""Sections that say which GPU the code is for, beside the header's flags; nvdisasm asks for them."""

_STRINGS, _SYMBOLS, _PROGRAM = 3, 2, 1
_EXECUTABLE = 6  # allocated, holds instructions
_GLOBAL_FUNCTION = 0x12
_REGISTERS = 0xFF000000
"""The part of a function's section info that is not the index of its symbol."""


@dataclass(frozen=True)
class Section:
    """A section of a cubin; `kind`, `flags`, `info` and `align` as in its header."""

    name: str
    kind: int
    flags: int
    info: int
    align: int
    data: bytes


Target: TypeAlias = tuple[tuple[bytes, int, int, int, int], tuple[Section, ...]]
"""The GPU that a cubin is for: its header's identification, type, machine, version and flags; sections."""


@dataclass(frozen=True)
class Cubin:
    """The parts of a cubin that a disassembler reads: one listing can hold the functions of all with an equal `target`.

    Attributes:
        functions: sections of code by function name.
        relocated: whether a linker has yet to change the code, so that its listing depends on other sections.
    """

    target: Target
    functions: dict[str, Section]
    relocated: bool


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin. Raises ValueError if it is no ELF-64 object."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF-64 object")
    try:
        sections = _sections(data)
        ident, kind, machine, version, *_ = header = _HEADER.unpack_from(data)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ValueError(f"a damaged ELF-64 object ({error})") from None
    target = (ident, kind, machine, version, header[7])
    return Cubin(
        (target, tuple(section for section in sections if section.name in _TARGET)),
        {section.name.removeprefix(_CODE): section for section in sections if section.name.startswith(_CODE)},
        any(section.name.startswith(_RELOCATIONS) and section.data for section in sections),
    )


def _sections(data: bytes) -> list[Section]:
    header = _HEADER.unpack_from(data)
    start, size, count, named = header[6], *header[11:14]
    entries = [_SECTION.unpack_from(data, start + size * place) for place in range(count)]
    names = entries[named][4]
    sections = []
    for name, kind, flags, _, offset, length, _, info, align, _ in entries:
        end = data.index(b"\0", names + name)
        held = data[offset : offset + length]
        sections.append(Section(data[names + name : end].decode(), kind, flags, info, align, held))
    return sections


def merge(target: Target, functions: Sequence[Section]) -> bytes:
    """A cubin with some functions, called by their places in the list: "0", "1"."""
    names = [str(place) for place in range(len(functions))]
    strings, starts = _table(names)
    # Sections: null, names of functions, their symbols, then the functions; so the first of them is number 3.
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    for place, function in enumerate(functions):
        symbols.append(_SYMBOL.pack(starts[place], _GLOBAL_FUNCTION, 0, 3 + place, 0, len(function.data)))
    code = [
        Section(_CODE + name, _PROGRAM, _EXECUTABLE, function.info & _REGISTERS | place + 1, 128, function.data)
        for place, (name, function) in enumerate(zip(names, functions, strict=True))
    ]
    identification, sections = target
    return _written(
        identification,
        [
            Section("", 0, 0, 0, 0, b""),
            Section(".strtab", _STRINGS, 0, 0, 1, strings),
            Section(".symtab", _SYMBOLS, 0, 1, 8, b"".join(symbols)),
            *code,
            *sections,
        ],
    )


def _table(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """Names as ELF keeps them, and where each begins."""
    table, starts = b"\0", []
    for name in names:
        starts.append(len(table))
        table += name.encode() + b"\0"
    return table, starts


def _written(identification: tuple[bytes, int, int, int, int], sections: Sequence[Section]) -> bytes:
    """An ELF-64 object of these sections, and one more with their names."""
    names, starts = _table([*(section.name for section in sections), ".shstrtab"])
    body, entries = bytearray(_HEADER.size), []
    for start, section in zip(starts, [*sections, Section(".shstrtab", _STRINGS, 0, 0, 1, names)], strict=True):
        body += bytes(-len(body) % max(1, section.align))
        symbols = section.kind == _SYMBOLS
        link, size = (1, _SYMBOL.size) if symbols else (0, 0)
        place = (start, section.kind, section.flags, 0, len(body), len(section.data))
        entries.append(_SECTION.pack(*place, link, section.info, section.align, size))
        body += section.data
    body += bytes(-len(body) % 8)
    ident, kind, machine, version, flags = identification
    counts = (_HEADER.size, 0, 0, _SECTION.size, len(entries), len(entries) - 1)
    body[: _HEADER.size] = _HEADER.pack(ident, kind, machine, version, 0, 0, len(body), flags, *counts)
    return bytes(body) + b"".join(entries)
