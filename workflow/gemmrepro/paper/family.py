"""The pages of families, with their tables and experiments, and of the baselines that they time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.names import LIBRARY, SIZE, SNAKEMAKE
from gemmrepro.core.text import listed
from gemmrepro.experiments import Column, path_of
from gemmrepro.experiments.results import Results
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.published import published_rows
from gemmrepro.judge.rules import COVERED, VERDICTS
from gemmrepro.measure.regimes import FILES as REGIME_FILES
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.paper import findings
from gemmrepro.paper.claims import PublishedView
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.findings import Findings
from gemmrepro.paper.gpus import Runnable, runnable
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.kernel import KernelView, kernel_view
from gemmrepro.paper.regimes import TYPE, Accuracies, ErrorView
from gemmrepro.paper.text import (
    NONE,
    RowView,
    anchor,
    experiment_anchor,
    experiment_command,
    experiment_row_anchor,
    number,
    row_view,
    samples_by_row,
    times_of,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, level_name

CACHES = ("warm", "cold")


@dataclass(frozen=True)
class LevelView:
    """A level: its figures in print, a cell for each toolkit and cache state, and its error if it emulates FP64."""

    name: str
    anchor: str
    dtype: str
    published_rate: PublishedView | None
    published_ratio: PublishedView | None
    cells: tuple[RowView | None, ...]
    error: ErrorView | None = None

    @property
    def measured(self) -> bool:
        """Whether any of its cells has a row."""
        return any(self.cells)


@dataclass(frozen=True)
class BaselineView:
    """A baseline in a type; `ran` is the GPU kernel it launched.

    `cells` holds its throughput for each toolkit and cache state as it was timed beside the levels, from the lowest to
    the highest: a clock that moves during the sweep moves both, so one value beside all levels would mislead.
    """

    id: str
    dtype: str
    cells: tuple[str, ...]
    ran: str | None
    error: ErrorView | None = None


@dataclass(frozen=True)
class TableView:
    """The levels at `size`; `has_size` if the article's size was measured."""

    types: tuple[str, ...]
    size: int
    has_size: bool
    caches: tuple[str, ...]
    toolkits: tuple[str, ...]
    levels: tuple[LevelView, ...]
    baselines: tuple[BaselineView, ...]

    @property
    def emulates(self) -> bool:
        """Whether the error of any level is known, as that of schemes for FP64 is."""
        return any(level.error for level in self.levels)

    @property
    def _published(self) -> list[PublishedView]:
        return [row for level in self.levels for row in (level.published_rate, level.published_ratio) if row]

    @property
    def published(self) -> bool:
        """Whether the article gives a figure for any level."""
        return bool(self._published)

    @property
    def hardware(self) -> list[str]:
        """The GPUs that the article's figures were measured on."""
        return sorted({row.hardware for row in self._published})

    @property
    def published_unit(self) -> str:
        """The unit of the article's throughputs."""
        return " or ".join(sorted({level.published_rate.unit for level in self.levels if level.published_rate}))


