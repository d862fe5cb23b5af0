"""One kernel's page: what it is, how it was judged, what it compiled to, how fast it ran, and how to redo that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gemmrepro import operations, registry
from gemmrepro.build.record import Build, Codes, MachineCode
from gemmrepro.core import names
from gemmrepro.core.names import SIZE, SNAKEMAKE
from gemmrepro.experiments.results import Results
from gemmrepro.paper.gates import gate_view, sanitizer_views
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.step import diff_view, evidence_view, prediction
from gemmrepro.paper.text import (
    Samples,
    View,
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


def machine_code(kernel: registry.Kernel, inputs: Inputs) -> View:
    """The builds of a kernel, and the main loops of its entry points on the architecture that was measured.

    `kinds` are the headings of the instructions that are counted, with the patterns of their opcodes; `several` says
    whether its source has more than one entry point; `uncompiled` are the toolkits that have a build key alone.
    """
    measured_arch = next((family.arch for family in inputs.measured.values() if family.arch), None)
    records = inputs.builds.get(kernel.id, {})
    builds: list[View] = []
    loops: list[View] = []
    listings = {}
    for toolkit, record in records.items():
        for entry, archs in _entries(kernel, record).items():
            of_entry = {
                arch: View(toolkit=toolkit, entry=entry, arch=arch, code=archs[arch])
                for arch in sorted(archs, key=_arch_order)
            }
            builds += of_entry.values()
            chosen = measured_arch if measured_arch in archs else min(archs, default=None)
            if chosen and archs[chosen].hot_loop.strip("\n"):
                loops.append(of_entry[chosen])
        name = f"{toolkit}/{kernel.id}.sass"
        if place := inputs.files.add(inputs.build_dir / name, f"data/sass/{name}.gz"):
            listings[toolkit] = place
    kinds = kinds_of_instruction(build.code for build in builds)
    for build in builds:
        build.counts = [
            sum(count for opcode, count in build.code.instructions.items() if re.match(pattern, opcode))
            for _, pattern in kinds
        ]
    return View(
        kinds=kinds,
        builds=builds,
        loops=loops,
        build_keys={toolkit: record.build_key for toolkit, record in records.items()},
        several=any(len(record.variants) > 1 for record in records.values()),
        listings=listings,
        uncompiled=tuple(toolkit for toolkit in records if toolkit not in {build.toolkit for build in builds}),
    )


def _arch_order(arch: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", arch)] or [0]


def _entries(kernel: registry.Kernel, record: Build) -> dict[str, Codes]:
    """The machine code of every entry point of a kernel, in the registry's order, which JSON does not keep."""
    order = [code.code.entry for code in kernel.codes]
    by_entry = record.variants or {record.entry: record.archs}
    return {entry: by_entry[entry] for entry in sorted(by_entry, key=lambda e: order.index(e) if e in order else -1)}


def types(kernel: registry.Kernel) -> str:
    """The types that a GEMM multiplies, accumulates and writes, and the layout of its operands; else nothing."""
    if not kernel.problem.operation.matrix_product:
        return ""
    said = kernel.compute.dtype_in
    if (kernel.compute.dtype_acc, kernel.compute.dtype_out) != (said, said):
        promoted = f" and every {kernel.compute.promoted} products in fp32" if kernel.compute.promoted else ""
        said += f", accumulated in {kernel.compute.dtype_acc}{promoted}, output in {kernel.compute.dtype_out}"
    order = {
        operations.ROW_MAJOR: "all row-major",
        operations.K_MAJOR_B: "B column-major (K contiguous)",
        operations.M_MAJOR_A: "A column-major (M contiguous)",
    }[kernel.problem.layout]
    return f"{said}; {order}"


def dynamic_shared(kernel: registry.Kernel) -> str:
    """Bytes of dynamic shared memory that a GEMM launches with, by entry point where they differ; empty if none.

    What a compiler chooses itself is in the binaries, not in the registry.
    """
    shape = operations.Shape.cube(SIZE)
    is_gemm = kernel.problem.operation.matrix_product
    if not is_gemm or kernel.compiler_traits.chooses_block or not kernel.takes(shape):
        return ""
    by_entry = {code.code.entry: code.launch(shape).shared_bytes for code in kernel.codes}
    if len(set(by_entry.values())) == 1:
        return f"{by_entry[kernel.code.entry]:,}" if any(by_entry.values()) else ""
    return ", ".join(f"{entry} {count:,}" for entry, count in by_entry.items() if count)


def kernel_view(kernel: registry.Kernel, inputs: Inputs, samples: Samples) -> View:
    """A kernel's page; `samples` are its family's.

    `declared` is the kernel itself, `alone` and `counters` its rows of the regimes and of counters.csv, `commands` what
    remakes a part of the page, with its purpose, `expected` what its author expected before it was measured, `gain` its
    speed and that of the kernel before it, relative to their baseline if they have one in common. Its `source` has no
    `markup` where it is missing; `first` is the kernel whose page prints it if not this one.
    """
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    regimes = inputs.regimes[kernel.family].summary
    alone = regimes[regimes["kernel"] == kernel.id]
    alone = alone.sort_values(["m", "n", "k", "regime"], ascending=[True, True, True, False])
    source = kernel.source_path.read_text() if kernel.source_path.is_file() else ""
    first = original(kernel)
    evidence = evidence_view(kernel, measured)
    build_keys = {toolkit: record.build_key for toolkit, record in inputs.builds.get(kernel.id, {}).items()}
    experiments = [
        (family, results)
        for family, by_name in inputs.experiments.items()
        for results in by_name.values()
        if kernel.id in results.experiment.kernels
    ]
    return View(
        declared=kernel,
        id=kernel.id,
        anchor=anchor(kernel.id),
        name=level_name(kernel),
        heading=heading(kernel),
        types=types(kernel),
        dynamic_shared=dynamic_shared(kernel),
        evidence=evidence,
        gain=evidence and evidence.gain,
        counter=evidence and evidence.counter,
        gate=gate_view(inputs.gates.get(kernel.id), kernel),
        sanitized=sanitizer_views(inputs.sanitized.get(kernel.id), build_keys),
        code=machine_code(kernel, inputs),
        rows=[row_view(row, times_of(samples, row), inputs.ceilings) for _, row in rows.iterrows()],
        alone=[regime_row_view(row, inputs.ceilings) for _, row in alone.iterrows()],
        counters=counters.to_dict("records"),
        source=View(
            path=f"kernels/{kernel.family}/{kernel.source}",
            link=inputs.files.add(kernel.source_path, f"data/sources/{kernel.family}/{kernel.source}"),
            lines=source.count("\n"),
            markup=highlighted(source) if source else None,
            first=View(name=level_name(first), anchor=anchor(first.id)) if first else None,
        ),
        claims=[claim for claim in inputs.verdicts.claims if kernel.id in claim.kernels],
        experiments=[
            View(name=results.experiment.title, anchor=experiment_anchor(family, results.experiment.name))
            for family, results in experiments
        ],
        commands=[*_commands(kernel, inputs, not alone.empty, experiments)],
        diff=diff_view(kernel),
        expected=kernel.story.expected or prediction(source),
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
