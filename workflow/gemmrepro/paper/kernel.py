"""One kernel's page: what it is, how it was judged, what it compiled to, how fast it ran, and how to redo that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import takewhile
from typing import Any

import pandas as pd

from gemmrepro import operations, registry
from gemmrepro.build.record import Build, Codes
from gemmrepro.core.names import METRICS, SIZE
from gemmrepro.core.text import in_words
from gemmrepro.gates.operations import allowed
from gemmrepro.measure.rows import Measurements, cubes, is_current, select
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
    `uncompiled` are the toolkits that have a build key alone."""
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


def dynamic_shared(kernel: registry.Kernel) -> int:
    """The most bytes of dynamic shared memory that a GEMM launches with; 0 where its compiler chooses them."""
    shape = operations.Shape.cube(SIZE)
    if not kernel.problem.operation.matrix_product or kernel.compiler_traits.chooses_block or not kernel.takes(shape):
        return 0
    return max(code.launch(shape).shared_bytes for code in kernel.codes)


def kernel_view(kernel: registry.Kernel, inputs: Inputs, samples: Samples) -> View:
    """A kernel's page; `samples` are its family's.
    `declared` is the kernel, `alone` and `counters` its rows of the regimes and of counters.csv, `expected` what its
    author expected before it was measured. Its `source` has no `markup` where it is missing; `first` is the kernel
    whose page prints it if not this one."""
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    regimes = inputs.regimes[kernel.family].summary
    alone = regimes[regimes["kernel"] == kernel.id]
    alone = alone.sort_values(["m", "n", "k", "regime"], ascending=[True, True, True, False])
    source = kernel.source_path.read_text() if kernel.source_path.is_file() else ""
    first = original(kernel)
    return View(
        declared=kernel,
        id=kernel.id,
        anchor=anchor(kernel.id),
        name=level_name(kernel),
        heading=heading(kernel),
        dynamic_shared=dynamic_shared(kernel),
        evidence=evidence_view(kernel, measured),
        gate=gate_view(inputs.gates.get(kernel.id), kernel),
        sanitized=inputs.sanitized.get(kernel.id),
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


def evidence_view(kernel: registry.Kernel, measured: Measurements) -> View | None:
    """A kernel's speed and the counters that explain its gain, beside the kernel before; None if it names no counter.
    The size is the article's if both kernels were counted there, else the largest of both. A line's `name` is the
    profiler's, empty for a speed; `change` the factor between the two, a dash unless both are current; `formula` its
    quotient."""
    if not kernel.story.evidence:
        return None
    before = before_of(kernel, measured)
    sides = [each for each in (kernel, before) if each]
    counters = select(cubes(measured.counters), toolkit=measured.toolkit)
    counters = counters[counters["metric"].isin(kernel.story.evidence) & counters["value"].notna()]
    sizes = [set(select(counters, kernel=each.id)["n"]) for each in sides]
    common = sorted(int(n) for n in set.intersection(*sizes) or sizes[0])
    size = SIZE if SIZE in common or not common else common[-1]
    swept = select(cubes(measured.summary), toolkit=measured.toolkit, n=size, cache=measured.cache)
    counters = select(counters, n=size)
    lines: list[View] = []

    def line(name: str, meaning: str, column: str, text: Callable[[pd.Series], str], beside: bool = True) -> None:
        cells = []
        for each in sides if beside else sides[:1]:
            dtype = {} if name else {"dtype": each.compute.dtype_in}
            own = select(counters, metric=name) if name else swept
            cells.append(_cell(select(own, kernel=each.id, **dtype), column, text))
        here, earlier = [*cells, None][:2]
        change, formula = NONE, ""
        if here and earlier and not here.stale and not earlier.stale and earlier.value:
            factor = number(here.value / earlier.value)
            same = float(factor.replace(",", "")) == 1
            change = "the same" if same else f"{BY} {factor}"
            formula = "" if same else f"{here.text} \N{DIVISION SIGN} {earlier.text}"
        lines.append(View(name=name, meaning=meaning, here=here, before=earlier, change=change, formula=formula))

    paired = bool(kernel.timing.baseline) and (
        before is None or (before.problem, before.timing.baseline) == (kernel.problem, kernel.timing.baseline)
    )
    line("", f"speed, {measured.cache}", "tflops", lambda row: f"{number(row['tflops'])} TFLOP/s", not paired)
    if paired:
        # Both were timed in alternation with the same baseline, so a clock that changes cancels: it is their gain.
        meaning = "speed relative to the baseline, timed in alternation"
        line("", meaning, "ratio", lambda row: number(row["ratio"]))
    scope = ", over all launches of a run" if kernel.run.steps else ""
    for metric in kernel.story.evidence:
        meaning = METRICS.get(metric, "") + scope
        line(metric, meaning, "value", lambda row: in_words(float(row["value"]), row["unit"]))
    return View(
        before=_link(before) if before else None,
        size=size,
        toolkit=measured.toolkit,
        lines=lines,
        gain=next((each for each in lines if before and not each.name and each.before), None),
        counter=next((each for each in lines if each.name and each.here), None),
    )


def before_of(kernel: registry.Kernel, measured: Measurements) -> registry.Kernel | None:
    """The kernel that it is compared with; rungs without a current row are passed over."""
    return ladders.before(kernel, {*measured.summary["kernel"][is_current(measured.summary)]})


def _link(kernel: registry.Kernel) -> View:
    return View(name=level_name(kernel), anchor=anchor(kernel.id))


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
    old, new = (each.source_path.read_text().splitlines() for each in (before, kernel))
    lines = list(unified_diff(old, new, lineterm=""))[2:]
    counts = Counter(line[0] for line in lines)
    markup = highlighted("\n".join(lines), "diff")
    return View(before=_link(before), markup=markup, lines=len(lines), added=counts["+"], removed=counts["-"])


def prediction(source: str) -> str:
    """The paragraph ``Expected:`` at the head of a CUDA or Python source, on one line; empty without one.
    The paragraph ends with the next label, such as ``Takes:``, with an empty line, or with the comment."""
    if source.startswith('"""'):
        lines = source.split('"""')[1].splitlines()
    else:
        lines = [line.removeprefix("//") for line in takewhile(lambda line: line.startswith("//"), source.splitlines())]
    found = _EXPECTED.search("\n".join(map(str.strip, lines)))
    return " ".join(found[1].split()) if found else ""


NOT_COMPILED = "not compiled"
"""The static gate of a kernel that this run did not compile with a toolkit."""


def gate_view(gate: Mapping[str, Any] | None, kernel: registry.Kernel) -> View:
    """The gate of a kernel, ``passed`` if nothing failed; ``not run`` if it is None.
    By toolkit `static` is ``passed``, ``failed`` or NOT_COMPILED; `numeric` ``passed``, ``failed``, ``stale``, ``not
    run``, or ``not measured``; `measured` needs a binary. `open` are the statuses of numerical gates without a verdict.
    `static_passed` and `numeric_passed`: it passed in every toolkit that compiled it, or whose binary is measured."""
    toolkits, checks = [], []
    verdicts = sorted(((gate or {}).get("toolkits") or {}).items())
    for name, verdict in verdicts:
        numeric, static = verdict.get("numeric") or {}, verdict.get("static") or {}
        status, passed, worst = numeric.get("status") or "not run", static.get("passed"), numeric.get("worst")
        toolkits.append(
            View(
                name=name,
                static=NOT_COMPILED if passed is None else "passed" if passed else "failed",
                compiled=passed is not None,
                numeric=status,
                judged=status in ("passed", "failed"),
                measured=status != "not measured" and (passed is not None or status != "not run"),
                source=numeric.get("source") or "none",
                gpu=numeric.get("gpu"),
                reason=numeric.get("reason"),
                worst=case_view(worst, kernel) if isinstance(worst, Mapping) else None,
                cases=[case_view(case, kernel) for case in numeric.get("cases") or []],
            )
        )
        checks += [(name if len(verdicts) > 1 else "", check) for check in static.get("checks") or []]
    return View(
        status="not run" if gate is None else "passed" if gate.get("passed") else "failed",
        toolkits=toolkits,
        checks=_gathered(checks),
        cases=[*_cases(toolkits)],
        open=" or ".join(sorted({each.numeric for each in toolkits if each.measured and not each.judged})),
        static_passed={each.static for each in toolkits if each.compiled} == {"passed"},
        numeric_passed={each.numeric for each in toolkits if each.measured} == {"passed"},
    )


def case_view(case: Mapping[str, Any], kernel: registry.Kernel) -> Mapping[str, Any]:
    """A numerical case with its error and what is `allowed`, in units of |A||B| and the output's roundoff.
    `allowed` is None where the gate judges by a bound of another kind: it writes gamma 0 with an error."""
    gamma, shape = case.get("gamma"), case.get("shape", "")
    by_another = gamma == 0 and case.get("err_scaled_max") and case.get("passed", True)
    return {
        **case,
        "shape": shape if isinstance(shape, str) else BY.join(map(str, shape)),
        "allowed": None if by_another else allowed(kernel, gamma),
        "passed": bool(case.get("passed")),
    }


def _cases(toolkits: Sequence[View]) -> Iterator[tuple[Mapping[str, Any], Sequence[float | None], bool]]:
    """The numerical cases, each with its largest error over entry points by toolkit, None where it did not run, and
    whether it passed."""
    rows: dict[tuple[object, ...], list[tuple[str, Mapping[str, Any]]]] = {}
    for toolkit in toolkits:
        for case in toolkit.cases:
            key = tuple(case.get(name) for name in ("shape", "inputs", "alpha", "beta", "seed", "allowed"))
            rows.setdefault(key, []).append((toolkit.name, case))
    for cases in rows.values():
        known = [(name, case["err_scaled_max"]) for name, case in cases if case.get("err_scaled_max") is not None]
        errors = [max((error for name, error in known if name == each.name), default=None) for each in toolkits]
        yield cases[0][1], errors, all(case["passed"] for _, case in cases)


def _gathered(checks: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[tuple[str, Mapping[str, Any]]]]:
    """The same static check of every target, after its toolkit if it names one: pairs of a target and the check.
    The n-th check of a name on one architecture is the same as the n-th on another, though its bound may differ."""
    gathered: dict[tuple[str, int], list[tuple[str, Mapping[str, Any]]]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for toolkit, check in checks:
        name, target = check["check"], " ".join(filter(None, (toolkit, check.get("arch"))))
        gathered.setdefault((name, seen[target, name]), []).append((target, check))
        seen[target, name] += 1
    return list(gathered.values())