def published_of(kernel: registry.Kernel, published: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of `published` about a kernel by metric: only those of its type, if the article has several."""
    rows = [
        row for row in published if kernel.story.published_system and row["system"] == kernel.story.published_system
    ]
    own = [row for row in rows if row["dtype"] == kernel.compute.dtype_in]
    return {row["metric"]: row for row in own or rows}


def _in_print(family: registry.Family) -> list[dict[str, Any]]:
    """What the family's article prints at SIZE."""
    return [row for row in published_rows() if family.article and row["article"] == family.article and row["n"] == SIZE]


def table_view(
    family: registry.Family, measured: Measurements, accuracies: Accuracies, ceilings: Mapping[str, float]
) -> TableView:
    """The table of a family, at the article's size if it was measured, else at the largest that was."""
    compared = ladders.compared(family.name)
    cubic = cubes(measured.summary)
    sizes = sorted({int(n) for n in cubic["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    rows = select(cubic if compared else measured.summary, n=size)
    caches = tuple(cache for cache in CACHES if (rows["cache"] == cache).any())
    toolkits = tuple(toolkit for toolkit in names.TOOLKITS if (rows["toolkit"] == toolkit).any())
    published = _in_print(family)

    def cells(kernel: str, dtype: str) -> tuple[RowView | None, ...]:
        of_kernel = select(rows, kernel=kernel, dtype=dtype)
        return tuple(
            _row_of(select(of_kernel, toolkit=column, cache=cache), ceilings) for column in toolkits for cache in caches
        )

    def level(kernel: registry.Kernel) -> LevelView:
        printed = published_of(kernel, published)
        return LevelView(
            name=level_name(kernel),
            anchor=anchor(kernel.id),
            dtype=kernel.compute.dtype_in,
            published_rate=PublishedView.of(printed.get("throughput")),
            published_ratio=PublishedView.of(printed.get("ratio_to_cublas")),
            cells=cells(kernel.id, kernel.compute.dtype_in),
            error=accuracies(kernel.id, size) if kernel.compute.dtype_in == TYPE else None,
        )

    levels = tuple(map(level, compared))

    def beside(baseline: str, dtype: str) -> tuple[str, ...]:
        own = [
            shown.cells
            for kernel, shown in zip(compared, levels, strict=True)
            if (kernel.timing.baseline, kernel.compute.dtype_in) == (baseline, dtype)
        ]
        return tuple(map(_range, zip(*own, strict=True)))

    return TableView(
        types=tuple(dtypes(family.name)),
        size=size,
        has_size=SIZE in sizes,
        caches=caches,
        toolkits=toolkits,
        levels=levels,
        baselines=tuple(
            BaselineView(
                id=baseline,
                dtype=dtype,
                cells=beside(baseline, dtype),
                ran=_ran(measured, baseline, dtype, size),
                error=accuracies(baseline, size) if dtype == TYPE else None,
            )
            for baseline, dtype in _baselines(compared)
        ),
    )


def _range(cells: Iterable[RowView | None]) -> str:
    """The throughputs of the baseline that these rows were timed with: the lowest and the highest."""
    rates = [cell.paired for cell in cells if cell and cell.paired and not cell.stale]
    if not rates:
        return NONE
    low, high = number(min(rates)), number(max(rates))
    return low if low == high else f"{low} to {high}"


def _baselines(compared: Iterable[registry.Kernel]) -> Iterator[tuple[str, str]]:
    yield from dict.fromkeys(
        (kernel.timing.baseline, kernel.compute.dtype_in) for kernel in compared if kernel.timing.baseline
    )


def _row_of(rows: pd.DataFrame, ceilings: Mapping[str, float]) -> RowView | None:
    return row_view(rows.iloc[-1], ceilings=ceilings) if len(rows) else None


def _ran(measured: Measurements, baseline: str, dtype: str, size: int) -> str | None:
    """The GPU kernel that a baseline launched, according to the profiler."""
    key = f"{baseline} {size}" if dtype == "fp32" else f"{baseline} {dtype} {size}"
    return (measured.run.get("baseline_kernels") or {}).get(key)


NAMED = 4
"""How many kernels are named that were left out for one reason."""


class ExperimentRow(NamedTuple):
    """A row as text; `known` if the report has a page for its kernel."""

    anchor: str
    kernel: str
    known: bool
    stale: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: its `results`, those of its rows that are shown, and what did not run.

    `skipped` has kernels, toolkit and reason; `link` leads to all rows as CSV, `source_link` to the program that runs
    it.
    """

    anchor: str
    results: Results
    rows: tuple[ExperimentRow, ...]
    skipped: Sequence[tuple[str, str, str]]
    link: str | None
    command: str
    source_link: str | None = None

    @property
    def title(self) -> str:
        return self.results.experiment.title

    @property
    def date(self) -> str:
        """The day of its measurement."""
        return str(self.results.run.get("date") or "")[:10]


def experiment_view(family: str, results: Results, inputs: Inputs) -> ExperimentView:
    """An experiment of a family, its rows by the toolkit that represents it."""
    experiment = results.experiment
    shown = results.rows[(results.rows["toolkit"] == results.toolkit) | (results.rows["toolkit"] == LIBRARY)]
    known = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    return ExperimentView(
        anchor=experiment_anchor(family, experiment.name),
        results=results,
        rows=tuple(
            ExperimentRow(
                anchor=experiment_row_anchor(family, experiment.name, place),
                kernel=row["kernel"],
                known=row["kernel"] in known,
                stale=row["status"] == "stale",
                cells=tuple(_cell(row, column) for column in experiment.columns),
            )
            for place, row in shown.iterrows()
        ),
        skipped=_skipped(results.run.get("skipped") or []),
        link=inputs.files.add(results.path, f"data/experiments/{family}/{experiment.name}.csv"),
        command=experiment_command(family, results),
        source_link=inputs.files.add(path_of(family), f"data/sources/{family}/{path_of(family).name}"),
    )


def _skipped(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Kernels, toolkit and reason of what did not run, from run.json; those of one reason together, NAMED by name."""
    kernels: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        kernels.setdefault((entry["toolkit"], entry["reason"]), {})[entry["kernel"]] = None
    return [(_some([*names]), toolkit, reason) for (toolkit, reason), names in kernels.items()]


def _some(names: Sequence[str]) -> str:
    """``a, b and c``; ``a, b, c, d and 3 more``."""
    return listed(names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"])


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row[column.name]
    if pd.isna(value):
        return NONE
    if column.kind == "text":
        return str(value)
    return str(int(value)) if column.kind == "integer" else number(value)


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
