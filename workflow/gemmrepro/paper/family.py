"""The pages of families, and of the baselines that they time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from gemmrepro.paper.rows import RowView, row_view, samples_by_row, times_of
from gemmrepro.paper.table import TableView, table_view
from gemmrepro.paper.text import anchor
from gemmrepro.registry.ladders import level_name


@dataclass(frozen=True)
class FamilyView:
    """A family's results.

    Attributes:
        timed: false of a family whose kernels only experiments run.
        source: ``live``, ``recorded`` or ``none``.
        claims, statements: how many claims are about it, and how many of them an article states, less those that
            others cover; `counts` holds the latter by verdict.
        figures: none of a family of which nothing was measured.
        rows: how many rows of its sweep there are; `own_rows` are those of its kernels, with their levels' names.
        stale: how many rows are stale.
        links: the files of its sweep by name, `alone_links` those of its regimes.
        runnable: its kernels counted by what the GPU lacks for them.
        run: the sweep's run.json.
    """

    name: str
    anchor: str
    title: str
    summary: str
    article: str | None
    timed: bool
    source: str
    gpu: str | None
    claims: int
    statements: int
    counts: Mapping[str, int]
    figures: Sequence[FigureView]
    experiments: Sequence[ExperimentView]
    findings: Findings | None
    table: TableView
    rows: int
    own_rows: Sequence[tuple[str, RowView]]
    stale: int
    has_counters: bool
    kernels: Sequence[KernelView]
    links: Mapping[str, str]
    alone_links: Mapping[str, str]
    runnable: Runnable
    run: Mapping[str, Any]

    @property
    def unmeasured(self) -> bool:
        """Whether its kernels are timed, and neither rows nor results of experiments are there."""
        return self.timed and not self.rows and not any(len(each.results.rows) for each in self.experiments)

    @property
    def date(self) -> str:
        """The day of its measurement."""
        return str(self.run.get("date") or "")[:10]

    @property
    def rounds(self) -> int | None:
        """How many times its sweep returned to each point."""
        return (self.run.get("config") or {}).get("rounds")

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"{SNAKEMAKE} --config measure=live --force results/measure/{self.name}/summary.csv"


def family_view(name: str, inputs: Inputs) -> FamilyView:
    """A family's page."""
    family = registry.family(name)
    measured = inputs.measured[name]
    samples = samples_by_row(measured)
    claims = [claim for claim in inputs.verdicts.claims if claim.family == name]
    verdicts = Counter(claim.verdict for claim in claims if claim.register == ARTICLE)
    kernels = registry.kernels(name)
    has_regimes = name in inputs.regimes and not inputs.regimes[name].summary.empty
    return FamilyView(
        name=name,
        anchor=anchor(name),
        title=family.title,
        summary=family.summary,
        article=family.article,
        timed=any(kernel.timing.timed for kernel in kernels),
        source=measured.source,
        gpu=measured.gpu,
        claims=len(claims),
        statements=verdicts.total() - verdicts[COVERED],
        counts={verdict: verdicts[verdict] for verdict in VERDICTS if verdict != COVERED},
        figures=inputs.figures.get(name, ()),
        experiments=[experiment_view(name, results, inputs) for results in inputs.experiments.get(name, {}).values()],
        findings=findings.render(name, inputs.rows.by_id),
        table=table_view(family, measured, Accuracies.of(inputs.experiments), inputs.ceilings),
        rows=len(measured.summary),
        own_rows=_own_rows(name, inputs),
        stale=int((measured.summary["status"] == "stale").sum()),
        has_counters=len(measured.counters) > 0,
        kernels=[kernel_view(kernel, inputs, samples) for kernel in kernels],
        links=_links(inputs, inputs.measure_dir, ("summary.csv", "samples.parquet", "counters.csv", "run.json"), name),
        alone_links=_links(inputs, inputs.regimes_dir or Path(), REGIME_FILES if has_regimes else (), name, "regimes/"),
        runnable=runnable([name], inputs.measured.values()),
        run=measured.run,
    )


def _links(inputs: Inputs, folder: Path, files: Sequence[str], family: str, within: str = "") -> dict[str, str]:
    """The places in the report of those of a family's `files` in `folder` that are there, by their names."""
    added = {file: inputs.files.add(folder / family / file, f"data/{family}/{within}{file}") for file in files}
    return {file: place for file, place in added.items() if place}


def _own_rows(family: str, inputs: Inputs) -> list[tuple[str, RowView]]:
    """The rows of the family's kernels, each with its level's name."""
    kernels = {kernel.id: kernel for kernel in registry.kernels(family)}
    rows = inputs.measured[family].summary
    rows = rows[rows["kernel"].isin(kernels)]
    rows = rows.sort_values(["m", "n", "k", "dtype", "cache", "toolkit"], kind="stable")
    return [(level_name(kernels[row["kernel"]]), row_view(row, ceilings=inputs.ceilings)) for _, row in rows.iterrows()]


@dataclass(frozen=True)
class BaselineRows:
    """What one family timed of a baseline; `ran` pairs a size or type with the GPU kernel that was launched."""

    family: str
    rows: Sequence[RowView]
    ran: Sequence[tuple[str, str]]


def baseline_pages(inputs: Inputs) -> dict[str, list[BaselineRows]]:
    """The rows of every baseline by its name, in each family that timed it."""
    kernels = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    pages: dict[str, list[BaselineRows]] = {}
    for family, measured in inputs.measured.items():
        summary = measured.summary[~measured.summary["kernel"].isin(kernels)]
        samples = samples_by_row(measured) if len(summary) else {}
        ran = sorted((measured.run.get("baseline_kernels") or {}).items())
        for name, rows in summary.groupby("kernel", sort=True):
            rows = rows.sort_values(["dtype", "m", "n", "k", "cache", "toolkit"], kind="stable")
            views = [row_view(row, times_of(samples, row), inputs.ceilings) for _, row in rows.iterrows()]
            launched = [(call, str(kernel)) for call, kernel in ran if call.split()[0] == name]
            pages.setdefault(str(name), []).append(BaselineRows(family, views, launched))
    return dict(sorted(pages.items()))
