"""The report's data for programs: claims as CSV, how to cite it, and the scripts that its pages load.

A page opened from disk may not fetch JSON, but may load a script: SEARCH has the index of the search field, EVIDENCE
what a click on a number shows. Authors, version and licence are those of ``CITATION.cff``.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pandas as pd

from gemmrepro.core import paths, schemas
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.judging import REGISTERS, WAYS
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.published import as_csv
from gemmrepro.judge.rules import VERDICTS
from gemmrepro.measure.regimes import SAMPLES
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.claims import ClaimView, VerdictsView
from gemmrepro.paper.text import NONE, View, anchor

EVIDENCE, SEARCH = "data/evidence.js", "assets/search.js"
"""The places of the scripts in the report."""

LONGEST = 60
"""Characters of a claim's statement that the search index keeps."""

_SEARCHED = re.compile(r"(?!claims|gpus|reproduce)[a-z]+\.html|families/[a-z]+\.html")
"""The pages whose sections the search finds: not lists of claims and commands, nor kernels, baselines and all rows."""

_UNREAD = re.compile(r"<(svg|script|style|pre|footer|nav)\b.*?</\1>|<details>.*?</details>", re.DOTALL)

_WORD = re.compile(r"[\w.%-]*\w%?")

_TERM = re.compile(r'<dt[^>]* id="(term-[^"]+)"[^>]*>(.*?)</dt>', re.DOTALL)

CLAIM_COLUMNS = [field["name"] for field in schemas.load("claims-table.yaml")["fields"]]
"""The columns of claims.csv."""


def add_exports(files: Files, verdicts: VerdictsView, published: Mapping[str, float | None], bibtex: str) -> None:
    files.text(claims_csv(verdicts, published), "data/claims.csv")
    files.text(json.dumps(claims_schema(), indent=2) + "\n", "data/claims.schema.json")
    files.text(json.dumps(schemas.load("verdicts.schema.yaml"), indent=2) + "\n", "data/verdicts.schema.json")
    files.text(bibtex, "data/citation.bib")
    files.text(as_csv(), "data/published.csv")


def claims_csv(verdicts: VerdictsView, published: Mapping[str, float | None]) -> str:
    """Every claim as a row; `published` holds the value in print by claim id."""
    rows = [_claim(claim, published.get(claim.id)) for claim in verdicts.claims]
    return pd.DataFrame(rows, columns=CLAIM_COLUMNS, dtype=object).to_csv(index=False, lineterminator="\n")


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
    """The Table Schema of claims.csv (https://specs.frictionlessdata.io/table-schema/)."""
    words = {"register": REGISTERS, "way": WAYS, "verdict": VERDICTS}
    schema = deepcopy(schemas.load("claims-table.yaml"))
    for field in schema["fields"]:
        field["constraints"] |= {"enum": list(words[field["name"]])} if field["name"] in words else {}
    return schema


