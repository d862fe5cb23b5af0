"""One family's section of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.names import LIBRARY, SIZE
from gemmrepro.experiments import Column
from gemmrepro.experiments.results import Results
from gemmrepro.judge.published import published_rows
from gemmrepro.judge.rules import VERDICTS
from gemmrepro.measure.rows import cubes, select
from gemmrepro.paper import discussion
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.kernel import kernel_view, row_view, samples_by_row
from gemmrepro.paper.text import NONE, anchor, experiment_command, number, relative
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, level_name


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

    compared = ladders.compared(name)
    types = dtypes(name)
    rows = measured.summary
    gemm = cubes(rows) if compared else rows
    sizes = sorted({int(n) for n in gemm["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    gemm = select(gemm, n=size)
    caches = [cache for cache in ("warm", "cold") if (gemm["cache"] == cache).any()]
    toolkits = [toolkit for toolkit in names.TOOLKITS if (gemm["toolkit"] == toolkit).any()]
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
