"""Writes the report: a folder of pages that opens from disk with no network.

``index.html`` is the paper; beside it are a page of claims, one for each family, kernel and baseline, one of the runs,
one of commands, and the files that they link to, from the templates in ``reports/template``. A stage that did not run,
a family that was not measured, or a container that was not built is stated, not hidden.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from gemmrepro import registry
from gemmrepro.core.names import OWN_PAGE, REPORT_PAGES, SIZE, SNAKEMAKE
from gemmrepro.core.text import as_published, listed
from gemmrepro.experiments import paper_figures, tables
from gemmrepro.judge import claims as declared_claims
from gemmrepro.judge.claim import ARTICLE, Claim
from gemmrepro.judge.judging import REGISTERS, WAYS, unfounded
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.rules import COVERED, DECIDED, REPRODUCED, VERDICTS
from gemmrepro.measure.recording import CEILINGS
from gemmrepro.measure.rows import Measurements, capability_of, select
from gemmrepro.paper import bundle, exports
from gemmrepro.paper import findings as findings_text
from gemmrepro.paper.bundle import LOADER, PAPER, secured, tidy
from gemmrepro.paper.claims import VerdictsView, explained, headlines, mechanisms, references
from gemmrepro.paper.family import baseline_pages, family_view
from gemmrepro.paper.findings import reference_gpu
from gemmrepro.paper.gpus import Gpu, machine_view, runnable, side_by_side
from gemmrepro.paper.inputs import TEMPLATES, Inputs
from gemmrepro.paper.regimes import ALLOWED, PRECISE, Accuracies, regime_lines, type_name, use_cases
from gemmrepro.paper.text import (
    MARKS,
    View,
    anchor,
    code_spans,
    counter_anchor,
    glossary,
    interval,
    number,
    size_text,
    terms,
)
from gemmrepro.recordings.limits import Ceilings, limit, sums
from gemmrepro.registry.articles import article, article_names
from gemmrepro.registry.requirements import requirement

NUMBER = "\ue001"
"""Encloses the id of a figure where its number will stand."""

PICTURE = "data/headlines.png"
"""The place of the picture that stands for the report."""


def render(inputs: Inputs) -> dict[str, str]:
    """Every page as HTML, by its place in the bundle; what they link to goes to the inputs' `files`."""
    families = [family_view(name, inputs) for name in inputs.families]
    findings = inputs.findings
    baselines = baseline_pages(inputs)
    declared = {claim.id: claim for claim in declared_claims.load(tuple(inputs.families), judged=True)}
    lines = regime_lines(inputs.measured, inputs.regimes, Accuracies.of(inputs.experiments))
    uses = use_cases(lines, inputs.measured)
    firsts = {family.article: family for family in reversed(families) if family.article}
    machine = machine_view(inputs.measured, inputs.config.get("sweep", {}))
    gpu = inputs.verdicts.gpu
    cited = exports.citation(f"GEMM articles, checked on {gpu}" if gpu else "GEMM articles, checked", machine.date)
    own = Gpu(gpu or "not measured", inputs.measured, inputs.verdicts, lines)
    environment = _environment()
    environment.globals |= {
        "families": families,
        "findings": findings,
        "findings_of": {family.name: placed(family.name, findings) for family in families},
        "baselines": baselines,
        "runnable": runnable(inputs.families, inputs.measured.values()),
        "machine": machine,
        "locks": inputs.locks,
        "reference_gpu": reference_gpu(),
        "regimes": lines,
        "uses": uses,
        # Families with a kernel of ours to use; the first family of an article is told with the article.
        "past": {use.what.kernel.partition(".")[0] for use in uses} - {family.name for family in firsts.values()},
        "ideas": {kernel.id: kernel.declared.story.idea for family in families for kernel in family.kernels},
        "side_by_side": side_by_side(own, inputs.others),
        "other_gpus": inputs.others,
        "boards": own.boards,
        "is_own_gpu": True,
        "own_gpu": own.name,
        "cited": cited,
        "picture": PICTURE if inputs.picture.is_file() else "",
        "own": inputs.own,
        "own_figure": inputs.own_figure,
        **_of_claims(inputs, declared, families),
    }
    macros = environment.get_template("macros.j2").module
    environment.globals |= {name: macro for name, macro in vars(macros).items() if not name.startswith("_")}
    limits = environment.get_template("sections/limits.j2").render(**facts(inputs, families))
    environment.globals["limits"] = [Markup(line) for line in limits.splitlines() if line.startswith("<li")]
    pages = numbered(_pages(environment, families, baselines))
    for other in inputs.others:
        seen = {"is_own_gpu": False, "gpus": {}, "boards": other.boards, **_verdicts_seen(other.verdicts, declared)}
        for template, kind in (("leaderboard.html.j2", ""), ("claims.html.j2", "-claims")):
            place = f"gpus/{other.folder}{kind}.html"
            pages[place] = tidy(environment.get_template(template).render(place=place, other=other.folder, **seen))
    files = inputs.files
    for name in ("paper.css", "paper.js"):
        files.add(TEMPLATES / name, f"assets/{name}")
    files.text(exports.search_script(inputs.verdicts.claims, families, pages), exports.SEARCH)
    evidence = exports.evidence_script(families, baselines, findings, inputs.verdicts.claims, declared)
    files.text(evidence, exports.EVIDENCE)
    files.add(inputs.picture, PICTURE)
    files.text(environment.get_template("badge.svg.j2").render(verdicts=inputs.verdicts), "data/badge.svg")
    exports.add_exports(files, inputs.verdicts, {name: claim.value for name, claim in declared.items()}, cited.bibtex)
    return {place: secured(text) for place, text in bundle.resolved(pages, files).items()}


