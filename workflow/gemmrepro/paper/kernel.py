"""One kernel's page: what it is, how it was judged, what it compiled to, how fast it ran, and how to redo that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from gemmrepro import operations, registry
from gemmrepro.build.record import Build, Codes, MachineCode
from gemmrepro.core import names
from gemmrepro.core.names import SIZE, SNAKEMAKE
from gemmrepro.experiments.results import Results
from gemmrepro.paper.gates import GateView, SanitizerView, gate_view, sanitizer_views
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.step import DiffView, EvidenceView, LineView, diff_view, evidence_view, prediction
from gemmrepro.paper.text import (
    LinkView,
    RegimeRowView,
    RowView,
    Samples,
    anchor,
    experiment_anchor,
    experiment_command,
    highlighted,
    regime_row_view,
    row_view,
    times_of,
)
from gemmrepro.registry.ladders import heading, level_name, original

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
    for kind, pattern in _KINDS_OF_INSTRUCTION:
        present = any(re.match(pattern, opcode) for opcode in opcodes)
        if kind.startswith("of them"):
            shown = present and parent_shown
        else:
            shown = parent_shown = present or kind in _ALWAYS
        if shown:
            kinds.append((kind, pattern))
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


@dataclass(frozen=True)
class SourceView:
    """A source file; `markup` is None if it is missing, `first` the kernel whose page prints it if not this one."""

    path: str
    link: str | None
    lines: int
    markup: Markup | None
    first: LinkView | None


@dataclass(frozen=True)
class KernelView:
    """A kernel's page.

    Attributes:
        declared: the kernel itself.
        alone, counters: its rows of the regimes, and of counters.csv.
        commands: what remakes a part of the page, each with its purpose.
        expected: what its author expected before it was measured.
    """

    declared: registry.Kernel
    evidence: EvidenceView | None
    gate: GateView
    sanitized: Sequence[SanitizerView]
    code: MachineCodeView
    rows: Sequence[RowView]
    alone: Sequence[RegimeRowView]
    counters: Sequence[Mapping[str, Any]]
    source: SourceView
    claims: Sequence[LinkView]
    experiments: Sequence[LinkView]
    commands: Sequence[tuple[str, str]]
    diff: DiffView | None
    expected: str

    @property
    def id(self) -> str:
        return self.declared.id

    @property
    def anchor(self) -> str:
        """The id of its page's heading."""
        return anchor(self.id)

    @property
    def name(self) -> str:
        """Its name among the levels of its family."""
        return level_name(self.declared)

    @property
    def heading(self) -> str:
        return heading(self.declared)

    @property
    def gain(self) -> LineView | None:
        """Its speed and that of the kernel before it, relative to their baseline if they have one in common."""
        lines = self.evidence.lines if self.evidence and self.evidence.before else ()
        return next((line for line in lines if not line.name and line.before), None)

    @property
    def counter(self) -> LineView | None:
        """The first counter that explains the gain."""
        lines = self.evidence.lines if self.evidence else ()
        return next((line for line in lines if line.name and line.here), None)

    @property
    def types(self) -> str:
        """The types that a GEMM multiplies, accumulates and writes, and the layout of its operands; else nothing."""
        kernel = self.declared
        if not kernel.problem.operation.matrix_product:
            return ""
        types = kernel.compute.dtype_in
        if (kernel.compute.dtype_acc, kernel.compute.dtype_out) != (types, types):
            promoted = f" and every {kernel.compute.promoted} products in fp32" if kernel.compute.promoted else ""
            types += f", accumulated in {kernel.compute.dtype_acc}{promoted}, output in {kernel.compute.dtype_out}"
        order = {
            operations.ROW_MAJOR: "all row-major",
            operations.K_MAJOR_B: "B column-major (K contiguous)",
            operations.M_MAJOR_A: "A column-major (M contiguous)",
        }[kernel.problem.layout]
        return f"{types}; {order}"

    @property
    def dynamic_shared(self) -> str:
        """Bytes of dynamic shared memory that a GEMM launches with, by entry point where they differ; empty if none.

        What a compiler chooses itself is in the binaries, not in the registry.
        """
        kernel, shape = self.declared, operations.Shape.cube(SIZE)
        is_gemm = kernel.problem.operation.matrix_product
        if not is_gemm or kernel.compiler_traits.chooses_block or not kernel.takes(shape):
            return ""
        bytes_by_entry = {code.code.entry: code.launch(shape).shared_bytes for code in kernel.codes}
        if not any(bytes_by_entry.values()):
            return ""
        if len(set(bytes_by_entry.values())) == 1:
            return f"{bytes_by_entry[kernel.code.entry]:,}"
        return ", ".join(f"{entry} {count:,}" for entry, count in bytes_by_entry.items() if count)


