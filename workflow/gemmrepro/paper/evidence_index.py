"""What a reader is shown at a click on a number: all rows of sweeps and regimes, as a script that the pages load then.

A page that was opened from disk may not fetch a JSON file, but may load a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.judge.metrics import metric_rules
from gemmrepro.measure.regimes import SAMPLES
from gemmrepro.paper.baselines import BaselinePage
from gemmrepro.paper.experiments import ExperimentView
from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.kernel import KernelView
from gemmrepro.paper.rows import RowView
from gemmrepro.paper.text import NONE, anchor

SCRIPT = "data/evidence.js"
"""Its place in the bundle."""


def evidence_script(
    families: Sequence[FamilyView],
    baselines: Sequence[BaselinePage],
    findings: Mapping[str, FigureView],
    metrics: Mapping[str, str],
) -> str:
    """The script: ``gemmreproEvidence({kernels, rows, experiments, figures, claims, rules})``.

    A kernel is its title, source, listings, command, page and samples; the pages' script unpacks the others.

    Args:
        metrics: the metric of each claim by its id on the page.
    """
    kernels: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    experiments: dict[str, Any] = {}
    figures = {figure.anchor: _figure(figure) for figure in findings.values()}
    for family in families:
        page, samples = f"families/{family.name}.html", family.samples_link or ""
        for kernel in family.kernels:
            own = f"kernels/{kernel.id}.html"
            command = _measure(family.name) if kernel.timed else _gate(kernel.id)
            kernels[kernel.anchor] = [kernel.heading, _source(kernel), _listings(kernel), command, own, samples]
            rows |= _rows(kernel.anchor, kernel.rows)
            if kernel.alone:
                key, command = f"{kernel.anchor}-alone", _measure(family.name, "regimes")
                held = family.alone_links.get(SAMPLES, "")
                kernels[key] = [kernel.heading, _source(kernel), _listings(kernel), command, own, held]
                rows |= {each.row.anchor: _row(key, each.row, each.regime, each.blocks) for each in kernel.alone}
        experiments |= {each.anchor: _experiment(each, page) for each in family.experiments}
        figures |= {figure.anchor: _figure(figure) for figure in family.figures}
    links = {family.name: family.samples_link or "" for family in families}
    for baseline in baselines:
        for part in baseline.families:
            key = f"{baseline.anchor}-{part.family}"
            title, own = f"{baseline.id}, timed with {part.family}", f"baselines/{baseline.id}.html"
            kernels[key] = [title, "", [], _measure(part.family), own, links.get(part.family, "")]
            rows |= _rows(key, part.rows)
    rules = {word: rule.replace("`", "") for word, rule in metric_rules()}
    told = {"kernels": kernels, "rows": rows, "experiments": experiments, "figures": figures}
    told |= {"claims": dict(metrics), "rules": rules}
    return f"gemmreproEvidence({json.dumps(told, separators=(',', ':'), ensure_ascii=False)});\n"


def _measure(family: str, stage: str = "measure") -> str:
    return f"{SNAKEMAKE} --config measure=live --force results/{stage}/{family}/summary.csv"


def _gate(kernel: str) -> str:
    return f"{SNAKEMAKE} --force results/gates/{kernel}.json"


def _source(kernel: KernelView) -> str:
    return kernel.source.link or ""


def _listings(kernel: KernelView) -> list[list[str]]:
    return [[toolkit, place] for toolkit, place in kernel.code.listings.items()]


def _experiment(each: ExperimentView, page: str) -> list[Any]:
    """Title, command, date, machine, page, rows as CSV, the program's source, and the kernel of each row."""
    kernels: dict[str, list[int]] = {}
    for row in each.rows:
        kernels.setdefault(anchor(row.kernel), []).append(int(row.anchor.rsplit("-", 1)[1]))
    return [each.title, each.command, each.date, each.machine, page, each.link or "", each.source_link or "", kernels]


def _figure(figure: FigureView) -> list[Any]:
    """Title, command, CSV, and the ids of the rows that it draws."""
    return [figure.title, figure.command, figure.csv or "", list(figure.rows)]


def _rows(kernel: str, rows: Iterable[RowView]) -> dict[str, list[Any]]:
    return {
        row.anchor: _row(kernel, row, row.cache, NONE if row.rounds == NONE else f"{row.rounds} rounds") for row in rows
    }


def _row(kernel: str, row: RowView, use: str, parts: str) -> list[Any]:
    """A row; `use` is the state of the cache or the regime, `parts` the rounds or blocks of its samples."""
    return [
        *(kernel, f"{row.dtype} {row.size}, {use}, {row.toolkit}", row.time, row.time_interval),
        *(row.rate, row.rate_unit, row.tflops_interval, row.ratio, row.ratio_interval, row.samples),
        *(parts, row.clock, row.power, int(row.stale), use),
    ]
