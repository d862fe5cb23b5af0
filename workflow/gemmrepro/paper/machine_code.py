"""The report's tables of machine code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmrepro import registry
from gemmrepro.build.record import Build, Codes, MachineCode
from gemmrepro.paper.inputs import Inputs

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
    """An entry point's code for one architecture.

    `registers`, `spills` and `stack` are per thread, `shared` (static shared memory) per block, all but registers in
    bytes; `counts` are instructions by kind.
    """

    toolkit: str
    entry: str
    arch: str
    registers: int
    spills: int
    stack: int
    shared: int
    instructions: int
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

    `columns` are the headings of the builds' counts, `build_keys` are by toolkit, and so are the
    `listings` of the whole machine code. `uncompiled` are the toolkits that have a build key alone.
    """

    columns: tuple[str, ...]
    builds: tuple[BuildView, ...]
    loops: tuple[LoopView, ...]
    build_keys: Mapping[str, str]
    several: bool
    listings: Mapping[str, str]
    uncompiled: tuple[str, ...] = ()


def opcode_columns(codes: Iterable[MachineCode]) -> list[tuple[str, str]]:
    """The kinds of instruction that any of a kernel's builds has, as (heading, pattern)."""
    opcodes = {opcode for code in codes for opcode in code.instructions}
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
    measured_arch = next((family.arch for family in inputs.measured.values() if family.arch), None)
    records = inputs.builds.get(kernel.id, {})
    entries = {toolkit: _entries(kernel, record) for toolkit, record in records.items()}
    columns = opcode_columns(
        code for by_entry in entries.values() for archs in by_entry.values() for code in archs.values()
    )
    builds: list[BuildView] = []
    loops: list[LoopView] = []
    for toolkit, by_entry in entries.items():
        for entry, archs in by_entry.items():
            builds += [
                build_view(archs[arch], toolkit, entry, arch, [pattern for _, pattern in columns])
                for arch in sorted(archs, key=_arch_order)
            ]
            chosen = measured_arch if measured_arch in archs else next(iter(sorted(archs)), None)
            text = archs[chosen].hot_loop.strip("\n") if chosen else ""
            if chosen and text:
                loops.append(_loop(kernel, toolkit, entry, chosen, text.splitlines(), inputs))
    return MachineCodeView(
        columns=tuple(heading for heading, _ in columns),
        builds=tuple(builds),
        loops=tuple(loops),
        build_keys={toolkit: record.build_key for toolkit, record in records.items()},
        listings=_listings(kernel, records, inputs),
        several=any(len(by_entry) > 1 for by_entry in entries.values()),
        uncompiled=tuple(
            toolkit for toolkit, by_entry in entries.items() if not any(archs for archs in by_entry.values())
        ),
    )


def _listings(kernel: registry.Kernel, records: Iterable[str], inputs: Inputs) -> dict[str, str]:
    places = {
        toolkit: inputs.files.add(
            inputs.build_dir / toolkit / f"{kernel.id}.sass", f"data/sass/{toolkit}/{kernel.id}.sass.gz"
        )
        for toolkit in records
    }
    return {toolkit: place for toolkit, place in places.items() if place}


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
        link=inputs.files.add(listing, f"data/sass/{toolkit}/{kernel.id}.sass.gz"),
    )


def _entries(kernel: registry.Kernel, record: Build) -> dict[str, Codes]:
    """The machine code of every entry point of a kernel, in the registry's order, which JSON does not keep."""
    order = [code.code.entry for code in kernel.codes]
    by_entry = record.variants or {record.entry: record.archs}
    return {entry: by_entry[entry] for entry in sorted(by_entry, key=lambda e: order.index(e) if e in order else -1)}


def build_view(code: MachineCode, toolkit: str, entry: str, arch: str, patterns: Sequence[str]) -> BuildView:
    """An entry point's code for an architecture, its instructions counted by kind."""
    return BuildView(
        toolkit=toolkit,
        entry=entry,
        arch=arch,
        registers=code.registers,
        spills=code.spill_bytes,
        stack=code.stack_bytes,
        shared=code.shared_bytes,
        instructions=code.instruction_total,
        counts=tuple(
            sum(count for opcode, count in code.instructions.items() if re.match(pattern, opcode))
            for pattern in patterns
        ),
    )
