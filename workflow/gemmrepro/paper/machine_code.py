"""The report's tables of machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gemmrepro import registry
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import relative

LOOP_LINES = 320
"""Lines of a main loop that are shown; the rest is in the .sass file."""

_FAMILIES_OF_OPCODES = (
    ("FFMA", r"FFMA"),
    ("global loads", r"LDG(?!STS)"),
    ("of them 128 bits", r"LDG(?!STS)\b.*\.128"),
    ("global stores", r"STG"),
    ("of them 128 bits", r"STG\b.*\.128"),
    ("shared loads", r"LDS(?!M)"),
    ("of them 128 bits", r"LDS(?!M)\b.*\.128"),
    ("shared stores", r"STS"),
    ("barriers", r"BAR"),
    ("async copies", r"LDGSTS|UTMALDG|UBLKCP"),
    ("TMA stores", r"UTMASTG|UTMAREDG"),
    ("mbarrier operations", r"SYNCS"),
    ("tensor-core", r"HMMA|IMMA|DMMA|HGMMA|QGMMA|IGMMA|UTCHMMA|OMMA|QMMA"),
    ("local memory", r"LDL|STL"),
)

_ALWAYS = {"FFMA", "global loads", "global stores", "shared loads", "shared stores", "barriers"}


def opcode_columns(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The kinds of instruction that any of a kernel's builds has, as (heading, pattern)."""
    opcodes = {opcode for record in records for opcode in (record.get("instructions") or {})}
    columns = []
    parent_shown = False
    for heading, pattern in _FAMILIES_OF_OPCODES:
        present = any(re.match(pattern, opcode) for opcode in opcodes)
        shown = present or (heading in _ALWAYS)
        if heading.startswith("of them"):
            shown = present and parent_shown
        else:
            parent_shown = shown
        if shown:
            columns.append((heading, pattern))
    return columns


def machine_code(kernel: registry.Kernel, inputs: Inputs) -> dict[str, Any]:
    """The table of builds of a kernel, and the main loops of its entry points on the architecture that was measured.

    A source with an entry point for each of several tiles has a row and a loop for every one of them.
    """
    arch = next((each.arch for each in inputs.measured.values() if each.arch), None)
    builds = inputs.builds.get(kernel.id, {})
    entries = {toolkit: _entries(kernel, record) for toolkit, record in builds.items()}
    flat = [built for found in entries.values() for archs in found.values() for built in archs.values()]
    columns = opcode_columns(flat)
    rows, loops = [], []
    for toolkit, record in builds.items():
        for entry, archs in entries[toolkit].items():
            for name in sorted(archs, key=lambda text: [int(part) for part in re.findall(r"\d+", text)] or [0]):
                rows.append(
                    {
                        "toolkit": toolkit,
                        "version": record.get("toolkit_version", ""),
                        "entry": entry,
                        "arch": name,
                        **_build_row(archs[name], [pattern for _, pattern in columns]),
                    }
                )
            chosen = arch if arch in archs else next(iter(sorted(archs)), None)
            text = ((archs.get(chosen) or {}).get("hot_loop") or "").strip("\n")
            if text:
                lines = text.splitlines()
                file = inputs.build_dir / toolkit / f"{kernel.id}.sass"
                loops.append(
                    {
                        "toolkit": toolkit,
                        "entry": entry,
                        "arch": chosen,
                        "count": len(lines),
                        "text": "\n".join(lines[:LOOP_LINES]),
                        "cut": len(lines) > LOOP_LINES,
                        "file": f"results/build/{toolkit}/{kernel.id}.sass",
                        "link": relative(file, inputs.out) if file.is_file() else None,
                    }
                )
    keys = {toolkit: record.get("build_key", "") for toolkit, record in builds.items()}
    several = any(len(found) > 1 for found in entries.values())
    return {
        "columns": [heading for heading, _ in columns],
        "rows": rows,
        "loops": loops,
        "keys": keys,
        "several": several,
    }


def _entries(kernel: registry.Kernel, record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Builds by architecture of every entry point of a kernel."""
    variants = record.get("variants") or {}
    first = record.get("archs") or {}
    main = str(record.get("entry") or kernel.entry)
    # The record's own entry point may stand among its variants too; JSON has lost the registry's order.
    found = {**({} if main in variants else {main: first}), **variants}
    order = [code.entry for code in kernel.codes]
    return dict(sorted(found.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1))


def _build_row(built: Mapping[str, Any], patterns: Sequence[str]) -> dict[str, Any]:
    instructions = Counter(built.get("instructions") or {})
    return {
        "registers": built.get("registers"),
        "spills": (built.get("spill_store_bytes") or 0) + (built.get("spill_load_bytes") or 0),
        "stack": built.get("stack_bytes"),
        "shared": built.get("shared_bytes"),
        "total": built.get("instruction_total"),
        "counts": [
            sum(count for opcode, count in instructions.items() if re.match(pattern, opcode)) for pattern in patterns
        ],
    }