def citation(title: str, date: str | None) -> View:
    """The `title` of a report, its entry ``@software`` as `bibtex`, and the `url` that it is published at, or "".
    `date` (ISO) is that of its measurements. Raises UserError if CITATION.cff is wrong."""
    told = schemas.read_yaml(paths.ROOT / "CITATION.cff", "citation.schema.yaml")
    fields = {
        "author": " and ".join(f"{{{_escaped(author['name'])}}}" for author in told["authors"]),
        "title": f"{{{_escaped(title)}}}",
        "year": date[:4] if date else None,
        "version": told["version"],
        "url": told.get("url"),
        "note": f"{told['license']} license",
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return View(title=title, url=told.get("url", ""), bibtex="\n".join(["@software{gemmrepro,", *lines, "}", ""]))


def _escaped(text: str) -> str:
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def search_script(claims: Sequence[ClaimView], families: Sequence[View], pages: Mapping[str, str]) -> str:
    """``gemmreproSearch({verdicts, claims, kernels, terms, sections})``, each a list but for the verdicts' names.
    A claim is its id, words, the place of its verdict, and the numbers in print and measured. Terms and sections are
    those of the `pages` by their places: ``<dt id="term-…">``, and what has a heading, with the words below it."""
    verdicts = list(VERDICTS)
    chosen = {place: text for place, text in pages.items() if _SEARCHED.match(place)}
    return _script(
        "gemmreproSearch",
        verdicts=verdicts,
        claims=[[claim.id, _cut(claim.statement), verdicts.index(claim.verdict), _numbers(claim)] for claim in claims],
        kernels=[[kernel.id, kernel.heading] for family in families for kernel in family.kernels],
        terms=[[f"{at}#{ident}", _plain(term)] for at, text in chosen.items() for ident, term in _TERM.findall(text)],
        sections=[section for place, text in chosen.items() for section in _sections(place, text)],
    )


def _numbers(claim: ClaimView) -> str:
    published = [row.text.split()[0] for row in claim.published if row.text[:1].isdigit()]
    return " ".join(dict.fromkeys([*published, *(value.text for value in claim.judged)]))


def _sections(place: str, page: str) -> Iterator[list[str]]:
    """Place, heading and other words, each once, of every part of a page that begins with a heading."""
    parts = re.split(r"(?=<h[1-4]\b)", _UNREAD.sub(" ", page))
    ident = ""
    for before, part in pairwise(parts):
        own = re.match(r'<h\d[^>]* id="([^"]+)"', part)
        around = re.findall(r'<section\b[^>]* id="([^"]+)"', before)
        ident = own[1] if own else around[-1] if around else ident
        heading, _, below = part.partition("</h")
        words = dict.fromkeys(_WORD.findall(_plain(below).lower().replace(" %", "%")))
        title = _plain(heading).strip()
        yield [f"{place}#{ident}" if ident else place, title, " ".join(each for each in words if len(each) > 2)]


def _plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


def _script(function: str, **told: Any) -> str:
    return f"{function}({json.dumps(told, separators=(',', ':'), ensure_ascii=False)});\n"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def evidence_script(
    families: Sequence[View],
    baselines: Mapping[str, Sequence[View]],
    findings: Mapping[str, View],
    claims: Sequence[ClaimView],
    declared: Mapping[str, Claim],
) -> str:
    """``gemmreproEvidence({kernels, rows, experiments, figures, claims, rules})``.
    A kernel is its title, source, listings, command, page and samples; the pages' script unpacks the others."""
    kernels: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    experiments: dict[str, Any] = {}
    figures = [*findings.values(), *(figure for family in families for figure in family.figures)]
    samples = {family.name: family.links.get("samples.parquet", "") for family in families}
    for family in families:
        for kernel in family.kernels:
            gate = f"{SNAKEMAKE} --force results/gates/{kernel.id}.json"
            command = _measure(family.name) if kernel.declared.timing.timed else gate
            kernels[kernel.anchor] = _kernel(kernel, command, samples[family.name])
            rows |= _rows(kernel.anchor, kernel.rows)
            if kernel.alone:
                key, held = f"{kernel.anchor}-alone", family.alone_links.get(SAMPLES, "")
                kernels[key] = _kernel(kernel, _measure(family.name, "regimes"), held)
                rows |= {
                    each.row.anchor: _row(key, each.row, each.regime, each.blocks, each.joules) for each in kernel.alone
                }
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
        claims={claim.anchor: _judged(claim, declared[claim.id]) for claim in claims},
        rules={word: metric.rule.replace("`", "") for word, metric in METRICS.items()},
    )


def _judged(claim: ClaimView, declared: Claim) -> list[Any]:
    """A claim's metric, statement, verdict, published value, and the ids of the rows that it was judged on."""
    one = claim.published[0].text if len(claim.published) == 1 else declared.figure if declared.of_two else ""
    rows = dict.fromkeys(place for value in claim.judged for _, place in value.rows if place)
    return [declared.metric, claim.statement, claim.verdict, one, list(rows)]


def _measure(family: str, stage: str = "measure") -> str:
    return f"{SNAKEMAKE} --config measure=live --force results/{stage}/{family}/summary.csv"


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


def _row(kernel: str, row: View, use: str, parts: str, joules: str = NONE) -> list[Any]:
    """A row; `use` is the state of the cache or the regime, `parts` the rounds or blocks of its samples.
    Its errors are relative and an element's largest; `joules` are those of a launch."""
    return [
        *(kernel, f"{row.dtype} {row.size}, {use}, {row.toolkit}", row.time, row.time_interval),
        *(row.rate, row.rate_unit, row.tflops_interval, row.ratio, row.ratio_interval, row.samples),
        *(parts, row.clock, row.power, int(row.stale), use, row.norm_error, row.error, joules),
    ]
