"""Listings of fat binaries, from the toolkit's cuobjdump, and what is read from them; and from the log of ptxas.

nvdisasm takes 0.4 s of CPU time to start, whatever it lists, so it is started as rarely as targets allow: the functions
of several cubins are put into one. A cubin is an ELF-64 object: its structures are those of the System V ABI, the names
of sections are NVIDIA's.
"""

from __future__ import annotations

import math
import re
import struct
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import run

_ARCH = re.compile(r"^\s*code for (sm_\w+)\s*$")
_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$")
_INSTRUCTION = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_BRANCH = re.compile(r"\b0x([0-9a-f]+)\s*$")

# Arithmetic of a GEMM: scalar multiply-adds and tensor-core instructions.
_MATH = re.compile(r"^(FFMA2?|DFMA|HFMA2|FADD|FMUL|DADD|DMUL|IDP|[HQIDB]?MMA|[HQIBU]GMMA|U?TC\w*MMA\w*)(\.|$)")


@dataclass(frozen=True)
class Instruction:
    """A machine instruction: its byte address, and its text with predicate and operands."""

    address: int
    text: str

    @property
    def opcode(self) -> str:
        """The opcode with its modifiers and without its predicate: ``LDG.E.128``."""
        return _PREDICATE.sub("", self.text).split(" ", 1)[0].rstrip(",")

    @property
    def unit(self) -> str:
        """The opcode without modifiers: ``LDG``."""
        return self.opcode.split(".", 1)[0]

    @property
    def target(self) -> int | None:
        """The target of a direct branch, in bytes from the start of the function; None for other instructions."""
        target = _BRANCH.search(self.text) if self.unit == "BRA" else None
        return int(target[1], 16) if target else None

    @property
    def is_math(self) -> bool:
        """Whether the instruction multiplies or adds floating-point (or tensor-core) operands."""
        return bool(_MATH.match(self.opcode))


@dataclass(frozen=True)
class Function:
    """One kernel's code for one architecture, without the padding after its last instruction."""

    arch: str
    name: str
    instructions: tuple[Instruction, ...]

    @property
    def histogram(self) -> dict[str, int]:
        """Static counts of opcodes with their modifiers."""
        return dict(sorted(Counter(instruction.opcode for instruction in self.instructions).items()))

    @property
    def barriers(self) -> int:
        """Number of a block's 16 barriers that the code uses; all barriers numbered by a register count as one."""
        names = set()
        for instruction in self.instructions:
            if instruction.unit == "BAR":
                operands = _PREDICATE.sub("", instruction.text).split(" ", 1)
                names.add(operands[1].split(",")[0].strip() if len(operands) > 1 else "0x0")
        return len(names)

    @property
    def hot_loop(self) -> tuple[Instruction, ...]:
        """The innermost loop with the most arithmetic; empty if the code has no loop.
        A loop is the code from the target of a backward branch to that branch. It is innermost if it contains no other
        loop with arithmetic; loops that only wait for a barrier do not count."""
        branches = ((code.target, code.address) for code in self.instructions if code.target is not None)
        candidates = {(first, last) for first, last in branches if first <= last}
        math = [code.address for code in self.instructions if code.is_math]
        loops = {loop for loop in candidates if any(loop[0] <= address <= loop[1] for address in math)} or candidates
        outer = {loop for loop in loops for inner in loops - {loop} if loop[0] <= inner[0] and inner[1] <= loop[1]}
        bodies = [
            tuple(code for code in self.instructions if first <= code.address <= last)
            for first, last in sorted(loops - outer)
        ]
        return max(bodies, key=lambda body: sum(code.is_math for code in body), default=())


def format_instructions(instructions: tuple[Instruction, ...]) -> str:
    """One instruction per line: its address in hexadecimal, then its text, predicates in a column of their own."""
    lines = []
    for instruction in instructions:
        predicate = _PREDICATE.match(instruction.text)
        body = _PREDICATE.sub("", instruction.text)
        lines.append(f"{instruction.address:05x}  {predicate[0].strip() if predicate else '':>5} {body}\n")
    return "".join(lines)


def parse(listing: str) -> tuple[Function, ...]:
    """The functions in the output of ``cuobjdump -sass``, in its order."""
    functions: list[Function] = []
    arch = name = ""
    code: list[Instruction] = []
    for line in [*listing.splitlines(), "\tcode for sm_none"]:  # which ends the last function
        if match := _INSTRUCTION.match(line):
            code.append(Instruction(int(match["address"], 16), " ".join(match["text"].split())))
        elif match := _ARCH.match(line) or _FUNCTION.match(line):
            if name:
                functions.append(Function(arch, name, _without_padding(code)))
            arch, name = (match[1], "") if match.re is _ARCH else (arch, match[1])
            code = []
    return tuple(functions)


def _without_padding(code: list[Instruction]) -> tuple[Instruction, ...]:
    """The code without the assembler's padding: a branch to itself, then NOPs up to the alignment."""
    end = len(code)
    while end and code[end - 1].opcode == "NOP":
        end -= 1
    if end and code[end - 1].target == code[end - 1].address:
        end -= 1
    return tuple(code[:end])


