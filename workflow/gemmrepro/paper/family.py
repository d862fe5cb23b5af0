"""One family's section of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import COVERED, VERDICTS
from gemmrepro.measure.regimes import FILES as REGIME_FILES
from gemmrepro.paper import findings
from gemmrepro.paper.accuracy import Accuracies
from gemmrepro.paper.experiments import ExperimentView, experiment_view
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.findings import Findings
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.kernel import KernelView, kernel_view
from gemmrepro.paper.machine import Runnable, runnable
from gemmrepro.paper.rows import RowView, row_view, samples_by_row
from gemmrepro.paper.table import TableView, table_view
from gemmrepro.paper.text import anchor
from gemmrepro.registry.ladders import level_name


@dataclass(frozen=True)
class NamedRow:
    """A summary row under its level's name; `known` if the page has a section for its kernel."""

    name: str
    known: bool
    row: RowView


@dataclass(frozen=True)
class FamilyView:
    """A family's results.

    `timed` is false of a family whose kernels only experiments run; `source` is ``live``, ``recorded`` or ``none``;
    `stale` counts stale rows, `claims` the family's claims, `statements` those that an article states, less
    those that others cover, and `counts` the latter by verdict. A family of which nothing was measured has no
    figures; `command` measures it. `runnable` counts its kernels by what the GPU lacks for them.
    """

    name: str
    anchor: str
    title: str
    summary: str
    article: str | None
    timed: bool
    source: str
    gpu: str | None
    date: str
    claims: int
    statements: int
    counts: Mapping[str, int]
    figures: tuple[FigureView, ...]
    experiments: tuple[ExperimentView, ...]
    findings: Findings | None
    table: TableView
    rows: tuple[NamedRow, ...]
    stale: int
    has_counters: bool
    kernels: tuple[KernelView, ...]
    summary_link: str | None
    counters_link: str | None
    samples_link: str | None
    run_link: str | None
    alone_links: Mapping[str, str]
    runnable: Runnable
    run: Mapping[str, Any]

    @property
    def unmeasured(self) -> bool:
        """Whether its kernels are timed, and neither rows nor results of experiments are there."""
        return _unmeasured(self.timed, self.rows, self.experiments)

    @property
    def rounds(self) -> int | None:
        """How many times its sweep returned to each point."""
        return (self.run.get("config") or {}).get("rounds")

    @property
    def command(self) -> str:
        return f"{SNAKEMAKE} --config measure=live --force results/measure/{self.name}/summary.csv"


def _unmeasured(timed: bool, rows: Sequence[NamedRow], experiments: Sequence[ExperimentView]) -> bool:
    return timed and not rows and not any(each.total for each in experiments)


def family_view(name: str, inputs: Inputs) -> FamilyView:
    """A family's section of the paper."""
    family = registry.family(name)
    measured = inputs.measured[name]
    samples = samples_by_row(measured)
    experiments = inputs.experiments.get(name, {})
    claims = [claim for claim in inputs.verdicts.claims if claim.family == name]
    verdicts = Counter(claim.verdict for claim in claims if claim.register == ARTICLE)
    summary = inputs.measure_dir / name / "summary.csv"
    counters = summary.with_name("counters.csv")
    timed, rows = any(kernel.timing.timed for kernel in registry.kernels(name)), _all_rows(name, inputs)
    views = tuple(experiment_view(name, results, inputs) for results in experiments.values())
    told = not _unmeasured(timed, rows, views)
    return FamilyView(
        name=name,
        anchor=anchor(name),
        title=family.title,
        summary=family.summary,
        article=family.article,
        timed=timed,
        source=measured.source,
        gpu=measured.gpu,
        date=str(measured.run.get("date") or "")[:10],
        claims=len(claims),
        statements=verdicts.total() - verdicts[COVERED],
        counts={verdict: verdicts[verdict] for verdict in VERDICTS if verdict != COVERED},
        figures=tuple(inputs.figures.get(name, ())) if told else (),
        experiments=views,
        findings=findings.render(name, inputs.rows.by_id),
        table=table_view(family, measured, Accuracies.of(inputs.experiments), inputs.ceilings),
        rows=rows,
        stale=int((measured.summary["status"] == "stale").sum()),
        has_counters=len(measured.counters) > 0,
        kernels=tuple(kernel_view(kernel, inputs, samples) for kernel in registry.kernels(name)),
        summary_link=inputs.files.add(summary, f"data/{name}/summary.csv"),
        counters_link=inputs.files.add(counters, f"data/{name}/counters.csv"),
        samples_link=inputs.files.add(measured.samples_path, f"data/{name}/samples.parquet"),
        run_link=inputs.files.add(summary.with_name("run.json"), f"data/{name}/run.json"),
        alone_links=_alone_links(name, inputs),
        runnable=runnable([name], inputs.measured.values()),
        run=measured.run,
    )


def _alone_links(name: str, inputs: Inputs) -> dict[str, str]:
    """The places of the files of its regimes by their names, if it has rows there."""
    if inputs.regimes_dir is None or name not in inputs.regimes or inputs.regimes[name].summary.empty:
        return {}
    added = {
        file: inputs.files.add(inputs.regimes_dir / name / file, f"data/{name}/regimes/{file}") for file in REGIME_FILES
    }
    return {file: place for file, place in added.items() if place}


def _all_rows(family: str, inputs: Inputs) -> tuple[NamedRow, ...]:
    kernels = {kernel.id: kernel for kernel in registry.kernels(family)}
    rows = inputs.measured[family].summary
    rows = rows.sort_values(["m", "n", "k", "dtype", "cache", "toolkit"], kind="stable")
    return tuple(
        NamedRow(
            _row_name(kernels.get(row["kernel"]), row),
            row["kernel"] in kernels,
            row_view(row, ceilings=inputs.ceilings),
        )
        for _, row in rows.iterrows()
    )


def _row_name(kernel: registry.Kernel | None, row: Mapping[str, Any]) -> str:
    if kernel is None:
        return "cuBLAS" if str(row["kernel"]).startswith("cublas") else str(row["kernel"])
    return level_name(kernel)
