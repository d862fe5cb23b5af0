"""Parses the output of ``ptxas -v``."""

from __future__ import annotations

import re

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
