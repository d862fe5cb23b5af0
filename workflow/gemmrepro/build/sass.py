"""Parses what ptxas and cuobjdump print: machine code (SASS), resources, block sizes, constants, advisories.

The static gate checks the histogram of opcodes; the report shows the hot loop.
"""

from __future__ import annotations

import math
import re
from collections import Counter
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
        target = _TARGET.search(self.text) if self.unit == "BRA" else None
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
