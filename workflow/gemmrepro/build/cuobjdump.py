"""Parses what ptxas and cuobjdump print except for machine code: resources, block sizes, constants, advisories."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from gemmrepro.build.record import Usage


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