def _pages(
    environment: jinja2.Environment, families: Sequence[View], baselines: Mapping[str, Sequence[View]]
) -> dict[str, str]:
    """Every page as its template has it, by its place in the bundle."""
    pages: dict[str, str] = {}

    def page(place: str, template: str, **seen: Any) -> None:
        pages[place] = tidy(environment.get_template(template).render(place=place, **seen))

    for name in REPORT_PAGES:
        page(f"{name}.html", f"{name}.html.j2")
    if environment.globals["own"]:
        page(OWN_PAGE, f"{OWN_PAGE}.j2")
    for family in families:
        page(f"families/{family.name}.html", "family.html.j2", family=family, paper=pages["index.html"])
        if family.rows:
            page(f"families/{family.name}-rows.html", "rows.html.j2", family=family)
        beside = [None, *family.kernels, None]
        for earlier, kernel, later in zip(beside, family.kernels, beside[2:], strict=False):
            seen = {"family": family, "kernel": kernel, "earlier": earlier, "later": later}
            page(f"kernels/{kernel.id}.html", "kernel.html.j2", **seen)
    for baseline, parts in baselines.items():
        page(f"baselines/{baseline}.html", "baseline.html.j2", baseline=baseline, parts=parts)
    return pages


def numbered(pages: Mapping[str, str]) -> dict[str, str]:
    """The pages with the numbers of their figures, each by the first place where it stands."""
    shown = (name for text in pages.values() for name in re.findall(r'<figure id="([^"]+)"', text))
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(shown), 1)}
    mark = re.compile(f"{NUMBER}(.*?){NUMBER}")
    return {place: mark.sub(lambda found: numbers.get(found[1], ""), text) for place, text in pages.items()}


def _environment() -> jinja2.Environment:
    """The templates, with what they see whatever the run."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = (anchor, as_published, code_spans, counter_anchor, interval, listed, number, size_text, terms, type_name)
    environment.filters |= {each.__name__: each for each in filters}
    environment.filters["numbered"] = lambda figure: f"{NUMBER}{figure.anchor}{NUMBER}"
    environment.globals |= {
        "style": Markup((TEMPLATES / "paper.css").read_text()),
        "script": Markup(PAPER.read_text()),
        "loader": Markup(LOADER),
        "glossary": glossary(),
        "marks": MARKS,
        "snakemake": SNAKEMAKE,
        "size": SIZE,
        "allowed": ALLOWED,
        "precise": PRECISE,
        "decided": DECIDED,
        "references": references(),
        "short": {name: article(name).short or name for name in article_names()},
        "verdict_rules": VERDICTS.items(),
        "metric_rules": [(word, metric.rule) for word, metric in METRICS.items()],
        "way_rules": WAYS.items(),
        "register_rules": REGISTERS.items(),
    }
    return environment


def _verdicts_seen(verdicts: VerdictsView, declared: Mapping[str, Claim]) -> dict[str, Any]:
    """Variables of templates on one GPU's verdicts."""
    stated = verdicts.counts["article"]
    published = {name: (claim.value, claim.unit) for name, claim in declared.items()}
    quotients = {claim.id: claim.over(published.get(claim.id)) for claim in verdicts.claims}
    return {
        "verdicts": verdicts,
        "gpu": verdicts.gpu,
        "stated": stated,
        "statements": sum(stated.values()) - stated[COVERED],
        "quotients": {name: over for name, over in quotients.items() if over},
    }


