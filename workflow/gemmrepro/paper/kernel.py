"""One kernel's section of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from gemmrepro import operations, registry
from gemmrepro.core import names
from gemmrepro.core.names import METRICS, SIZE, SNAKEMAKE
from gemmrepro.core.text import in_words
from gemmrepro.errors import UserError
from gemmrepro.gates.bounds import allowed_error
from gemmrepro.measure.rows import Measurements, cubes, is_current, select, toolkit_of
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.machine_code import machine_code
from gemmrepro.paper.text import (
    BY,
    NONE,
    anchor,
    experiment_command,
    highlighted,
    histogram,
    interval,
    number,
    relative,
    size_text,
    time_text,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import heading, level_name, original

SAMPLE_KEYS = ("kernel", "toolkit", "dtype", "m", "n", "k", "cache")
"""What names a row's samples."""


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
    before = ladders.before(kernel)
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
    first = original(kernel)
    toolkits = [toolkit for toolkit in names.TOOLKITS if toolkit in kernel.toolkits]
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
        "heading": heading(kernel),
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
    shape = operations.Shape.cube(SIZE)
    if not kernel.problem.operation.matrix_product or kernel.compiler == "cutile" or not kernel.takes(shape):
        return ""
    asked = {code.entry: code.launch(shape).shared_bytes for code in kernel.codes}
    if not any(asked.values()):
        return ""
    if len(set(asked.values())) == 1:
        return f"{asked[kernel.entry]:,}"
    return ", ".join(f"{entry} {count:,}" for entry, count in asked.items() if count)


def types_text(kernel: registry.Kernel) -> str:
    """What a GEMM multiplies, how it sums, and how its operands lie."""
    if not kernel.problem.operation.matrix_product:
        return ""
    types = kernel.dtype_in
    if (kernel.dtype_acc, kernel.dtype_out) != (types, types):
        types += f", sums in {kernel.dtype_acc}, output in {kernel.dtype_out}"
    order = "B column-major (K contiguous)" if kernel.problem.b_is_k_major else "all row-major"
    return f"{types}; {order}"