def allocated_registers(registers: int, threads: int) -> int:
    """Registers that a block of `threads` occupies: they are allocated per warp in units of 256, 8 per thread."""
    return -(-registers // 8) * 8 * 32 * -(-threads // 32)


def parse_ptxas(log: str, entry: str) -> dict[str, Usage]:
    """Resources of `entry` by architecture ("sm_90").
    They are not read with cuobjdump: it reports no spills, and from sm_90 on its shared memory includes the 1024 bytes
    that the system reserves."""
    result: dict[str, Usage] = {}
    for block in re.split(r"Compiling entry function ", log)[1:]:
        head = re.match(r"'(\S+)' for '(sm_\w+)'", block)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
        registers = re.search(r"Used (\d+) registers", block)
        if not (head and stack and registers) or head[1] != entry:
            continue
        shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", block)
        result[head[2]] = Usage(
            registers=int(registers[1]),
            stack_bytes=int(stack[1]),
            spill_store_bytes=int(stack[2]),
            spill_load_bytes=int(stack[3]),
            shared_bytes=int(shared[1]) if shared else 0,
        )
    return result


def parse_advisories(log: str) -> list[str]:
    """Requests of the source that ptxas did not follow: (C7508) setmaxnreg ignored, (C7510) wgmma serialized."""
    return sorted({match[1].strip() for match in re.finditer(r"ptxas \w+\s*: (\(C\d+\).*)", log)})


def parse_resources(listing: str, entry: str) -> dict[str, dict[str, int]]:
    """REG, STACK, SHARED, CONSTANT[0] of `entry` by architecture, from ``cuobjdump --dump-resource-usage``."""
    resources: dict[str, dict[str, int]] = {}
    arch = function = ""
    for line in listing.splitlines():
        if match := re.match(r"\s*arch = (sm_\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            function = match[1]
        elif function == entry and "REG:" in line:
            resources[arch] = {name: int(value) for name, value in re.findall(r"([A-Z]+(?:\[\d\])?):(\d+)", line)}
    return resources


def parse_blocks(listing: str, entry: str) -> dict[str, int]:
    """Threads per block that the machine code of `entry` requires, by architecture, from ``cuobjdump -elf``."""
    result: dict[str, int] = {}
    arch = section = attribute = ""
    for line in listing.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line):
            arch = match[1]
        elif match := re.match(r"\.(nv\.info\S*|\S+)\s*$", line):
            section = match[1]
        elif match := re.match(r"\s*Attribute:\s*(\w+)", line):
            attribute = match[1]
        elif attribute == "EIATTR_REQNTID" and section == f"nv.info.{entry}" and "Value:" in line:
            sizes = [int(size, 16) for size in re.findall(r"0x[0-9a-f]+", line)]
            result[arch], attribute = math.prod(sizes), ""
    return result


def local_bytes(opcode: str, unit: str) -> int:
    """Bytes of local memory per thread that `opcode` moves if it is an instruction `unit` (STL, LDL); else 0."""
    parts = opcode.split(".")
    if parts[0] != unit:
        return 0
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    return next((sizes[part] for part in parts if part in sizes), 4)


class Listings:
    """Listings of one fat binary, each made on first use; UserError if cuobjdump cannot read the binary.
    `listed`: functions of binaries that were listed together, this one perhaps among them; see `disassembled`."""

    def __init__(self, path: Path, listed: Mapping[Path, tuple[Function, ...]] | None = None) -> None:
        self.path = path
        self._listed = (listed or {}).get(path)

    @cached_property
    def resources(self) -> str:
        return run(["cuobjdump", "--dump-resource-usage", str(self.path)]).stdout

    @cached_property
    def elf(self) -> str:
        return run(["cuobjdump", "-elf", str(self.path)]).stdout

    @cached_property
    def _code(self) -> tuple[Function, ...]:
        """``cuobjdump -sass``, of all entry points at once: it starts a disassembler for each architecture."""
        return self._listed or parse(run(["cuobjdump", "-sass", str(self.path)]).stdout)

    def functions(self, entry: str) -> Mapping[str, Function]:
        """The machine code of `entry`, by its architecture ("sm_90a")."""
        return {function.arch: function for function in self._code if function.name == entry}


_BY_TABLE = ("BRX", "BRXU", "JMX", "JMXU")
"""Branches to one of several targets, which are listed in another section than the code."""


def disassembled(binaries: Sequence[Path]) -> dict[Path, tuple[Function, ...]]:
    """The functions of each fat binary, in the words of ``cuobjdump -sass``.
    Left out, to be listed by itself, is a binary that is alone, that the toolkit cannot read, or whose functions might
    be listed in other words apart from it."""
    by_target: dict[tuple[str, Target], list[tuple[Path, str, Section]]] = defaultdict(list)
    for binary in binaries if len(binaries) > 1 else ():
        for arch, cubin in _cubins(binary):
            by_target[arch, cubin.target] += [(binary, name, code) for name, code in cubin.functions.items()]
    found: dict[Path, list[Function]] = defaultdict(list)
    unlisted: set[Path] = set()
    for (arch, target), functions in by_target.items():
        listed = _listed(target, [code for _, _, code in functions])
        for place, (binary, name, _) in enumerate(functions):
            function = listed.get(str(place))
            if function is None or any(instruction.unit in _BY_TABLE for instruction in function.instructions):
                unlisted.add(binary)
            else:
                found[binary].append(Function(arch, name, function.instructions))
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


def _listed(target: Target, functions: list[Section]) -> dict[str, Function]:
    """Functions for one target by their places in the list; none if the toolkit refuses."""
    with tempfile.NamedTemporaryFile(prefix="gemmrepro-merged-", suffix=".cubin") as file:
        Path(file.name).write_bytes(merge(target, functions))
        done = run(["cuobjdump", "-sass", file.name], check=False)
    return {} if done.returncode else {function.name: function for function in parse(done.stdout)}


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
