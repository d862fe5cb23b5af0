"""The report's data for programs: claims as CSV, how to cite it, and the scripts that its pages load.

A page that was opened from disk may not fetch a JSON file, but may load a script: SEARCH has the index of the search
field, EVIDENCE what a reader is shown at a click on a number. The authors, the version and the licence are those of
``CITATION.cff``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmrepro.core import paths, schemas
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.published import as_csv
from gemmrepro.judge.rules import VERDICTS
from gemmrepro.judge.ways import REGISTERS, WAYS
from gemmrepro.measure.regimes import SAMPLES
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.claims import ClaimView, VerdictsView
from gemmrepro.paper.inputs import FigureView
from gemmrepro.paper.text import NONE, View, anchor

EVIDENCE, SEARCH = "data/evidence.js", "assets/search.js"
"""The places of the scripts in the report."""

LONGEST = 60
"""Characters of a claim's statement that the search index keeps."""

_TERM = re.compile(r'<dt[^>]* id="(term-[^"]+)"[^>]*>(.*?)</dt>', re.DOTALL)

CLAIM_COLUMNS = [field["name"] for field in schemas.load("claims-table.yaml")["fields"]]
"""The columns of claims.csv."""


def add_exports(files: Files, verdicts: VerdictsView, published: Mapping[str, float | None], cited: Citation) -> None:
    """Add the files for programs; `published` holds the value in print by claim id."""
    files.text(claims_csv(verdicts, published), "data/claims.csv")
    files.text(json.dumps(claims_schema(), indent=2) + "\n", "data/claims.schema.json")
    files.text(json.dumps(schemas.load("verdicts.schema.yaml"), indent=2) + "\n", "data/verdicts.schema.json")
    files.text(cited.bibtex, "data/citation.bib")
    files.text(as_csv(), "data/published.csv")


