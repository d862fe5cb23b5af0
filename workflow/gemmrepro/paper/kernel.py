"""One kernel's page: what it is, how it was judged, what it compiled to, how fast it ran, and how to redo that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from difflib import unified_diff
from itertools import takewhile

import pandas as pd

from gemmrepro import operations, registry
from gemmrepro.build.record import Build, Codes
from gemmrepro.core.names import METRICS, SIZE
from gemmrepro.core.text import in_words
from gemmrepro.measure.rows import Measurements, cubes, is_current, select
from gemmrepro.paper.gates import gate_view, sanitizer_views
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import (
    BY,
    NONE,
    Samples,
    View,
    anchor,
    counter_anchor,
    experiment_anchor,
    experiment_command,
    highlighted,
    number,
    regime_row_view,
    row_anchor,
    row_view,
    times_of,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import heading, level_name, original

KINDS = {
    "FFMA": "FFMA",
    "global loads": r"LDG(?!STS)",
    "global loads of 128 bits": r"LDG(?!STS)\b.*\.128",
    "global stores": "STG",
    "global stores of 128 bits": r"STG\b.*\.128",
    "shared loads": "LDS(?!M)",
    "shared loads of 128 bits": r"LDS(?!M)\b.*\.128",
    "shared stores": "STS",
    "barriers": "BAR",
    "async copies": "LDGSTS|UTMALDG|UBLKCP",
    "TMA stores": "UTMASTG|UTMAREDG",
    "mbarrier operations": "SYNCS",
    "tensor-core": "HMMA|IMMA|DMMA|HGMMA|QGMMA|IGMMA|UTCHMMA|OMMA|QMMA",
    "local memory": "LDL|STL",
}
"""Instructions that a kernel's page counts, and how their opcodes begin."""


