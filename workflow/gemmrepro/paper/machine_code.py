"""The report's tables of machine code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gemmrepro import registry
from gemmrepro.build.record import Build, Codes, MachineCode
from gemmrepro.paper.inputs import Inputs

_KINDS_OF_INSTRUCTION = (
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


class Compiled(NamedTuple):
    """An entry point's code for one architecture."""

    toolkit: str
    entry: str
    arch: str
    code: MachineCode


@dataclass(frozen=True)
class MachineCodeView:
    """A kernel's builds, and its main loops on the architecture that was measured.

    Attributes:
        kinds: headings of the instructions that are counted, with the pattern of their opcodes.
        build_keys, listings: by toolkit; the latter are places of the whole machine code.
        several: whether its source has more than one entry point.
        uncompiled: the toolkits that have a build key alone.
    """

    kinds: list[tuple[str, str]]
    builds: list[Compiled]
    loops: list[Compiled]
    build_keys: Mapping[str, str]
    several: bool
    listings: Mapping[str, str]
    uncompiled: tuple[str, ...] = ()

    def counts(self, code: MachineCode) -> Iterator[int]:
        """The instructions of each of `kinds`."""
        for _, pattern in self.kinds:
            yield sum(count for opcode, count in code.instructions.items() if re.match(pattern, opcode))


def kinds_of_instruction(codes: Iterable[MachineCode]) -> list[tuple[str, str]]:
    """The kinds of instruction that any of a kernel's builds has, as (heading, pattern)."""
    opcodes = {opcode for code in codes for opcode in code.instructions}
    kinds = []
    parent_shown = False
    for heading, pattern in _KINDS_OF_INSTRUCTION:
        present = any(re.match(pattern, opcode) for opcode in opcodes)
        if heading.startswith("of them"):
            shown = present and parent_shown
        else:
            shown = parent_shown = present or heading in _ALWAYS
        if shown:
            kinds.append((heading, pattern))
    return kinds


def machine_code(kernel: registry.Kernel, inputs: Inputs) -> MachineCodeView:
    """The builds of a kernel, and the main loops of its entry points."""
    measured_arch = next((family.arch for family in inputs.measured.values() if family.arch), None)
    records = inputs.builds.get(kernel.id, {})
    builds: list[Compiled] = []
    loops: list[Compiled] = []
    for toolkit, record in records.items():
        for entry, archs in _entries(kernel, record).items():
            of_entry = {arch: Compiled(toolkit, entry, arch, archs[arch]) for arch in sorted(archs, key=_arch_order)}
            builds += of_entry.values()
            chosen = measured_arch if measured_arch in archs else min(archs, default=None)
            if chosen and archs[chosen].hot_loop.strip("\n"):
                loops.append(of_entry[chosen])
    listings = {
        toolkit: inputs.files.add(
            inputs.build_dir / toolkit / f"{kernel.id}.sass", f"data/sass/{toolkit}/{kernel.id}.sass.gz"
        )
        for toolkit in records
    }
    return MachineCodeView(
        kinds=kinds_of_instruction(build.code for build in builds),
        builds=builds,
        loops=loops,
        build_keys={toolkit: record.build_key for toolkit, record in records.items()},
        several=any(len(record.variants) > 1 for record in records.values()),
        listings={toolkit: place for toolkit, place in listings.items() if place},
        uncompiled=tuple(toolkit for toolkit in records if toolkit not in {build.toolkit for build in builds}),
    )


def _arch_order(arch: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", arch)] or [0]


def _entries(kernel: registry.Kernel, record: Build) -> dict[str, Codes]:
    """The machine code of every entry point of a kernel, in the registry's order, which JSON does not keep."""
    order = [code.code.entry for code in kernel.codes]
    by_entry = record.variants or {record.entry: record.archs}
    return {entry: by_entry[entry] for entry in sorted(by_entry, key=lambda e: order.index(e) if e in order else -1)}