def claims_csv(verdicts: VerdictsView, published: Mapping[str, float | None]) -> str:
    """Every claim as a row; `published` holds the value in print by claim id."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CLAIM_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_claim(claim, published.get(claim.id)) for claim in verdicts.claims)
    return text.getvalue()


def _claim(claim: ClaimView, published: float | None) -> dict[str, object]:
    of_value = ("published", "measured", "low", "high", "unit", "evidence")
    row: dict[str, object] = {name: getattr(claim, name) for name in CLAIM_COLUMNS if name not in of_value}
    row["published"] = published
    if claim.judged:
        value = claim.judged[0]
        unit = "" if value.unit in ("ratio", "count") else value.unit
        row |= {"measured": value.value, "low": value.low, "high": value.high, "unit": unit}
        row["evidence"] = "; ".join(key for each in claim.judged for key, _ in each.rows)
    return row


def claims_schema() -> dict[str, object]:
    """How claims.csv is to be read, as a Table Schema (https://specs.frictionlessdata.io/table-schema/)."""
    words = {"register": REGISTERS, "way": WAYS, "verdict": VERDICTS}
    schema = deepcopy(schemas.load("claims-table.yaml"))
    for field in schema["fields"]:
        field["constraints"] |= {"enum": list(words[field["name"]])} if field["name"] in words else {}
    return schema


@dataclass(frozen=True)
class Citation:
    """What identifies this report: its title, and what CITATION.cff says; `date` (ISO) is that of its measurements."""

    title: str
    authors: tuple[str, ...]
    version: str
    license: str
    date: str | None

    @cached_property
    def bibtex(self) -> str:
        """An entry ``@software``; names and titles keep their capitals."""
        fields = {
            "author": " and ".join(f"{{{_escaped(author)}}}" for author in self.authors),
            "title": f"{{{_escaped(self.title)}}}",
            "year": self.date[:4] if self.date else None,
            "version": self.version,
            "note": f"{self.license} license",
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join(["@software{gemmrepro,", *lines, "}", ""])


def citation(title: str, date: str | None) -> Citation:
    """The citation of a report with this title; `date` is an ISO date. Raises UserError if CITATION.cff is wrong."""
    told = schemas.read_yaml(paths.ROOT / "CITATION.cff", "citation.schema.yaml")
    return Citation(
        title=title,
        authors=tuple(author["name"] for author in told["authors"]),
        version=told["version"],
        license=told["license"],
        date=date[:10] if date else None,
    )


def _escaped(text: str) -> str:
    """Text for BibTeX."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def search_script(claims: Sequence[ClaimView], families: Sequence[View], paper: str) -> str:
    """``gemmreproSearch({claims: …, kernels: …, terms: …})``, each a list of id and words.

    The terms are those that `paper` defines: ``<dt id="term-…">``.
    """
    return _script(
        "gemmreproSearch",
        claims=[[claim.id, _cut(claim.statement)] for claim in claims],
        kernels=[[kernel.id, kernel.heading] for family in families for kernel in family.kernels],
        terms=[[ident, re.sub(r"<[^>]+>", "", term)] for ident, term in _TERM.findall(paper)],
    )


def _script(function: str, **told: Any) -> str:
    """A script that calls a function with an object."""
    return f"{function}({json.dumps(told, separators=(',', ':'), ensure_ascii=False)});\n"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def evidence_script(
    families: Sequence[View],
    baselines: Mapping[str, Sequence[View]],
    findings: Mapping[str, FigureView],
    metrics: Mapping[str, str],
) -> str:
    """``gemmreproEvidence({kernels, rows, experiments, figures, claims, rules})``.

    A kernel is its title, source, listings, command, page and samples; the pages' script unpacks the others.

    Args:
        metrics: the metric of each claim by its id on the page.
    """
    kernels: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    experiments: dict[str, Any] = {}
    figures = [*findings.values(), *(figure for family in families for figure in family.figures)]
    samples = {family.name: family.links.get("samples.parquet", "") for family in families}
    for family in families:
        for kernel in family.kernels:
            command = _measure(family.name) if kernel.declared.timing.timed else _gate(kernel.id)
            kernels[kernel.anchor] = _kernel(kernel, command, samples[family.name])
            rows |= _rows(kernel.anchor, kernel.rows)
            if kernel.alone:
                key, held = f"{kernel.anchor}-alone", family.alone_links.get(SAMPLES, "")
                kernels[key] = _kernel(kernel, _measure(family.name, "regimes"), held)
                rows |= {each.row.anchor: _row(key, each.row, each.regime, each.blocks) for each in kernel.alone}
        page = f"families/{family.name}.html"
        experiments |= {each.anchor: _experiment(each, page) for each in family.experiments}
    for baseline, parts in baselines.items():
        for part in parts:
            key, title = f"{anchor(baseline)}-{part.family}", f"{baseline}, timed with {part.family}"
            page = f"baselines/{baseline}.html"
            kernels[key] = [title, "", [], _measure(part.family), page, samples.get(part.family, "")]
            rows |= _rows(key, part.rows)
    return _script(
        "gemmreproEvidence",
        kernels=kernels,
        rows=rows,
        experiments=experiments,
        figures={each.anchor: [each.title, each.command, each.csv or "", list(each.rows)] for each in figures},
        claims=dict(metrics),
        rules={word: metric.rule.replace("`", "") for word, metric in METRICS.items()},
    )


def _measure(family: str, stage: str = "measure") -> str:
    return f"{SNAKEMAKE} --config measure=live --force results/{stage}/{family}/summary.csv"


def _gate(kernel: str) -> str:
    return f"{SNAKEMAKE} --force results/gates/{kernel}.json"


def _kernel(kernel: View, command: str, samples: str) -> list[Any]:
    listings = [[toolkit, place] for toolkit, place in kernel.code.listings.items()]
    page = f"kernels/{kernel.id}.html"
    return [kernel.heading, kernel.source.link or "", listings, command, page, samples]


def _experiment(each: View, page: str) -> list[Any]:
    """Title, command, date, machine, page, rows as CSV, the program's source, and the kernel of each row."""
    kernels: dict[str, list[int]] = {}
    for row in each.rows:
        kernels.setdefault(anchor(row.kernel), []).append(int(row.anchor.rsplit("-", 1)[1]))
    links = each.link or "", each.source_link or ""
    return [each.title, each.command, each.date, each.results.machine, page, *links, kernels]


def _rows(kernel: str, rows: Iterable[View]) -> dict[str, list[Any]]:
    return {
        row.anchor: _row(kernel, row, row.cache, NONE if row.rounds == NONE else f"{row.rounds} rounds") for row in rows
    }


def _row(kernel: str, row: View, use: str, parts: str) -> list[Any]:
    """A row; `use` is the state of the cache or the regime, `parts` the rounds or blocks of its samples."""
    return [
        *(kernel, f"{row.dtype} {row.size}, {use}, {row.toolkit}", row.time, row.time_interval),
        *(row.rate, row.rate_unit, row.tflops_interval, row.ratio, row.ratio_interval, row.samples),
        *(parts, row.clock, row.power, int(row.stale), use),
    ]