def machine_code(kernel: registry.Kernel, inputs: Inputs) -> View:
    """The builds of a kernel, and the main loops of its entry points on the architecture that was measured.

    `kinds` are those of KINDS that any build has; `several` says whether its source has more than one entry point;
    `uncompiled` are the toolkits that have a build key alone.
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
                for arch in sorted(archs, key=lambda arch: [*map(int, re.findall(r"\d+", arch))] or [0])
            }
            builds += of_entry.values()
            chosen = measured_arch if measured_arch in archs else min(archs, default=None)
            if chosen and archs[chosen].hot_loop.strip("\n"):
                loops.append(of_entry[chosen])
        name = f"{toolkit}/{kernel.id}.sass"
        if place := inputs.files.add(inputs.build_dir / name, f"data/sass/{name}.gz"):
            listings[toolkit] = place
    for build in builds:
        opcodes = build.code.instructions.items()
        build.counts = {
            kind: sum(count for opcode, count in opcodes if re.match(begin, opcode)) for kind, begin in KINDS.items()
        }
    return View(
        kinds=[kind for kind in KINDS if any(build.counts[kind] for build in builds)],
        builds=builds,
        loops=loops,
        build_keys={toolkit: record.build_key for toolkit, record in records.items()},
        several=any(len(record.variants) > 1 for record in records.values()),
        listings=listings,
        uncompiled=tuple(toolkit for toolkit in records if toolkit not in {build.toolkit for build in builds}),
    )


def _entries(kernel: registry.Kernel, record: Build) -> dict[str, Codes]:
    """The machine code of every entry point of a kernel, in the registry's order, which JSON does not keep."""
    order = [code.code.entry for code in kernel.codes]
    by_entry = record.variants or {record.entry: record.archs}
    return {entry: by_entry[entry] for entry in sorted(by_entry, key=lambda e: order.index(e) if e in order else -1)}


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

    `declared` is the kernel itself, `alone` and `counters` its rows of the regimes and of counters.csv, `expected` what
    its author expected before it was measured, `gain` its speed and that of the kernel before it, relative to their
    baseline if they have one in common. Its `source` has no `markup` where it is missing; `first` is the kernel whose
    page prints it if not this one.
    """
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    regimes = inputs.regimes[kernel.family].summary
    alone = regimes[regimes["kernel"] == kernel.id]
    alone = alone.sort_values(["m", "n", "k", "regime"], ascending=[True, True, True, False])
    source = kernel.source_path.read_text() if kernel.source_path.is_file() else ""
    first = original(kernel)
    build_keys = {toolkit: record.build_key for toolkit, record in inputs.builds.get(kernel.id, {}).items()}
    return View(
        declared=kernel,
        id=kernel.id,
        anchor=anchor(kernel.id),
        name=level_name(kernel),
        heading=heading(kernel),
        dynamic_shared=dynamic_shared(kernel),
        evidence=evidence_view(kernel, measured),
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
            first=_link(first) if first else None,
        ),
        claims=[claim for claim in inputs.verdicts.claims if kernel.id in claim.kernels],
        experiments=[
            View(
                name=results.experiment.title,
                anchor=experiment_anchor(family, results.experiment.name),
                command=experiment_command(family, results),
            )
            for family, by_name in inputs.experiments.items()
            for results in by_name.values()
            if kernel.id in results.experiment.kernels
        ],
        diff=diff_view(kernel, measured),
        expected=kernel.story.expected or prediction(source),
    )


_EXPECTED = re.compile(
    r"^(?:Expected|Predicted):(.*?)$(?=\n(?:\n|[A-Z][a-z]+(?: [a-z]+)?:(?:\s|$))|\n*\Z)", re.M | re.S
)


def _line(name: str, meaning: str, here: View | None, before: View | None) -> View:
    """One quantity of a kernel (`here`) and of the one before it; `name` is the profiler's, empty for a speed.

    `change` is the factor between the two, a dash unless both are current; `formula` the quotient behind a factor.
    """
    change, formula = NONE, ""
    if here and before and not here.stale and not before.stale and before.value:
        factor = number(here.value / before.value)
        same = float(factor.replace(",", "")) == 1
        change = "the same" if same else f"{BY} {factor}"
        formula = "" if same else f"{here.text} \N{DIVISION SIGN} {before.text}"
    return View(name=name, meaning=meaning, here=here, before=before, change=change, formula=formula)


def evidence_view(kernel: registry.Kernel, measured: Measurements) -> View | None:
    """A kernel's speed and the counters that explain its gain, beside the kernel before; None if it names no counter.

    The size is the article's if both kernels were counted there, else the largest at which both were.
    """
    if not kernel.story.evidence:
        return None
    before = before_of(kernel, measured)
    sides = (kernel, before)
    toolkit = measured.toolkit
    counters = select(measured.counters, toolkit=toolkit)
    counters = counters[counters["metric"].isin(kernel.story.evidence) & counters["value"].notna()]
    size = _size(counters, kernel, before)
    rows = select(cubes(measured.summary), toolkit=toolkit, n=size, cache=measured.cache)

    speed, earlier_speed = (_speed(rows, side, "tflops", " TFLOP/s") for side in sides)
    paired = kernel.timing.baseline and (
        before is None or (before.problem, before.timing.baseline) == (kernel.problem, kernel.timing.baseline)
    )
    lines = [_line("", f"speed, {measured.cache}", speed, None if paired else earlier_speed)]
    if paired:
        # Both were timed in alternation with the same baseline, so a clock that changes cancels: it is their gain.
        meaning = "speed relative to the baseline, timed in alternation"
        lines.append(_line("", meaning, *(_speed(rows, side, "ratio") for side in sides)))
    scope = ", over all launches of a run" if kernel.run.steps else ""
    for metric in kernel.story.evidence:
        counted = select(cubes(counters), metric=metric, n=size)
        lines.append(_line(metric, METRICS.get(metric, "") + scope, *(_counter(counted, side) for side in sides)))
    return View(
        before=_link(before) if before else None,
        size=size,
        toolkit=toolkit,
        lines=lines,
        gain=next((line for line in lines if before and not line.name and line.before), None),
        counter=next((line for line in lines if line.name and line.here), None),
    )


def before_of(kernel: registry.Kernel, measured: Measurements) -> registry.Kernel | None:
    """The kernel that it is compared with: rungs without a current row are passed over."""
    return ladders.before(kernel, {*measured.summary["kernel"][is_current(measured.summary)]})


def _link(kernel: registry.Kernel) -> View:
    return View(name=level_name(kernel), anchor=anchor(kernel.id))


def _size(counters: pd.DataFrame, kernel: registry.Kernel, before: registry.Kernel | None) -> int:
    counted = set(select(counters, kernel=kernel.id)["n"])
    common = counted & set(select(counters, kernel=before.id)["n"]) if before else counted
    sizes = sorted(int(n) for n in (common or counted))
    return SIZE if SIZE in sizes or not sizes else sizes[-1]


def _speed(rows: pd.DataFrame, kernel: registry.Kernel | None, column: str, unit: str = "") -> View | None:
    own = select(rows, kernel=kernel.id, dtype=kernel.compute.dtype_in) if kernel else rows[:0]
    return _cell(own, column, lambda row: number(row[column]) + unit)


def _counter(rows: pd.DataFrame, kernel: registry.Kernel | None) -> View | None:
    own = select(rows, kernel=kernel.id) if kernel else rows[:0]
    return _cell(own, "value", lambda row: in_words(float(row["value"]), row["unit"]))


def _cell(rows: pd.DataFrame, column: str, text: Callable[[pd.Series], str]) -> View | None:
    """The number in the last row that is current, else in the last; None without one."""
    current = rows[is_current(rows)]
    rows = current if len(current) else rows
    if rows.empty or pd.isna(rows.iloc[-1][column]):
        return None
    row = rows.iloc[-1]
    place = counter_anchor(row) if column == "value" else row_anchor(row)
    return View(text=text(row), value=float(row[column]), stale=row["status"] == "stale", anchor=place)


def diff_view(kernel: registry.Kernel, measured: Measurements) -> View | None:
    """The changes to the source of the kernel before; None without one, and where both are made from one source."""
    before = before_of(kernel, measured)
    if before is None or before.source_path == kernel.source_path:
        return None
    if not (before.source_path.is_file() and kernel.source_path.is_file()):
        return None
    sources = (each.source_path.read_text().splitlines() for each in (before, kernel))
    lines = list(unified_diff(*sources, lineterm=""))[2:]
    counts = Counter(line[0] for line in lines)
    markup = highlighted("\n".join(lines), "diff")
    return View(before=_link(before), markup=markup, lines=len(lines), added=counts["+"], removed=counts["-"])


def prediction(source: str) -> str:
    """The paragraph ``Expected:`` at the head of a CUDA or Python source, on one line; empty without one.

    The paragraph ends with the next label, such as ``Takes:``, with an empty line, or with the comment.
    """
    if source.startswith('"""'):
        lines = source.split('"""')[1].splitlines()
    else:
        lines = [line.removeprefix("//") for line in takewhile(lambda line: line.startswith("//"), source.splitlines())]
    found = _EXPECTED.search("\n".join(map(str.strip, lines)))
    return " ".join(found[1].split()) if found else ""
