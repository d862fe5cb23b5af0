"""The report's tables of machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class BuildView:
    """What an entry point became for one architecture; `counts` are instructions by kind. Bytes are of a thread, the
    shared ones of a block."""

    toolkit: str
    entry: str
    arch: str
    registers: int | None
    spills: int
    stack: int | None
    shared: int | None
    instructions: int | None
    counts: tuple[int, ...]


@dataclass(frozen=True)
class LoopView:
    """A main loop's listing, cut at LOOP_LINES of its `count` lines."""

    toolkit: str
    entry: str
    arch: str
    count: int
    text: str
    cut: bool
    file: str
    link: str | None


@dataclass(frozen=True)
class MachineCodeView:
    """A kernel's builds and main loops; `several` if its source has more than one entry point.

    `columns` are the headings of the builds' counts, `build_keys` are by toolkit.
    """

    columns: tuple[str, ...]
    builds: tuple[BuildView, ...]
    loops: tuple[LoopView, ...]
    build_keys: Mapping[str, str]
    several: bool


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


def machine_code(kernel: registry.Kernel, inputs: Inputs) -> MachineCodeView:
    """The builds of a kernel, and the main loops of its entry points on the architecture that was measured."""
    measured_arch = next((each.arch for each in inputs.measured.values() if each.arch), None)
    records = inputs.builds.get(kernel.id, {})
    entries = {toolkit: _entries(kernel, record) for toolkit, record in records.items()}
    columns = opcode_columns(
        [built for found in entries.values() for archs in found.values() for built in archs.values()]
    )
    builds: list[BuildView] = []
    loops: list[LoopView] = []
    for toolkit, found in entries.items():
        for entry, archs in found.items():
            builds += [
                build_view(archs[arch], toolkit, entry, arch, [pattern for _, pattern in columns])
                for arch in sorted(archs, key=_arch_order)
            ]
            chosen = measured_arch if measured_arch in archs else next(iter(sorted(archs)), None)
            text = (archs[chosen].get("hot_loop") or "").strip("\n") if chosen else ""
            if chosen and text:
                loops.append(_loop(kernel, toolkit, entry, chosen, text.splitlines(), inputs))
    return MachineCodeView(
        columns=tuple(heading for heading, _ in columns),
        builds=tuple(builds),
        loops=tuple(loops),
        build_keys={toolkit: record.get("build_key", "") for toolkit, record in records.items()},
        several=any(len(found) > 1 for found in entries.values()),
    )


def _arch_order(arch: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", arch)] or [0]


def _loop(
    kernel: registry.Kernel, toolkit: str, entry: str, arch: str, lines: Sequence[str], inputs: Inputs
) -> LoopView:
    listing = inputs.build_dir / toolkit / f"{kernel.id}.sass"
    return LoopView(
        toolkit=toolkit,
        entry=entry,
        arch=arch,
        count=len(lines),
        text="\n".join(lines[:LOOP_LINES]),
        cut=len(lines) > LOOP_LINES,
        file=f"results/build/{toolkit}/{kernel.id}.sass",
        link=relative(listing, inputs.out) if listing.is_file() else None,
    )


def _entries(kernel: registry.Kernel, record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Builds by architecture of every entry point of a kernel."""
    variants = record.get("variants") or {}
    first = record.get("archs") or {}
    main = str(record.get("entry") or kernel.code.entry)
    # The record's own entry point may stand among its variants too; JSON has lost the registry's order.
    found = {**({} if main in variants else {main: first}), **variants}
    order = [code.code.entry for code in kernel.codes]
    return dict(sorted(found.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1))


def build_view(built: Mapping[str, Any], toolkit: str, entry: str, arch: str, patterns: Sequence[str]) -> BuildView:
    """An entry point's build for an architecture, its instructions counted by kind."""
    instructions = Counter(built.get("instructions") or {})
    return BuildView(
        toolkit=toolkit,
        entry=entry,
        arch=arch,
        registers=built.get("registers"),
        spills=(built.get("spill_store_bytes") or 0) + (built.get("spill_load_bytes") or 0),
        stack=built.get("stack_bytes"),
        shared=built.get("shared_bytes"),
        instructions=built.get("instruction_total"),
        counts=tuple(
            sum(count for opcode, count in instructions.items() if re.match(pattern, opcode)) for pattern in patterns
        ),
    )
