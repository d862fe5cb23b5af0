"""Parses machine code (SASS) from the output of ``cuobjdump -sass``.

The static gate checks the histogram of opcodes; the report shows the hot loop.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

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
