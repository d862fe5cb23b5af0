"""The pages of families, with their tables and experiments, and of the baselines that they time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.names import LIBRARY, SIZE, SNAKEMAKE
from gemmrepro.experiments import path_of
from gemmrepro.experiments.results import Results
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.published import published_rows
from gemmrepro.judge.rules import COVERED, VERDICTS
from gemmrepro.measure.regimes import FILES as REGIME_FILES
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.paper import findings
from gemmrepro.paper.claims import published_view
from gemmrepro.paper.gpus import runnable
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.kernel import kernel_view
from gemmrepro.paper.regimes import TYPE, Accuracies
from gemmrepro.paper.text import (
    NONE,
    View,
    anchor,
    experiment_anchor,
    experiment_command,
    experiment_row_anchor,
    number,
    row_anchor,
    row_view,
    samples_by_row,
    times_of,
)
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, level_name

CACHES = ("warm", "cold")


def published_of(kernel: registry.Kernel, published: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of `published` about a kernel by metric: only those of its type, if the article has several."""
    rows = [
        row for row in published if kernel.story.published_system and row["system"] == kernel.story.published_system
    ]
    own = [row for row in rows if row["dtype"] == kernel.compute.dtype_in]
    return {row["metric"]: row for row in own or rows}


def table_view(
    family: registry.Family, measured: Measurements, accuracies: Accuracies, ceilings: Mapping[str, float]
) -> View:
    """A family's main table: its levels at the article's size if it was measured, else at the largest that was.
    Each level has its figures in print, a cell for each toolkit and cache state, and its error if it emulates FP64.
    Baselines have their lowest and highest throughput, since the clock moves both; `ran` is the GPU kernel that they
    ran."""
    compared = ladders.compared(family.name)
    cubic = cubes(measured.summary)
    sizes = sorted({int(n) for n in cubic["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    rows = select(cubic if compared else measured.summary, n=size)
    caches = tuple(cache for cache in CACHES if (rows["cache"] == cache).any())
    toolkits = tuple(toolkit for toolkit in names.TOOLKITS if (rows["toolkit"] == toolkit).any())
    in_print = [
        row for row in published_rows() if family.article and row["article"] == family.article and row["n"] == SIZE
    ]

    def level(kernel: registry.Kernel) -> View:
        printed, dtype = published_of(kernel, in_print), kernel.compute.dtype_in
        own = select(rows, kernel=kernel.id, dtype=dtype)
        of_column = [select(own, toolkit=toolkit, cache=cache) for toolkit in toolkits for cache in caches]
        cells = [row_view(found.iloc[-1], ceilings=ceilings) if len(found) else None for found in of_column]
        return View(
            name=level_name(kernel),
            anchor=anchor(kernel.id),
            dtype=dtype,
            baseline=kernel.timing.baseline,
            published_rate=published_view(printed.get("throughput")),
            published_ratio=published_view(printed.get("ratio_to_cublas")),
            cells=cells,
            measured=any(cells),
            error=accuracies(kernel.id, size) if dtype == TYPE else None,
        )

    def baseline(name: str, dtype: str) -> View:
        beside = [level.cells for level in levels if (level.baseline, level.dtype) == (name, dtype)]
        return View(
            id=name,
            dtype=dtype,
            cells=[*map(_range, zip(*beside, strict=True))],
            ran=launched.get(f"{name} {size}" if dtype == "fp32" else f"{name} {dtype} {size}"),
            error=accuracies(name, size) if dtype == TYPE else None,
        )

    launched = measured.run.get("baseline_kernels") or {}
    levels = [*map(level, compared)]
    return View(
        types=tuple(dtypes(family.name)),
        size=size,
        has_size=SIZE in sizes,
        caches=caches,
        toolkits=toolkits,
        toolkit=measured.toolkit,
        levels=levels,
        baselines=[baseline(*key) for key in dict.fromkeys((each.baseline, each.dtype) for each in levels) if key[0]],
    )


def _range(cells: Iterable[View | None]) -> str:
    """The throughputs of the baseline that these rows were timed with: the lowest and the highest."""
    rates = [cell.paired for cell in cells if cell and cell.paired and not cell.stale]
    if not rates:
        return NONE
    low, high = number(min(rates)), number(max(rates))
    return low if low == high else f"{low} to {high}"


def experiment_view(family: str, results: Results, inputs: Inputs) -> View:
    """An experiment of a family, its rows by the toolkit that represents it.
    A row is `known` if its kernel has a page; `link` leads to all rows as CSV, `source_link` to the program."""
    experiment = results.experiment
    shown = results.rows[(results.rows["toolkit"] == results.toolkit) | (results.rows["toolkit"] == LIBRARY)]
    known = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    return View(
        anchor=experiment_anchor(family, experiment.name),
        title=experiment.title,
        date=str(results.run.get("date") or "")[:10],
        results=results,
        rows=[
            View(
                anchor=experiment_row_anchor(family, experiment.name, place),
                kernel=row["kernel"],
                known=row["kernel"] in known,
                stale=row["status"] == "stale",
                cells=[None if pd.isna(row[column.name]) else row[column.name] for column in experiment.columns],
            )
            for place, row in shown.iterrows()
        ],
        link=inputs.files.add(results.path, f"data/experiments/{family}/{experiment.name}.csv"),
        command=experiment_command(family, results),
        source_link=inputs.files.add(path_of(family), f"data/sources/{family}/{path_of(family).name}"),
    )


def family_view(name: str, inputs: Inputs) -> View:
    """A family's page.
    `timed` is false if only experiments run its kernels; `unmeasured`: they are timed, and no rows or results are
    there. `statements` counts what an article states about it, less what others cover, `counts` these by verdict.
    `own_rows` are the rows of its kernels, with their levels' names; `links` the files of its sweep, `alone_links`
    those of its regimes."""
    family = registry.family(name)
    measured = inputs.measured[name]
    samples = samples_by_row(measured)
    claims = [claim for claim in inputs.verdicts.claims if claim.family == name]
    verdicts = Counter(claim.verdict for claim in claims if claim.register == ARTICLE)
    kernels = registry.kernels(name)
    timed = any(kernel.timing.timed for kernel in kernels)
    has_regimes = name in inputs.regimes and not inputs.regimes[name].summary.empty
    experiments = inputs.experiments.get(name, {}).values()
    unmeasured = timed and measured.summary.empty and not any(len(results.rows) for results in experiments)
    views = [kernel_view(kernel, inputs, samples) for kernel in kernels]
    by_place = {row.anchor: (kernel.name, row) for kernel in views for row in kernel.rows}
    ordered = measured.summary.sort_values(["m", "n", "k", "dtype", "cache", "toolkit"], kind="stable")
    table = table_view(family, measured, Accuracies.of(inputs.experiments), inputs.ceilings)
    text = findings.render(name, inputs.rows.by_id)
    return View(
        name=name,
        anchor=anchor(name),
        title=family.title,
        summary=family.summary,
        article=family.article,
        timed=timed,
        source=measured.source,
        gpu=measured.gpu,
        claims=len(claims),
        statements=verdicts.total() - verdicts[COVERED],
        counts={verdict: verdicts[verdict] for verdict in VERDICTS if verdict != COVERED},
        figures=[figure for figure in inputs.figures[name] if not unmeasured and (figure.table or not figure.svg)],
        experiments=[experiment_view(name, results, inputs) for results in experiments],
        findings=text and replace(text, text=named(text.text, kernels)),
        table=table,
        story=[kernel for kernel in views if kernel.declared.story.idea and not kernel.source.first],
        rows=len(measured.summary),
        own_rows=[by_place[place] for place in map(row_anchor, ordered.to_dict("records")) if place in by_place],
        stale=int((measured.summary["status"] == "stale").sum()),
        has_counters=len(measured.counters) > 0,
        kernels=views,
        links=_links(inputs, inputs.measure_dir, ("summary.csv", "samples.parquet", "counters.csv", "run.json"), name),
        alone_links=_links(inputs, inputs.regimes_dir or Path(), REGIME_FILES if has_regimes else (), name, "regimes/"),
        runnable=runnable([name], inputs.measured.values()),
        run=measured.run,
        unmeasured=unmeasured,
        date=str(measured.run.get("date") or "")[:10],
        rounds=(measured.run.get("config") or {}).get("rounds"),
        command=f"{SNAKEMAKE} --config measure=live --force results/measure/{name}/summary.csv",
    )


def named(text: Markup, kernels: Iterable[registry.Kernel]) -> Markup:
    """A family's text, in whose sections a rung's first mention has its name, and each other shows it when pointed at.
    Rungs that are called by numbers alone cannot be told from numbers."""
    names: dict[str, str] = {}
    for kernel in kernels:
        if re.match(r"[A-Z]+\d", kernel.rung):
            names.setdefault(kernel.rung, kernel.name)
    if not names:
        return text
    any_of = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    rung = re.compile(rf"(?<![\w.#-])({any_of})(?![\w-]|\.\d)")

    def section(part: str) -> str:
        known: set[str] = set()

        def mention(match: re.Match[str]) -> str:
            found, name = match[1], escape(names[match[1]])
            said = found in known or match.string[match.end() :].lstrip(" (").startswith(names[found])
            known.add(found)
            return f'<abbr title="{found} {name}">{found}</abbr>' if said else f"{found} ({name})"

        pieces = re.split(r"(<[^>]+>)", part)  # every second one is a tag
        return "".join(rung.sub(mention, piece) if place % 2 == 0 else piece for place, piece in enumerate(pieces))

    return Markup("".join(map(section, re.split(r"(?=<h3)", str(text)))))


def _links(inputs: Inputs, folder: Path, files: Sequence[str], family: str, within: str = "") -> dict[str, str]:
    """The place in the report of the archive that has a family's `files` in `folder`, by the names of those there."""
    added = {file: inputs.files.pack(folder / family / file, f"{family}/{within}{file}") for file in files}
    return {file: place for file, place in added.items() if place}


def baseline_pages(inputs: Inputs) -> dict[str, list[View]]:
    """The rows of every baseline by its name, in each family that timed it.
    `ran` pairs a size or type with the GPU kernel that was launched."""
    kernels = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    pages: dict[str, list[View]] = {}
    for family, measured in inputs.measured.items():
        summary = measured.summary[~measured.summary["kernel"].isin(kernels)]
        samples = samples_by_row(measured) if len(summary) else {}
        ran = sorted((measured.run.get("baseline_kernels") or {}).items())
        for name, rows in summary.groupby("kernel", sort=True):
            rows = rows.sort_values(["dtype", "m", "n", "k", "cache", "toolkit"], kind="stable")
            views = [row_view(row, times_of(samples, row), inputs.ceilings) for _, row in rows.iterrows()]
            launched = [(call, str(kernel)) for call, kernel in ran if call.split()[0] == name]
            pages.setdefault(str(name), []).append(View(family=family, rows=views, ran=launched))
    return dict(sorted(pages.items()))
