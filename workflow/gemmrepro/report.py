"""Writes the paper: ``reports/index.html``, one file that opens from disk with no network.

Everything it says follows from the files that the stages before it wrote; the template is in ``reports/template``. A
stage that did not run, a family that was not measured, or a container that was not built is said, not hidden.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from gemmrepro import claims, discussion, experiment_rows, registry, rungs
from gemmrepro.claims import as_published, format_number
from gemmrepro.counters import METRICS
from gemmrepro.discussion import in_words
from gemmrepro.drawing import SIZE, listed
from gemmrepro.error_bounds import allowed_error
from gemmrepro.errors import UserError, run_stage
from gemmrepro.experiment_rows import Results
from gemmrepro.experiments import Column
from gemmrepro.figures import SNAKEMAKE, figure_names
from gemmrepro.files import ROOT, read_json, write_atomic
from gemmrepro.inline_svg import Glyphs, inline_svg
from gemmrepro.measurements import (
    LIBRARY,
    Measurements,
    cubes,
    is_current,
    load,
    published_rows,
    select,
    toolkit_of,
)
from gemmrepro.rungs import level_name
from gemmrepro.verdicts import VERDICTS, difference, load_gates

TEMPLATES = ROOT / "reports" / "template"

NONE = "\N{EN DASH}"
"""Stands where a table has no value."""

BY = "\N{MULTIPLICATION SIGN}"

MARKS = {
    "reproduced": "✓",
    "partly": "◐",
    "not reproduced": "✗",
    "not testable here": NONE,
    "not measured": "○",
    "passed": "✓",
    "failed": "✗",
    "stale": "○",
    "not run": "○",
}
"""A sign beside each verdict, so that colour is never alone in telling it."""

TRANSFER_WORDS = {
    "as is": "carries over to any GPU as it stands",
    "ratio": "carries over as a ratio",
    "order": "carries over as an order",
    "none": "does not carry over",
}

LOOP_LINES = 320
"""Lines of a main loop that are shown; the rest is in the .sass file."""

BINS = 32

SAMPLE_KEYS = ("kernel", "toolkit", "dtype", "m", "n", "k", "cache")
"""What names a row's samples."""


@dataclass(frozen=True)
class Inputs:
    """Everything the paper is made of."""

    verdicts: Mapping[str, Any]
    measured: Mapping[str, Measurements]
    gates: Mapping[str, Mapping[str, Any]]
    builds: Mapping[str, Mapping[str, Mapping[str, Any]]]
    figures: Mapping[str, Sequence[dict[str, Any]]]
    glyphs: Glyphs
    locks: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    families: Sequence[str]
    out: Path
    measure_dir: Path
    build_dir: Path
    gates_dir: Path
    experiments: Mapping[str, Mapping[str, Results]] = field(default_factory=dict)


# --- small helpers --------------------------------------------------------------------------------------------------


def anchor(text: str) -> str:
    """An id for `text` that needs no escaping in a fragment."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def number(value: Any, digits: int = 3) -> str:
    """A number for reading; an en dash where there is none."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)) or value is pd.NA:
        return NONE
    return format_number(float(value), digits)


def time_text(microseconds: Any) -> str:
    """A time in the unit that reads best."""
    if microseconds is None or pd.isna(microseconds):
        return NONE
    value = float(microseconds)
    if value >= 1e4:
        return f"{number(value / 1e3, 4)} ms"
    return f"{number(value, 4)} µs"


def interval(low: Any, high: Any, digits: int = 3) -> str:
    """``[0.32, 0.34]``, or nothing where there is no interval."""
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return ""
    return f"[{number(low, digits)}, {number(high, digits)}]"


def size_text(row: Mapping[str, Any]) -> str:
    """4096 for a cube, the length for a vector, else all three."""
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    if m == n == k or (m == 1 and k == 1):
        return f"{n}" if n < 100_000 else f"{n:,}"
    return f"{m}{BY}{n}{BY}{k}"


def relative(path: Path, out: Path) -> str | None:
    """`path` as a link from the report, or None where either lies outside the repository."""
    path, out = path.resolve(), out.resolve()
    if not (path.is_relative_to(ROOT) and out.is_relative_to(ROOT)):
        return None
    return os.path.relpath(path, out.parent)


def highlighted(code: str, language: str = "cuda") -> Markup:
    """Source code as HTML spans with classes that begin with ``t-``."""
    formatter = HtmlFormatter(nowrap=True, classprefix="t-")
    return Markup(highlight(code, get_lexer_by_name(language), formatter).rstrip("\n"))


def pack(markup: str) -> str:
    """Markup as gzip in base64, which the page's script unpacks when its section is opened."""
    return base64.b64encode(gzip.compress(markup.strip().encode(), 9, mtime=0)).decode()