def _of_claims(inputs: Inputs, declared: Mapping[str, Claim], families: Sequence[View]) -> dict[str, Any]:
    """Variables of templates on the claims and their verdicts."""
    verdicts = inputs.verdicts
    gpus = [measured.run["gpu"] for measured in inputs.measured.values() if measured.run.get("gpu")]
    capability = str(gpus[0].get("compute_capability", "")) if gpus else ""
    return {
        **_verdicts_seen(verdicts, declared),
        "total": len(verdicts.claims),
        "gpus": {name: measured.gpu for name, measured in inputs.measured.items() if measured.gpu},
        "headlines": headlines(verdicts.claims, {name: claim.value for name, claim in declared.items()}),
        "texts": _texts(verdicts, families),
        "stories": _stories(inputs),
        "figures": {name: claim.figure for name, claim in declared.items() if claim.of_two},
        "mechanisms": explained(verdicts.claims, mechanisms(), capability),
    }


def _texts(verdicts: VerdictsView, families: Sequence[View]) -> list[View]:
    """The articles with claims, two parts of one text as one: who wrote it, and how many statements were decided.
    `families` are those that its claims are about, which it is the article of or not."""
    found = []
    for text in references():
        claims = [claim for claim in verdicts.claims if claim.article in text.articles]
        counts = Counter(claim.verdict for claim in claims if claim.register == ARTICLE)
        about = {claim.family for claim in claims}
        found.append(
            View(
                **{name: getattr(text, name) for name in ("id", "by", "year", "gpus", "articles")},
                short=text.short,
                decided=sum(counts[verdict] for verdict in DECIDED),
                reproduced=counts[REPRODUCED],
                share=counts[REPRODUCED] / max(1, sum(counts[verdict] for verdict in DECIDED)),
                claims=len(claims),
                families=[family for family in families if family.name in about],
                figures=_tables_of(text.articles, families),
            )
        )
    return sorted((text for text in found if text.claims), key=lambda text: -text.decided / len(text.articles))


def _tables_of(articles: Collection[str], families: Sequence[View]) -> list[View]:
    """The figures of a text's tables and charts, which stand on the pages of the families whose rows they show."""
    shown = {f"figure-{anchor(table.family)}-{table.name}" for name in articles for table in tables.of_article(name)}
    return [figure for family in families for figure in family.figures if figure.anchor in shown]


def _stories(inputs: Inputs) -> list[View]:
    """Stories of claims: of those found wrong, and where nothing is corrected of those that hold.
    One with numbers of the reference recording is told of its GPU alone."""
    verdicts, known = inputs.verdicts, {claim.id: claim for claim in inputs.verdicts.claims}
    listed_wrong = {claim.id for each in verdicts.corrections for claim in each.claims}
    found = []
    for name, text in ((name, text) for each in article_names() for name, text in article(each).stories.items()):
        claim = known.get(name)
        holds = claim and (name in listed_wrong if claim.correction else claim.verdict == REPRODUCED)
        if claim and holds and ("{" not in text or verdicts.gpu == reference_gpu()):
            found.append(View(claim=claim, text=findings_text.told(text, claim.family, inputs.rows.by_id)))
    return sorted(found, key=lambda each: not each.claim.correction)


def placed(family: str, findings: Mapping[str, View]) -> list[View]:
    """The paper's own figures that belong to a family's results: those that need it first."""
    needed = paper_figures.needed()
    return [figure for name, figure in findings.items() if needed[name][:1] == (family,)]


FULL_CLOCK = 0.98
"""A row at this share of the GPU's highest clock, or above it, ran at full clock."""


