"""One kernel's section of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from gemmrepro import operations, registry
from gemmrepro.core import names
from gemmrepro.core.names import SIZE, SNAKEMAKE
from gemmrepro.experiments.results import Results
from gemmrepro.paper.claims import experiment_anchor
from gemmrepro.paper.experiments import experiment_command
from gemmrepro.paper.gates import GateView, gate_view
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.machine_code import MachineCodeView, machine_code
from gemmrepro.paper.rows import (
    CounterView,
    RegimeRowView,
    RowView,
    Samples,
    counter_view,
    regime_row_view,
    row_view,
    times_of,
)
from gemmrepro.paper.sanitizers import SanitizerView, sanitizer_views
from gemmrepro.paper.step import DiffView, EvidenceView, LineView, diff_view, evidence_view, prediction
from gemmrepro.paper.text import LinkView, anchor, highlighted
from gemmrepro.registry.ladders import heading, level_name, original


@dataclass(frozen=True)
class SourceView:
    """A source file; `markup` is None if it is missing, `first` the kernel whose section prints it if not this one."""

    path: str
    link: str | None
    lines: int
    markup: Markup | None
    first: LinkView | None


@dataclass(frozen=True)
class CommandView:
    """A command that remakes a part of the section."""

    purpose: str
    command: str


@dataclass(frozen=True)
class KernelView:
    """A kernel's section: what it is, how it was judged, what it compiled to, how fast it ran, and how to redo that.

    `scheme` is true of a kernel whose error bound includes one of its own; `multiple_of` maps axes to the step that
    its sizes must keep; `expected` is what its source says that its author expected before it was measured.
    """

    id: str
    anchor: str
    name: str
    heading: str
    idea: str
    types: str
    timed: bool
    scheme: bool
    entries: tuple[str, ...]
    dynamic_shared: str
    params: Mapping[str, int]
    multiple_of: Mapping[str, int]
    evidence: EvidenceView | None
    gate: GateView
    sanitized: tuple[SanitizerView, ...]
    code: MachineCodeView
    rows: tuple[RowView, ...]
    alone: tuple[RegimeRowView, ...]
    counters: tuple[CounterView, ...]
    source: SourceView
    claims: tuple[LinkView, ...]
    experiments: tuple[LinkView, ...]
    commands: tuple[CommandView, ...]
    diff: DiffView | None
    expected: str

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


def kernel_view(kernel: registry.Kernel, inputs: Inputs, samples: Samples) -> KernelView:
    """A kernel's section of the paper; `samples` are its family's."""
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    alone = _alone(kernel, inputs)
    return KernelView(
        id=kernel.id,
        anchor=anchor(kernel.id),
        name=level_name(kernel),
        heading=heading(kernel),
        idea=kernel.story.idea,
        types=types_text(kernel),
        timed=kernel.timing.timed,
        scheme=kernel.promises.error is not None,
        entries=tuple(dict.fromkeys(code.code.entry for code in kernel.codes)),
        dynamic_shared=dynamic_shared(kernel),
        params=dict(kernel.params),
        multiple_of={axis.upper(): step for axis, step in kernel.accepts.multiple_of.items()},
        evidence=evidence_view(kernel, measured),
        gate=gate_view(inputs.gates.get(kernel.id), kernel),
        sanitized=sanitizer_views(
            inputs.sanitized.get(kernel.id),
            {toolkit: record.build_key for toolkit, record in inputs.builds.get(kernel.id, {}).items()},
        ),
        code=machine_code(kernel, inputs),
        rows=tuple(row_view(row, times_of(samples, row), inputs.ceilings) for _, row in rows.iterrows()),
        alone=alone,
        counters=tuple(counter_view(row) for _, row in counters.iterrows()),
        source=source_view(kernel, inputs),
        claims=tuple(
            LinkView(claim.id, claim.anchor) for claim in inputs.verdicts.claims if kernel.id in claim.kernels
        ),
        experiments=tuple(
            LinkView(results.experiment.title, experiment_anchor(family, results.experiment.name))
            for family, results in _experiments_of(kernel, inputs)
        ),
        commands=tuple(_commands(kernel, inputs, bool(alone))),
        diff=diff_view(kernel),
        expected=_expected(kernel),
    )


def _alone(kernel: registry.Kernel, inputs: Inputs) -> tuple[RegimeRowView, ...]:
    """Its rows sustained and in bursts, by size."""
    found = inputs.regimes.get(kernel.family)
    if found is None:
        return ()
    rows = found.summary[found.summary["kernel"] == kernel.id]
    rows = rows.sort_values(["m", "n", "k", "regime"], ascending=[True, True, True, False])
    return tuple(regime_row_view(row, inputs.ceilings) for _, row in rows.iterrows())


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


def _experiments_of(kernel: registry.Kernel, inputs: Inputs) -> list[tuple[str, Results]]:
    """The experiments that run a kernel, with their families."""
    return [
        (family, results)
        for family, by_name in inputs.experiments.items()
        for results in by_name.values()
        if kernel.id in results.experiment.kernels
    ]


def _commands(kernel: registry.Kernel, inputs: Inputs, alone: bool) -> Iterator[CommandView]:
    """What remakes its parts; `alone` if it has rows of the regimes."""
    for toolkit in names.TOOLKITS:
        if toolkit in kernel.platform.toolkits:
            made = inputs.builds.get(kernel.id, {}).get(toolkit)
            every = "--config 'compiled_once=[]' " if made and not made.archs else ""
            record = f"results/build/{toolkit}/{kernel.id}.json"
            yield CommandView(f"Compile it with {toolkit}", f"{SNAKEMAKE} {every}--force {record}")
    yield CommandView("Run its gates", f"{SNAKEMAKE} --force results/gates/{kernel.id}.json")
    if kernel.timing.timed:
        rows = f"results/measure/{kernel.family}/summary.csv"
        yield CommandView("Measure its family (needs a GPU)", f"{SNAKEMAKE} --config measure=live --force {rows}")
    if alone:
        rows = f"results/regimes/{kernel.family}/summary.csv"
        yield CommandView("Measure its family alone (needs a GPU)", f"{SNAKEMAKE} --config measure=live --force {rows}")
    for family, results in _experiments_of(kernel, inputs):
        yield CommandView(f"Run the experiment: {results.experiment.title}", experiment_command(family, results))


def dynamic_shared(kernel: registry.Kernel) -> str:
    """Bytes of dynamic shared memory that a GEMM launches with, by entry point where they differ; empty if none.

    What a compiler chooses itself is in the binaries, not in the registry.
    """
    shape = operations.Shape.cube(SIZE)
    if not kernel.problem.operation.matrix_product or kernel.compiler_traits.chooses_block or not kernel.takes(shape):
        return ""
    bytes_by_entry = {code.code.entry: code.launch(shape).shared_bytes for code in kernel.codes}
    if not any(bytes_by_entry.values()):
        return ""
    if len(set(bytes_by_entry.values())) == 1:
        return f"{bytes_by_entry[kernel.code.entry]:,}"
    return ", ".join(f"{entry} {count:,}" for entry, count in bytes_by_entry.items() if count)


def types_text(kernel: registry.Kernel) -> str:
    """The types that a GEMM multiplies, accumulates and writes, and the layout of its operands."""
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