def kernel_view(kernel: registry.Kernel, inputs: Inputs, samples: Samples) -> KernelView:
    """A kernel's page; `samples` are its family's."""
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    alone = _alone(kernel, inputs)
    build_keys = {toolkit: record.build_key for toolkit, record in inputs.builds.get(kernel.id, {}).items()}
    experiments = [
        (family, results)
        for family, by_name in inputs.experiments.items()
        for results in by_name.values()
        if kernel.id in results.experiment.kernels
    ]
    return KernelView(
        declared=kernel,
        evidence=evidence_view(kernel, measured),
        gate=gate_view(inputs.gates.get(kernel.id), kernel),
        sanitized=sanitizer_views(inputs.sanitized.get(kernel.id), build_keys),
        code=machine_code(kernel, inputs),
        rows=[row_view(row, times_of(samples, row), inputs.ceilings) for _, row in rows.iterrows()],
        alone=alone,
        counters=counters.to_dict("records"),
        source=source_view(kernel, inputs),
        claims=[LinkView(claim.id, claim.anchor) for claim in inputs.verdicts.claims if kernel.id in claim.kernels],
        experiments=[
            LinkView(results.experiment.title, experiment_anchor(family, results.experiment.name))
            for family, results in experiments
        ],
        commands=[*_commands(kernel, inputs, bool(alone), experiments)],
        diff=diff_view(kernel),
        expected=_expected(kernel),
    )


def _alone(kernel: registry.Kernel, inputs: Inputs) -> list[RegimeRowView]:
    """Its rows sustained and in bursts, by size."""
    regimes = inputs.regimes.get(kernel.family)
    if regimes is None:
        return []
    rows = regimes.summary[regimes.summary["kernel"] == kernel.id]
    rows = rows.sort_values(["m", "n", "k", "regime"], ascending=[True, True, True, False])
    return [regime_row_view(row, inputs.ceilings) for _, row in rows.iterrows()]


def _expected(kernel: registry.Kernel) -> str:
    """What was expected of a kernel before it was measured, as its record or its source says; else nothing."""
    if kernel.story.expected or not kernel.source_path.is_file():
        return kernel.story.expected
    return prediction(kernel.source_path.read_text())


def source_view(kernel: registry.Kernel, inputs: Inputs) -> SourceView:
    """A kernel's source file."""
    text = kernel.source_path.read_text() if kernel.source_path.is_file() else ""
    first = original(kernel)
    return SourceView(
        path=f"kernels/{kernel.family}/{kernel.source}",
        link=inputs.files.add(kernel.source_path, f"data/sources/{kernel.family}/{kernel.source}"),
        lines=text.count("\n"),
        markup=highlighted(text) if text else None,
        first=LinkView(level_name(first), anchor(first.id)) if first else None,
    )


def _commands(
    kernel: registry.Kernel, inputs: Inputs, alone: bool, experiments: Sequence[tuple[str, Results]]
) -> Iterator[tuple[str, str]]:
    """Purpose and command of what remakes its parts; `alone` if it has rows of the regimes."""
    for toolkit in names.TOOLKITS:
        if toolkit in kernel.platform.toolkits:
            record = inputs.builds.get(kernel.id, {}).get(toolkit)
            every = "--config 'compiled_once=[]' " if record and not record.archs else ""
            target = f"results/build/{toolkit}/{kernel.id}.json"
            yield f"Compile it with {toolkit}", f"{SNAKEMAKE} {every}--force {target}"
    yield "Run its gates", f"{SNAKEMAKE} --force results/gates/{kernel.id}.json"
    live = f"{SNAKEMAKE} --config measure=live --force results"
    if kernel.timing.timed:
        yield "Measure its family (needs a GPU)", f"{live}/measure/{kernel.family}/summary.csv"
    if alone:
        yield "Measure its family alone (needs a GPU)", f"{live}/regimes/{kernel.family}/summary.csv"
    for family, results in experiments:
        yield f"Run the experiment: {results.experiment.title}", experiment_command(family, results)
