"""What a reader is shown at a click on a number: every row of every sweep, as a script that the pages load then.

A page that was opened from disk may not fetch a JSON file, but may load a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.paper.baselines import BaselinePage
from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.kernel import KernelView
from gemmrepro.paper.rows import RowView

SCRIPT = "data/evidence.js"
"""Its place in the bundle."""


def evidence_script(families: Sequence[FamilyView], baselines: Sequence[BaselinePage]) -> str:
    """The script: ``gemmreproEvidence({kernels: …, rows: …, experiments: …})``."""
    kernels: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    experiments: dict[str, Any] = {}
    for family in families:
        command = f"{SNAKEMAKE} --config measure=live --force results/measure/{family.name}/summary.csv"
        for kernel in family.kernels:
            kernels[kernel.anchor] = [kernel.heading, _source(kernel), _listings(kernel), command]
            rows |= _rows(kernel.anchor, kernel.rows)
        for each in family.experiments:
            experiments[each.anchor] = [each.title, each.command, each.date, each.machine]
    for baseline in baselines:
        for part in baseline.families:
            key = f"{baseline.anchor}-{part.family}"
            command = f"{SNAKEMAKE} --config measure=live --force results/measure/{part.family}/summary.csv"
            kernels[key] = [f"{baseline.id}, timed with {part.family}", "", [], command]
            rows |= _rows(key, part.rows)
    told = {"kernels": kernels, "rows": rows, "experiments": experiments}
    return f"gemmreproEvidence({json.dumps(told, separators=(',', ':'), ensure_ascii=False)});\n"


def _source(kernel: KernelView) -> str:
    return kernel.source.link or ""


def _listings(kernel: KernelView) -> list[list[str]]:
    return [[toolkit, place] for toolkit, place in kernel.code.listings.items()]


def _rows(kernel: str, rows: Iterable[RowView]) -> dict[str, list[Any]]:
    return {
        row.anchor: [
            *(kernel, f"{row.dtype} {row.size}, {row.cache}, {row.toolkit}", row.time, row.time_interval),
            *(row.rate, row.rate_unit, row.tflops_interval, row.ratio, row.ratio_interval, row.samples, row.rounds),
            *(row.clock, row.power, int(row.stale)),
        ]
        for row in rows
    }
