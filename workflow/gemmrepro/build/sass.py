"""Parses what ptxas and cuobjdump print: machine code (SASS), resources, block sizes, constants, advisories.

The static gate checks the histogram of opcodes; the report shows the hot loop.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gemmrepro.build.record import Usage

_ARCH = re.compile(r"^\s*code for (sm_\w+)\s*$")
_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$")
_INSTRUCTION = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_TARGET = re.compile(r"\b0x([0-9a-f]+)\s*$")

# Arithmetic of a GEMM: scalar multiply-adds and tensor-core instructions.
_MATH = re.compile(r"^(FFMA2?|DFMA|HFMA2|FADD|FMUL|DADD|DMUL|IDP|[HQIDB]?MMA|[HQIBU]GMMA|U?TC\w*MMA\w*)(\.|$)")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: its byte address, and its text with predicate and operands."""

    address: int
    text: str

    @property
    def opcode(self) -> str:
        """The opcode with its modifiers and without its predicate: ``LDG.E.128``."""
        return _PREDICATE.sub("", self.text).split(" ", 1)[0].rstrip(",")

    @property
    def target(self) -> int | None:
        """The target of a direct branch, in bytes from the start of the function; None for other instructions."""
        if self.opcode.split(".", 1)[0] != "BRA":
            return None
        target = _TARGET.search(self.text)
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
        """How many of a block's 16 barriers the code uses; all barriers numbered by a register count as one."""
        names = set()
        for instruction in self.instructions:
            if instruction.opcode.split(".", 1)[0] == "BAR":
                operands = _PREDICATE.sub("", instruction.text).split(" ", 1)
                names.add(operands[1].split(",")[0].strip() if len(operands) > 1 else "0x0")
        return len(names)

    @property
    def hot_loop(self) -> tuple[Instruction, ...]:
        """The innermost loop with the most arithmetic; empty if the code has no loop.

        A loop is the code from the target of a backward branch to that branch. It is innermost if it contains no other
        loop with arithmetic; loops that only wait for a barrier do not count.
        """
        candidates = {
            (instruction.target, instruction.address)
            for instruction in self.instructions
            if instruction.target is not None and instruction.target <= instruction.address
        }
        math = [instruction.address for instruction in self.instructions if instruction.is_math]
        loops = {loop for loop in candidates if any(loop[0] <= address <= loop[1] for address in math)} or candidates
        innermost = [
            loop
            for loop in loops
            if not any(inner != loop and loop[0] <= inner[0] and inner[1] <= loop[1] for inner in loops)
        ]
        bodies = [
            tuple(instruction for instruction in self.instructions if first <= instruction.address <= last)
            for first, last in sorted(innermost)
        ]
        return max(bodies, key=lambda body: sum(instruction.is_math for instruction in body), default=())

    def text(self) -> str:
        """The listing, one instruction per line after its address, without encodings."""
        return format_instructions(self.instructions)


def format_instructions(instructions: tuple[Instruction, ...]) -> str:
    """One instruction per line: its address in hexadecimal, then its text, predicates in a column of their own."""
    lines = []
    for instruction in instructions:
        predicate = _PREDICATE.match(instruction.text)
        body = _PREDICATE.sub("", instruction.text)
        lines.append(f"{instruction.address:05x}  {predicate[0].strip() if predicate else '':>5} {body}\n")
    return "".join(lines)


def parse(listing: str) -> tuple[Function, ...]:
    """Parse the output of ``cuobjdump -sass``.

    Returns: a `Function` for each kernel of each architecture, in the order of the listing.
    """
    functions: list[Function] = []
    arch = name = ""
    code: list[Instruction] = []

    def close() -> None:
        if name:
            functions.append(Function(arch, name, _without_padding(code)))

    for line in listing.splitlines():
        if match := _INSTRUCTION.match(line):
            code.append(Instruction(int(match["address"], 16), " ".join(match["text"].split())))
        elif match := _ARCH.match(line):
            close()
            arch, name, code = match[1], "", []
        elif match := _FUNCTION.match(line):
            close()
            name, code = match[1], []
    close()
    return tuple(functions)


def _without_padding(code: list[Instruction]) -> tuple[Instruction, ...]:
    """Drop the assembler's padding: a branch to itself, then NOPs up to the alignment."""
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
    that the system reserves.
    """
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


def usage_of(listing: str, entry: str) -> Iterator[tuple[str, str]]:
    """Architecture and line of each entry about `entry` in the output of ``cuobjdump --dump-resource-usage``."""
    arch = function = ""
    for line in listing.splitlines():
        if match := re.match(r"\s*arch = (sm_\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            function = match[1]
        elif function == entry:
            yield arch, line


def parse_resources(listing: str, entry: str) -> dict[str, dict[str, int]]:
    """Registers, stack bytes and shared bytes of `entry` by architecture, from ``--dump-resource-usage``."""
    names = ("registers", "stack_bytes", "shared_bytes")
    return {
        arch: dict(zip(names, map(int, match.groups()), strict=True))
        for arch, line in usage_of(listing, entry)
        if (match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", line))
    }


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


def parse_constants(listing: str, entry: str) -> dict[str, int]:
    """Bytes of constant bank 0 of `entry` by architecture, from ``--dump-resource-usage``."""
    return {
        arch: int(match[1])
        for arch, line in usage_of(listing, entry)
        if (match := re.search(r"CONSTANT\[0\]:(\d+)", line))
    }


def local_bytes(opcode: str, unit: str) -> int:
    """Bytes of local memory per thread that `opcode` moves if it is an instruction `unit` (STL, LDL); else 0."""
    parts = opcode.split(".")
    if parts[0] != unit:
        return 0
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    return next((sizes[part] for part in parts if part in sizes), 4)