def histogram(times: np.ndarray, median: float | None = None) -> Markup:
    """A small histogram of single times as SVG, the slowest hundredth in its last bar; `median` is marked."""
    times = np.sort(times[np.isfinite(times)])
    if not len(times):
        return Markup("")
    low, high = float(times[0]), float(np.quantile(times, 0.99))
    if high <= low:
        low, high = low * 0.999, low * 1.001 or 1.0
    counts, _ = np.histogram(np.clip(times, low, high), bins=BINS, range=(low, high))
    heights = np.ceil(18 * counts / counts.max()).astype(int)
    path = "M0 20" + "".join(f"V{20 - height}h3" for height in heights) + "V20z"
    mark = ""
    if median is not None and np.isfinite(median):
        x = min(max((median - low) / (high - low), 0), 1) * 3 * BINS
        mark = f'<path class="mid" d="M{x:.0f} 0V20"/>'
    label = f"{len(times)} samples from {time_text(times[0])} to {time_text(times[-1])}"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {3 * BINS} 20" role="img" aria-label="{label}"><path d="{path}"/>{mark}</svg>'
    )


# --- pieces of the page ---------------------------------------------------------------------------------------------


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


def gather_checks(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Static checks, a line for each thing checked, with what each architecture showed.

    The n-th check of a name on one architecture is the same as the n-th on another, though its bound may differ.
    """
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    seen: Counter[tuple[Any, str]] = Counter()
    for check in checks:
        name, arch = str(check.get("check", "")), check.get("arch")
        line = lines.setdefault((name, seen[arch, name]), {"check": name, "why": {}, "expected": {}, "found": {}})
        seen[arch, name] += 1
        found = str(check.get("found", "")) + ("" if check.get("passed") else " (fails)")
        line["why"][str(check.get("why", ""))] = True
        line["expected"][str(check.get("expected", ""))] = True
        line["found"].setdefault(found, []).append(str(arch))
        line["passed"] = line.get("passed", True) and bool(check.get("passed"))
    return [
        {
            **line,
            "why": "; ".join(line["why"]),
            "expected": " or ".join(line["expected"]),
            "found": [
                {"found": found, "archs": "every target" if len(line["found"]) == 1 else ", ".join(archs)}
                for found, archs in line["found"].items()
            ],
        }
        for line in lines.values()
    ]


def _with_bound(case: Mapping[str, Any], dtype_out: str) -> dict[str, Any]:
    """A case with what it allows; a gate that judges by another bound writes gamma 0 beside an error."""
    gamma = case.get("gamma")
    by_another = gamma == 0 and bool(case.get("err_scaled_max")) and case.get("passed", True)
    return {**case, "allowed": None if by_another else allowed_error(gamma, dtype_out)}


def gate_view(gate: Mapping[str, Any] | None, dtype_out: str = "fp32") -> dict[str, Any]:
    """The gate of a kernel with this type of output, its static checks gathered by what they check."""
    if gate is None:
        return {"status": "not run", "toolkits": [], "open": ""}
    toolkits = []
    for name, verdict in sorted((gate.get("toolkits") or {}).items()):
        static = verdict.get("static") or {}
        checks = gather_checks(static.get("checks") or [])
        numeric = verdict.get("numeric") or {"status": "not run", "source": "none"}
        cases = [_with_bound(case, dtype_out) for case in numeric.get("cases") or []]
        worst = numeric.get("worst")
        worst = _with_bound(worst, dtype_out) if isinstance(worst, Mapping) else None
        toolkits.append(
            {
                "name": name,
                "static": "passed" if static.get("passed") else "failed",
                "checks": checks,
                "numeric": numeric.get("status") or "not run",
                "source": numeric.get("source") or "none",
                "gpu": numeric.get("gpu"),
                "reason": numeric.get("reason"),
                "worst": worst,
                "cases": cases,
                "failed": [case for case in cases if not case.get("passed")],
            }
        )
    # A gate passes as long as nothing failed, so what was not run must be said beside it.
    still = sorted({toolkit["numeric"] for toolkit in toolkits} - {"passed", "failed"})
    return {
        "status": "passed" if gate.get("passed") else "failed",
        "toolkits": toolkits,
        "open": " or ".join(still),
    }


def row_view(row: Mapping[str, Any], times: np.ndarray | None = None) -> dict[str, Any]:
    """A summary row as text, for the tables."""
    tflops_low = tflops_high = None
    if pd.notna(row["tflops"]) and pd.notna(row["ci_low_us"]) and row["ci_low_us"] and pd.notna(row["ci_high_us"]):
        tflops_low = row["tflops"] * row["median_us"] / row["ci_high_us"]
        tflops_high = row["tflops"] * row["median_us"] / row["ci_low_us"]
    return {
        "kernel": row["kernel"],
        "rung": row["rung"],
        "dtype": row["dtype"],
        "size": size_text(row),
        "n": int(row["n"]),
        "cache": row["cache"],
        "toolkit": row["toolkit"],
        "time": time_text(row["median_us"]),
        "time_interval": f"[{time_text(row['ci_low_us'])}, {time_text(row['ci_high_us'])}]",
        "tflops": number(row["tflops"]),
        "tflops_interval": interval(tflops_low, tflops_high, 4),
        "gbps": number(row["gbps"]),
        "ratio": number(row["ratio"]),
        "ratio_value": None if pd.isna(row["ratio"]) else float(row["ratio"]),
        "ratio_interval": interval(row["ratio_ci_low"], row["ratio_ci_high"], 4),
        "samples": number(row["samples"], 1) if pd.isna(row["samples"]) else f"{int(row['samples'])}",
        "error": number(row["err_scaled_max"]),
        "clock": number(row["clock_mhz"], 4),
        "power": number(row["power_w"]),
        "temperature": number(row["temp_c"]),
        "throttle": row["throttle"] or "none",
        "stale": row["status"] == "stale",
        "build_key": row["build_key"],
        "histogram": histogram(times, row["median_us"]) if times is not None else Markup(""),
    }


def samples_by_row(measured: Measurements) -> dict[tuple[Any, ...], np.ndarray]:
    """Single times in µs by SAMPLE_KEYS."""
    samples = measured.samples()
    if samples.empty:
        return {}
    missing = [column for column in [*SAMPLE_KEYS, "time_us"] if column not in samples.columns]
    if missing:
        raise UserError(f"{measured.samples_path} has no column {', '.join(missing)}; remeasure, or restore the file.")
    return {
        tuple(str(part) for part in key): group["time_us"].to_numpy(dtype=float)
        for key, group in samples.groupby(list(SAMPLE_KEYS), observed=True)
    }


def _times(samples: Mapping[tuple[Any, ...], np.ndarray], row: Mapping[str, Any]) -> np.ndarray | None:
    return samples.get(tuple(str(row[column]) for column in SAMPLE_KEYS))


def evidence_view(kernel: registry.Kernel, measured: Measurements) -> dict[str, Any] | None:
    """The counters that explain a kernel's gain, beside those of what it gained over; None where it names none.

    The size is the article's where both were counted there, else the largest where both were. A stale number is shown,
    and no change is made of it.
    """
    if not kernel.evidence:
        return None
    before = rungs.before(kernel)
    toolkit = toolkit_of(measured)
    counters = select(measured.counters, toolkit=toolkit)
    counters = counters[counters["metric"].isin(kernel.evidence) & counters["value"].notna()]
    counted = {each: set(select(counters, kernel=each)["n"]) for each in (kernel.id, before.id if before else "")}
    common = counted[kernel.id] & counted[before.id] if before else counted[kernel.id]
    sizes = sorted(int(n) for n in (common or counted[kernel.id]))
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]

    def cell(rows: pd.DataFrame, column: str, unit: str | None = None) -> dict[str, Any] | None:
        if rows.empty:
            return None
        current = rows[is_current(rows)]
        row = (current if len(current) else rows).iloc[-1]
        if pd.isna(row[column]):
            return None
        value = float(row[column])
        stale = row["status"] == "stale"
        return {"text": in_words(value, row["unit"] if unit is None else unit), "value": value, "stale": stale}

    def line(name: str, meaning: str, now: dict[str, Any] | None, then: dict[str, Any] | None) -> dict[str, Any]:
        sound = now and then and not (now["stale"] or then["stale"]) and then["value"]
        change = f"{BY} {number(now['value'] / then['value'])}" if sound else NONE
        return {"name": name, "meaning": meaning, "before": then, "here": now, "change": change}

    def timed(of: registry.Kernel | None, column: str, unit: str) -> dict[str, Any] | None:
        if of is None:
            return None
        rows = select(cubes(measured.summary), kernel=of.id, dtype=of.dtype_in, toolkit=toolkit, n=size, cache="warm")
        found = cell(rows, column, unit)
        return found and {**found, "text": f"{number(found['value'])}{unit and f' {unit}'}"}

    lines = [line("", "speed, warm", *(timed(of, "tflops", "TFLOP/s") for of in (kernel, before)))]
    if kernel.baseline and (before is None or (before.problem, before.baseline) == (kernel.problem, kernel.baseline)):
        # Timed in turn with one and the same baseline, in which a clock that changes cancels.
        meaning = "speed over that of the baseline, timed in turn"
        lines.append(line("", meaning, *(timed(of, "ratio", "") for of in (kernel, before))))
    whole = ", all launches of a run together" if kernel.steps else ""
    for metric in kernel.evidence:
        at = select(cubes(counters), metric=metric, n=size)
        then = cell(select(at, kernel=before.id), "value") if before else None
        lines.append(line(metric, METRICS.get(metric, "") + whole, cell(select(at, kernel=kernel.id), "value"), then))
    return {
        "before": {"name": level_name(before), "anchor": anchor(before.id)} if before else None,
        "size": size,
        "toolkit": toolkit,
        "lines": lines,
    }


def kernel_view(kernel: registry.Kernel, inputs: Inputs, samples: Mapping[Any, np.ndarray]) -> dict[str, Any]:
    """A kernel's section of the paper."""
    measured = inputs.measured[kernel.family]
    rows = measured.summary[measured.summary["kernel"] == kernel.id].sort_values(["m", "n", "k", "cache", "toolkit"])
    counters = measured.counters[measured.counters["kernel"] == kernel.id]
    source = kernel.source_path.read_text() if kernel.source_path.is_file() else ""
    path = f"kernels/{kernel.family}/{kernel.source}"
    gate = inputs.gates_dir / f"{kernel.id}.json"
    first = rungs.original(kernel)
    toolkits = [toolkit for toolkit in registry.TOOLKITS if toolkit in kernel.toolkits]
    commands = [
        (f"Compile it with {toolkit}", f"{SNAKEMAKE} --force results/build/{toolkit}/{kernel.id}.json")
        for toolkit in toolkits
    ]
    commands.append(("Judge it by its gates", f"{SNAKEMAKE} --force results/gates/{kernel.id}.json"))
    measured_by = [
        (family, results)
        for family, found in inputs.experiments.items()
        for results in found.values()
        if kernel.id in results.experiment.kernels
    ]
    if kernel.timed:
        target = f"results/measure/{kernel.family}/summary.csv"
        commands.append(("Measure its family (on a GPU)", f"{SNAKEMAKE} --config measure=live --force {target}"))
    commands += [
        (f"Run the experiment: {results.experiment.title}", experiment_command(family, results))
        for family, results in measured_by
    ]
    return {
        "id": kernel.id,
        "anchor": anchor(kernel.id),
        "name": level_name(kernel),
        "heading": rungs.heading(kernel),
        "idea": kernel.idea,
        "types": types_text(kernel),
        "timed": kernel.timed,
        "same_source": {"name": level_name(first), "anchor": anchor(first.id)} if first else None,
        "evidence": evidence_view(kernel, measured),
        "entries": list(dict.fromkeys(code.entry for code in kernel.codes)),
        "dynamic": dynamic_shared(kernel),
        "params": dict(kernel.params),
        "multiple_of": {axis.upper(): step for axis, step in kernel.multiple_of.items()},
        "gate": gate_view(inputs.gates.get(kernel.id), kernel.dtype_out),
        "scheme": kernel.error is not None,
        "gate_link": relative(gate, inputs.out) if gate.is_file() else None,
        "code": machine_code(kernel, inputs),
        "rows": [row_view(row, _times(samples, row)) for _, row in rows.iterrows()],
        "counters": [
            {
                "metric": row["metric"],
                "value": number(row["value"], 4),
                "unit": row["unit"],
                "size": size_text(row),
                "toolkit": row["toolkit"],
                "stale": row["status"] == "stale",
            }
            for _, row in counters.iterrows()
        ],
        "source": highlighted(source) if source else None,
        "source_lines": source.count("\n"),
        "source_path": path,
        "source_link": relative(kernel.source_path, inputs.out),
        "claims": [claim for claim in inputs.verdicts["claims"] if kernel.id in (claim.get("kernels") or [])],
        "commands": commands,
        "experiments": [
            {"anchor": f"experiment-{anchor(f'{family}.{results.experiment.name}')}", "title": results.experiment.title}
            for family, results in measured_by
        ],
    }


def dynamic_shared(kernel: registry.Kernel) -> str:
    """Bytes of shared memory that a GEMM's launch asks for, by entry point where they differ; empty where none.

    What cuTile's launches ask for is in the binaries, not in the registry.
    """
    shape = registry.Shape.cube(SIZE)
    if kernel.op != "gemm" or kernel.compiler == "cutile" or not kernel.takes(shape):
        return ""
    asked = {code.entry: code.launch(shape).shared_bytes for code in kernel.codes}
    if not any(asked.values()):
        return ""
    if len(set(asked.values())) == 1:
        return f"{asked[kernel.entry]:,}"
    return ", ".join(f"{entry} {count:,}" for entry, count in asked.items() if count)


def types_text(kernel: registry.Kernel) -> str:
    """What a GEMM multiplies, how it sums, and how its operands lie."""
    if kernel.op != "gemm":
        return ""
    types = kernel.dtype_in
    if (kernel.dtype_acc, kernel.dtype_out) != (types, types):
        types += f", sums in {kernel.dtype_acc}, output in {kernel.dtype_out}"
    order = "B column-major (K contiguous)" if kernel.layout == "row,col,row" else "all row-major"
    return f"{types}; {order}"


def experiment_command(family: str, results: Results) -> str:
    """What runs an experiment anew."""
    live = " --config measure=live" if results.experiment.device == "gpu" else ""
    return f"{SNAKEMAKE}{live} --force results/experiments/{family}/{results.experiment.name}.csv"


def experiment_view(family: str, results: Results, inputs: Inputs) -> dict[str, Any]:
    """An experiment's entry in its family's section: what it asks, what ran, and its rows by one toolkit as text."""
    experiment = results.experiment
    shown = results.rows[(results.rows["toolkit"] == results.toolkit) | (results.rows["toolkit"] == LIBRARY)]

    def cell(row: Mapping[str, Any], column: Column) -> str:
        found = row[column.name]
        if pd.isna(found):
            return NONE
        return str(found) if column.kind == "text" else str(int(found)) if column.kind == "integer" else number(found)

    ids = {kernel.id for each in inputs.families for kernel in registry.kernels(each)}
    return {
        "name": experiment.name,
        "anchor": f"experiment-{anchor(f'{family}.{experiment.name}')}",
        "title": experiment.title,
        "question": experiment.question,
        "columns": [(column.name, column.meaning, column.kind != "text") for column in experiment.columns],
        "rows": [
            {
                "kernel": row["kernel"],
                "known": row["kernel"] in ids,
                "stale": row["status"] == "stale",
                "cells": [cell(row, column) for column in experiment.columns],
            }
            for _, row in shown.iterrows()
        ],
        "total": len(results.rows),
        "stale": results.stale,
        "toolkit": results.toolkit,
        "source": results.source,
        "machine": results.machine,
        "on_cpu": experiment.device == "cpu",
        "date": str(results.run.get("date") or "")[:10],
        "skipped": results.run.get("skipped") or [],
        "link": relative(results.path, inputs.out) if results.path else None,
        "command": experiment_command(family, results),
    }


def published_of(kernel: registry.Kernel, published: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of `published` about a kernel by metric: where its article has it in several types, those of its own."""
    rows = [row for row in published if kernel.published_system and row["system"] == kernel.published_system]
    own = [row for row in rows if row["dtype"] == kernel.dtype_in]
    return {row["metric"]: row for row in own or rows}


def family_view(name: str, inputs: Inputs) -> dict[str, Any]:
    """A family's results."""
    family = registry.family(name)
    measured = inputs.measured[name]
    samples = samples_by_row(measured)
    kernels = [kernel_view(kernel, inputs, samples) for kernel in registry.kernels(name)]
    by_id = {kernel.id: kernel for kernel in registry.kernels(name)}
    published = [
        row for row in published_rows() if family.article and row["article"] == family.article and row["n"] == SIZE
    ]

    compared = rungs.compared(name)
    types = rungs.dtypes(name)
    rows = measured.summary
    gemm = cubes(rows) if compared else rows
    sizes = sorted({int(n) for n in gemm["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    gemm = select(gemm, n=size)
    caches = [cache for cache in ("warm", "cold") if (gemm["cache"] == cache).any()]
    toolkits = [toolkit for toolkit in registry.TOOLKITS if (gemm["toolkit"] == toolkit).any()]
    summary = []
    for kernel in compared:
        here = published_of(kernel, published)
        entry: dict[str, Any] = {
            "name": level_name(kernel),
            "anchor": anchor(kernel.id),
            "dtype": kernel.dtype_in,
            "published_rate": here.get("throughput"),
            "published_ratio": here.get("ratio_to_cublas"),
            "cells": [],
        }
        for toolkit in toolkits:
            for cache in caches:
                found = select(gemm, kernel=kernel.id, dtype=kernel.dtype_in, toolkit=toolkit, cache=cache)
                entry["cells"].append(row_view(found.iloc[-1]) if len(found) else None)
        summary.append(entry)
    baselines = []
    for baseline, dtype in dict.fromkeys((kernel.baseline, kernel.dtype_in) for kernel in compared):
        cells = []
        for _toolkit in toolkits:
            for cache in caches:
                found = select(gemm, kernel=baseline, dtype=dtype, toolkit=LIBRARY, cache=cache)
                cells.append(row_view(found.iloc[-1]) if len(found) else None)
        key = f"{baseline} {size}" if dtype == "fp32" else f"{baseline} {dtype} {size}"
        ran = (measured.run.get("baseline_kernels") or {}).get(key)
        baselines.append({"id": baseline, "dtype": dtype, "cells": cells, "ran": ran})
    everything = rows.sort_values(["m", "n", "k", "dtype", "cache", "toolkit"], kind="stable")
    claims = [claim for claim in inputs.verdicts["claims"] if claim["family"] == name]
    samples_link = relative(measured.samples_path, inputs.out) if measured.samples_path else None
    summary_path = inputs.measure_dir / name / "summary.csv"
    return {
        "name": name,
        "anchor": anchor(name),
        "title": family.title,
        "summary": family.summary,
        "article": family.article,
        "hardware": sorted(
            {
                row["hardware"]
                for entry in summary
                for row in (entry["published_rate"], entry["published_ratio"])
                if row is not None
            }
        ),
        "published": any(entry["published_rate"] or entry["published_ratio"] for entry in summary),
        "published_unit": " or ".join(
            sorted({entry["published_rate"]["unit"] for entry in summary if entry["published_rate"]})
        ),
        "types": types,
        "discussion": discussion.render(name, inputs.measured, anchor, inputs.experiments.get(name)),
        "experiments": [
            experiment_view(name, results, inputs) for results in inputs.experiments.get(name, {}).values()
        ],
        "measured": measured,
        # Kernels that experiments alone run have no rows, and each experiment says where its own come from.
        "timed": any(kernel.timed for kernel in registry.kernels(name)),
        "source": measured.source,
        "gpu": measured.gpu,
        "date": str(measured.run.get("date") or "")[:10],
        "size": size,
        "has_size": SIZE in sizes,
        "caches": caches,
        "toolkits": toolkits,
        "table": summary,
        "baselines": baselines,
        "rows": [
            {**row_view(row), "name": _name(by_id.get(row["kernel"]), row), "known": row["kernel"] in by_id}
            for _, row in everything.iterrows()
        ],
        "stale": int((rows["status"] == "stale").sum()),
        "kernels": kernels,
        "figures": inputs.figures.get(name, ()),
        "counts": {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in VERDICTS},
        "claims": len(claims),
        "samples_link": samples_link,
        "counters_link": relative(summary_path.with_name("counters.csv"), inputs.out)
        if summary_path.with_name("counters.csv").is_file()
        else None,
        "summary_link": relative(summary_path, inputs.out) if summary_path.is_file() else None,
        "counters": len(measured.counters),
    }


def _name(kernel: registry.Kernel | None, row: Mapping[str, Any]) -> str:
    if kernel is None:
        return "cuBLAS" if str(row["kernel"]).startswith("cublas") else str(row["kernel"])
    return level_name(kernel)


def headline(families: Sequence[Mapping[str, Any]], inputs: Inputs) -> list[dict[str, Any]]:
    """For each family of GEMMs: its fastest level at the article's size, and what was published."""
    found = []
    for family in families:
        cells = [
            (entry, cell)
            for entry in family["table"]
            for cell in entry["cells"]
            if cell
            and cell["cache"] == "warm"
            and not cell["stale"]
            and cell["ratio_value"] is not None
            and entry["dtype"] == family["types"][0]
        ]
        judged = [(entry, cell) for entry, cell in cells if cell["toolkit"] == family["toolkits"][0]] or cells
        if not judged:
            continue
        entry, cell = max(judged, key=lambda pair: pair[1]["ratio_value"])
        # Where a later kernel is ahead, what became of the article's own best stands beside it.
        named = [pair for pair in judged if pair[0]["published_ratio"]]
        own = max(named, key=lambda pair: pair[1]["ratio_value"], default=None)
        found.append({"family": family, "entry": entry, "cell": cell, "own": own if own and own[0] != entry else None})
    return found


def by_article(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many claims of each article have each verdict."""
    found = Counter((claim["article"], claim["verdict"]) for claim in judged)
    return [
        {"article": article, "counts": {verdict: found[article, verdict] for verdict in VERDICTS}}
        for article in dict.fromkeys(claim["article"] for claim in judged)
    ]


def disagreements(judged: Sequence[Mapping[str, Any]], published: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Of each family the claim that is not reproduced and whose value lies furthest from `published`, by its id.

    Only claims of one value beside one published figure can be compared so; the furthest of all comes first.
    """
    furthest: dict[str, dict[str, Any]] = {}
    for claim in judged:
        values = [each for each in claim["measured"] if each.get("judged")]
        figure = published.get(claim["id"])
        # Without a tolerance a claim is no figure beside a figure, but an order or a sign.
        if claim["verdict"] != "not reproduced" or not claim["tolerance"] or len(values) != 1 or not figure:
            continue
        value = values[0]["value"]
        if not value / figure > 0:
            continue
        percent = values[0]["unit"] == "ratio" and "%" in claim["statement"]
        found = {
            "claim": claim,
            "text": f"{number(100 * value)}%" if percent else number(value),
            "unit": "" if values[0]["unit"] == "ratio" else values[0]["unit"],
            "times": max(value / figure, figure / value),
            "difference": difference(value, figure),
        }
        if claim["family"] not in furthest or found["times"] > furthest[claim["family"]]["times"]:
            furthest[claim["family"]] = found
    return sorted(furthest.values(), key=lambda found: -math.log(found["times"]))


def recordings(families: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How and when the rows of each family were taken; several recordings may stand behind one page."""
    found = []
    for family in families:
        run = family["measured"].run
        if not family["rows"]:
            continue
        config = run.get("config") or {}
        found.append(
            {
                "family": family,
                "rows": len(family["rows"]),
                "gpu": family["gpu"],
                "source": family["source"],
                "date": str(run.get("date") or ""),
                "commit": str(run.get("git_commit") or ""),
                "toolkits": sorted((run.get("toolkits") or {}).items()),
                "caches": config.get("caches") or [],
                "rounds": config.get("rounds"),
                "interval": config.get("interval"),
                "driver": (run.get("gpu") or {}).get("driver"),
            }
        )
    return found


def baseline_text(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The GPU kernels that the baseline ran, as (what, name)."""
    return sorted((str(key), str(value)) for key, value in (run.get("baseline_kernels") or {}).items())


def machine_view(measured: Mapping[str, Measurements]) -> dict[str, Any]:
    """What is known of the GPU and its software, from the first family that was measured."""
    for each in measured.values():
        if each.run and len(each.summary):
            gpu = each.run.get("gpu") or {}
            size = {"l2_bytes": 1 << 20, "memory_bytes": 1 << 30}
            facts = [
                ("GPU", gpu.get("name")),
                ("Compute capability", gpu.get("compute_capability")),
                ("Multiprocessors", gpu.get("sm_count")),
                ("L2 cache", f"{gpu['l2_bytes'] / size['l2_bytes']:.0f} MiB" if gpu.get("l2_bytes") else None),
                (
                    "Memory",
                    f"{gpu['memory_bytes'] / size['memory_bytes']:.0f} GiB" if gpu.get("memory_bytes") else None,
                ),
                ("Driver", gpu.get("driver")),
                ("Highest SM clock", f"{gpu['clock_max_mhz']} MHz" if gpu.get("clock_max_mhz") else None),
                ("Memory clock", f"{gpu['memory_clock_mhz']} MHz" if gpu.get("memory_clock_mhz") else None),
                ("Power cap", f"{gpu['power_cap_w']:g} W" if gpu.get("power_cap_w") else None),
            ]
            return {
                "facts": [(name, value) for name, value in facts if value not in (None, "")],
                "libraries": sorted((each.run.get("libraries") or {}).items()),
                "toolkits": sorted((each.run.get("toolkits") or {}).items()),
                "baseline_kernels": sorted(pair for one in measured.values() for pair in baseline_text(one.run)),
                "commit": each.run.get("git_commit"),
                "date": each.run.get("date"),
                "config": each.run.get("config") or {},
            }
    empty = {"facts": [], "libraries": [], "toolkits": [], "baseline_kernels": [], "config": {}}
    return empty | {"commit": None, "date": None}


def limits(inputs: Inputs, families: Sequence[Mapping[str, Any]]) -> list[str]:
    """What this run in particular cannot say."""
    said = []
    if inputs.verdicts["source"] in ("recorded", "mixed"):
        said.append(
            "No GPU took part in this run. The times, and the numerical gates, were recorded earlier on "
            f"{inputs.verdicts['gpu']}; each is tied by its build key to the very binary that was compiled in this run."
        )
    on_cpu = {
        each["machine"]
        for family in families
        for each in family["experiments"]
        if each["on_cpu"] and each["source"] == "live"
    }
    if on_cpu:
        said.append(
            f"What needs no GPU was timed in this run on {', '.join(sorted(on_cpu))}, beside whatever else that "
            "machine did."
        )
    if inputs.verdicts["source"] == "none":
        said.append("Nothing was measured: there was neither a usable GPU nor a recording.")
    stale = sum(family["stale"] for family in families)
    if stale:
        said.append(
            f"{stale} rows are stale: the kernel, its flags or its toolkit changed after they were recorded. They are "
            "struck out and support no claim."
        )
    if any(family["table"] and family["source"] != "none" and not family["counters"] for family in families):
        said.append(
            "The profiler could not be used, so there are no hardware counters: counts of loads are read off the "
            "machine code, memory traffic is unknown, and claims about it are not measured."
        )
    stale = sum(each["stale"] for family in families for each in family["experiments"])
    if stale:
        said.append(
            f"{stale} rows of experiments are stale: a kernel, or what the experiment does, changed after they were "
            "recorded. They are struck out and support no claim."
        )
    open_gates = sorted(
        {
            kernel["name"]
            for family in families
            for kernel in family["kernels"]
            for toolkit in kernel["gate"]["toolkits"]
            if toolkit["numeric"] not in ("passed", "failed")
        }
    )
    if open_gates:
        said.append(f"The numerical gate has not been run for today's binaries of {', '.join(open_gates)}.")
    measured = [family for family in families if family["table"] and family["source"] != "none"]
    if any(not family["has_size"] for family in measured):
        said.append(f"The article's size, {SIZE}, was not part of this sweep, so claims about it are not measured.")
    skipped = [entry for each in inputs.measured.values() for entry in each.run.get("skipped") or []]
    for entry in skipped[:8]:
        said.append(f"{entry.get('kernel')}, built by {entry.get('toolkit')}, was not timed: {entry.get('reason')}")
    if len(skipped) > 8:
        said.append(f"{len(skipped) - 8} more were not timed; run.json lists them.")
    if not inputs.locks:
        said.append("This run used no containers, so the versions of its tools are not recorded beyond those listed.")
    return said


# --- reading the inputs ---------------------------------------------------------------------------------------------


def read_figures(folder: Path, family: str, glyphs: Glyphs, out: Path) -> list[dict[str, Any]]:
    """The family's figures as inline SVG with their captions; one that was not drawn has no SVG."""
    found = []
    for name in figure_names(family):
        svg, about = folder / family / f"{name}.svg", folder / family / f"{name}.json"
        entry: dict[str, Any] = {
            "name": name,
            "anchor": f"figure-{anchor(family)}-{name}",
            "title": name,
            "caption": "This figure was not drawn.",
            "command": f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg",
            "svg": None,
            "link": relative(about, out) if about.is_file() else None,
            "columns": [],
            "table": [],
        }
        if svg.is_file() and about.is_file():
            entry |= read_json(about, "the figure's sidecar", "draw the figures again")
            entry["svg"] = inline_svg(
                svg.read_text(), f"{anchor(family)}-{name}", entry["title"], entry.get("alt", ""), glyphs
            )
        found.append(entry)
    return found


def read_inputs(arguments: argparse.Namespace) -> Inputs:
    """Read every input. Raises UserError where a needed one is missing or wrong."""
    verdicts = read_json(arguments.verdicts, "the verdicts", "make them with gemmrepro.verdicts")
    config = read_json(arguments.config, "the configuration", "write it, or let the workflow do so")
    families = [name for name in config.get("families") or registry.family_names()]
    kernels = [kernel for name in families for kernel in registry.kernels(name)]
    builds: dict[str, dict[str, Mapping[str, Any]]] = {}
    for kernel in kernels:
        for toolkit in kernel.toolkits:
            path = arguments.build / toolkit / f"{kernel.id}.json"
            if path.is_file():
                builds.setdefault(kernel.id, {})[toolkit] = read_json(path, "the build record", "build it again")
    locks = [
        read_json(path, "the image's lock file", "build the image again")
        for path in (sorted(arguments.images.glob("*.lock.json")) if arguments.images.is_dir() else [])
    ]
    glyphs = Glyphs()
    return Inputs(
        verdicts=verdicts,
        measured={name: load(arguments.measure, name) for name in families},
        gates=load_gates(arguments.gates, [kernel.id for kernel in kernels]),
        builds=builds,
        figures={name: read_figures(arguments.figures, name, glyphs, arguments.out) for name in families},
        glyphs=glyphs,
        locks=locks,
        config=config,
        families=families,
        out=arguments.out,
        measure_dir=arguments.measure,
        build_dir=arguments.build,
        gates_dir=arguments.gates,
        experiments={name: experiment_rows.load(arguments.experiments, name) for name in families},
    )


def render(inputs: Inputs) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        **{"anchor": anchor, "number": number, "as_published": as_published, "pack": pack, "listed": listed}
    }
    families = [family_view(name, inputs) for name in inputs.families]
    for place, figure in enumerate([figure for family in families for figure in family["figures"]], start=1):
        figure["number"] = place
    gates = [kernel["gate"] for family in families for kernel in family["kernels"]]
    printed = {claim.id: claim for claim in claims.load(tuple(inputs.families))}
    page = environment.get_template("paper.html.j2").render(
        style=Markup((TEMPLATES / "paper.css").read_text()),
        script=Markup((TEMPLATES / "paper.js").read_text()),
        verdicts=inputs.verdicts,
        counts={verdict: inputs.verdicts["counts"].get(verdict, 0) for verdict in VERDICTS},
        marks=MARKS,
        transfer_words=TRANSFER_WORDS,
        families=families,
        headlines=headline(families, inputs),
        gates={
            "kernels": len(gates),
            **{
                kind: sum(
                    bool(gate["toolkits"]) and all(t[kind] == "passed" for t in gate["toolkits"]) for gate in gates
                )
                for kind in ("static", "numeric")
            },
            "failed": sum(gate["status"] == "failed" for gate in gates),
        },
        machine=machine_view(inputs.measured),
        locks=inputs.locks,
        config=inputs.config,
        recordings=recordings(families),
        limits=limits(inputs, families),
        by_article=by_article(inputs.verdicts["claims"]),
        disagreements=disagreements(inputs.verdicts["claims"], {name: each.value for name, each in printed.items()}),
        figures={name: each.figure for name, each in printed.items()},
        glyphs=inputs.glyphs.markup(),
        articles=sorted({claim["article"] for claim in inputs.verdicts["claims"]}),
        snakemake=SNAKEMAKE,
        size=SIZE,
    )
    return "\n".join(line.rstrip() for line in page.splitlines()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the report.")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows a family")
    parser.add_argument("--gates", type=Path, required=True, help="folder with one gate verdict a kernel")
    parser.add_argument("--build", type=Path, required=True, help="folder with the build records")
    parser.add_argument("--figures", type=Path, required=True, help="folder with one folder of figures a family")
    parser.add_argument("--images", type=Path, required=True, help="folder with the images' lock files; may be empty")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments a family")
    parser.add_argument("--config", type=Path, required=True, help="the whole configuration as JSON")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    page = render(read_inputs(arguments))
    write_atomic(arguments.out, page)
    print(f"wrote {arguments.out}, {len(page.encode()) / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    run_stage(main)
