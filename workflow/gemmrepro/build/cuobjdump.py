"""Parses cuobjdump's output except for machine code: resources, block sizes, constants, local memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator


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