def facts(inputs: Inputs, families: Sequence[View]) -> dict[str, Any]:
    """Facts for ``sections/limits.j2``: what this run did not time, check or judge."""
    measured = {family.name: inputs.measured[family.name] for family in families if family.source != "none"}
    capability = capability_of(inputs.measured.values())
    kernels = [kernel for family in families for kernel in registry.kernels(family.name)]
    lacking = {kernel.id for kernel in kernels if capability and requirement(kernel, capability)}
    gates = {
        family.name: [(kernel.id, gate) for kernel in family.kernels for gate in kernel.gate.toolkits]
        for family in families
    }
    binaries = []
    for name, of in gates.items():
        able = [gate for kernel, gate in of if gate.compiled and kernel not in lacking]
        if left_out := [gate.name for gate in able if not gate.measured]:
            binaries.append(View(name=name, count=len(left_out), of=len(able), toolkits=left_out))
    return {
        "instead": (inputs.config.get("sweep") or {}).get("instead_of") or {},
        "spreads": [spread for of in inputs.regimes.values() for spread in (of.run.get("spread") or {}).values()],
        "earlier": [name for name, of in inputs.regimes.items() if of.run.get("earlier")],
        "sustained": [name for name, of in inputs.regimes.items() if "sustained" in of.by_regime()],
        "slowed": _slowed(measured),
        "ungated": [name for name, of in gates.items() if any(gate.measured and not gate.judged for _, gate in of)],
        "binaries": binaries,
        "unchecked": _unchecked(measured, inputs.measured.get(CEILINGS)),
        "unfounded": unfounded([vars(claim) for claim in inputs.verdicts.claims]),
        "untimed": _untimed(inputs.measured, lacking),
    }


def _slowed(measured: Mapping[str, Measurements]) -> list[View]:
    """The families whose rows the power cap slowed down: how many, `of` how many rows of all families."""
    clocks = {name: (of.run.get("gpu") or {}).get("clock_max_mhz") for name, of in measured.items()}
    total = sum(len(of.summary) for name, of in measured.items() if clocks[name])
    found = []
    for name, of in measured.items():
        low = of.summary["clock_mhz"] < FULL_CLOCK * (clocks[name] or 0)
        capped = int((of.summary["throttle"].str.contains("power") & low).sum())
        found += [View(name=name, capped=capped, of=total)] if capped else []
    return found


def _unchecked(measured: Mapping[str, Measurements], ceilings: Measurements | None) -> dict[str, int]:
    """Number of rows whose throughput nothing bounds, by types of operands and sums."""
    unchecked: dict[str, int] = {}
    for name, of in measured.items():
        gpu, known = of.run.get("gpu") or {}, Ceilings()
        if ceilings is not None and gpu and ceilings.gpu == of.gpu:
            cells = ceilings.summary[["kernel", "tflops", "gbps", "clock_mhz"]].astype(object)
            known = Ceilings.of(cells.where(cells.notna(), "").astype(str).to_dict("records"), ceilings.run)
        for kernel in registry.kernels(name):
            rows = select(of.summary, kernel=kernel.id)
            if (count := int(rows["tflops"].notna().sum())) and limit(kernel, gpu, known) is None:
                unchecked[sums(kernel)] = unchecked.get(sums(kernel), 0) + count
    return unchecked


def _untimed(measured: Mapping[str, Measurements], lacking: set[str]) -> list[tuple[str, str, list[str]]]:
    """Kernels that no sweep timed: the reason, the toolkits if others timed them, and their names."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for of in measured.values():
        toolkits: dict[tuple[str, str], set[str]] = {}
        for entry in of.run.get("skipped") or []:
            if entry["kernel"] not in lacking:
                toolkits.setdefault((entry["kernel"], entry["reason"]), set()).add(entry["toolkit"])
        for (kernel, reason), left_out in toolkits.items():
            others = set(select(of.summary, kernel=kernel)["toolkit"]) - left_out
            kernels.setdefault((reason, f" with {listed(sorted(left_out))}" if others else ""), []).append(kernel)
    return [(reason, by, names) for (reason, by), names in kernels.items()]


def main(options: Namespace) -> int:
    inputs = Inputs(options)
    pages = render(inputs)
    bundle.write(pages, inputs.files, options.out)
    paper = len(pages["index.html"].encode())
    print(f"wrote {options.out}/index.html, {paper / 1e6:.2f} MB, and {len(pages) - 1} pages beside it")
    return 0
