"""Writes the report: a folder of pages that opens from disk with no network.

``index.html`` is the paper; beside it are a page of claims, one for each family, kernel and baseline, one of the runs,
one of commands, and the files that they link to. Everything follows from the files that the earlier stages wrote;
the templates are in ``reports/template``. A stage that did not run, a family that was not measured, or a container that
was not built is stated, not hidden.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import jinja2
from markupsafe import Markup

from gemmrepro.core.names import REPORT_PAGES, SIZE, SNAKEMAKE
from gemmrepro.core.text import as_published, listed
from gemmrepro.experiments import paper_figures
from gemmrepro.judge import claims as declared_claims
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.rules import COVERED, VERDICTS
from gemmrepro.judge.ways import REGISTERS, WAYS
from gemmrepro.measure.rows import counted
from gemmrepro.paper import bundle, exports
from gemmrepro.paper.bundle import LOADER, PAPER, secured, tidy
from gemmrepro.paper.claims import by_article, disagreements, distance, explained, mechanisms, references
from gemmrepro.paper.family import baseline_pages, family_view
from gemmrepro.paper.findings import reference_gpu
from gemmrepro.paper.gates import gate_tally
from gemmrepro.paper.gpus import Gpu, machine_view, runnable, side_by_side
from gemmrepro.paper.inputs import TEMPLATES, FigureView, Inputs
from gemmrepro.paper.limits import limits
from gemmrepro.paper.regimes import ALLOWED, PRECISE, Accuracies, recommendations, regime_lines
from gemmrepro.paper.text import (
    MARKS,
    TRANSFER_WORDS,
    View,
    anchor,
    code_spans,
    counter_anchor,
    number,
    row_anchor,
    size_text,
)


def render(inputs: Inputs) -> dict[str, str]:
    """Every page as HTML, by its place in the bundle; what they link to goes to the inputs' `files`."""
    families = [family_view(name, inputs) for name in inputs.families]
    findings = numbered(inputs.findings, families)
    needed = paper_figures.needed()
    baselines = baseline_pages(inputs)
    declared = {claim.id: claim for claim in declared_claims.load(tuple(inputs.families), judged=True)}
    lines = regime_lines(inputs.measured, inputs.regimes, Accuracies.of(inputs.experiments))
    machine = machine_view(inputs.measured, inputs.config.get("sweep", {}))
    gpu = inputs.verdicts.gpu
    cited = exports.citation(f"GEMM articles, checked on {gpu}" if gpu else "GEMM articles, checked", machine.date)
    own = Gpu(gpu or "not measured", inputs.measured, inputs.verdicts)
    environment = _environment()
    environment.globals |= {
        "families": families,
        "findings": findings,
        "findings_of": {family.name: [findings[name] for name in placed(family.name, findings)] for family in families},
        "also_in": {
            family.name: [figure for name, figure in findings.items() if family.name in needed[name][1:]]
            for family in families
        },
        "baselines": baselines,
        "gates": gate_tally(families),
        "runnable": runnable(inputs.families, inputs.measured.values()),
        "machine": machine,
        "locks": inputs.locks,
        "limits": limits(inputs, families),
        "reference_gpu": reference_gpu(),
        "regimes": lines,
        "recommendations": recommendations(lines),
        "side_by_side": side_by_side(own, inputs.others, inputs.regimes),
        "cited": cited,
        **_of_claims(inputs, declared),
    }
    macros = environment.get_template("macros.j2").module
    environment.globals |= {name: macro for name, macro in vars(macros).items() if not name.startswith("_")}
    pages = _pages(environment, families, baselines)
    files = inputs.files
    for name in ("paper.css", "paper.js"):
        files.add(TEMPLATES / name, f"assets/{name}")
    files.text(exports.search_script(inputs.verdicts.claims, families, pages["index.html"]), exports.SEARCH)
    metrics = {f"claim-{anchor(name)}": claim.metric for name, claim in declared.items()}
    files.text(exports.evidence_script(families, baselines, findings, metrics), exports.EVIDENCE)
    files.text(environment.get_template("badge.svg.j2").render(verdicts=inputs.verdicts), "data/badge.svg")
    exports.add_exports(files, inputs.verdicts, {name: claim.value for name, claim in declared.items()}, cited)
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
    for family in families:
        page(f"families/{family.name}.html", "family.html.j2", family=family)
        if family.rows:
            page(f"families/{family.name}-rows.html", "rows.html.j2", family=family)
        beside = [None, *family.kernels, None]
        for earlier, kernel, later in zip(beside, family.kernels, beside[2:], strict=False):
            seen = {"family": family, "kernel": kernel, "earlier": earlier, "later": later}
            page(f"kernels/{kernel.id}.html", "kernel.html.j2", **seen)
    for baseline, parts in baselines.items():
        page(f"baselines/{baseline}.html", "baseline.html.j2", baseline=baseline, parts=parts)
    return pages


def _environment() -> jinja2.Environment:
    """The templates, with what they see whatever the run."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = (anchor, as_published, code_spans, counter_anchor, listed, number, size_text)
    environment.filters |= {each.__name__: each for each in filters}
    environment.globals |= {
        "style": Markup((TEMPLATES / "paper.css").read_text()),
        "script": Markup(PAPER.read_text()),
        "loader": Markup(LOADER),
        "marks": MARKS,
        "transfer_words": TRANSFER_WORDS,
        "snakemake": SNAKEMAKE,
        "size": SIZE,
        "allowed": ALLOWED,
        "precise": PRECISE,
        "references": references(),
        "verdict_rules": VERDICTS.items(),
        "metric_rules": [(word, metric.rule) for word, metric in METRICS.items()],
        "way_rules": WAYS.items(),
        "register_rules": REGISTERS.items(),
    }
    return environment


def _of_claims(inputs: Inputs, declared: Mapping[str, Claim]) -> dict[str, Any]:
    """What templates see of the claims and their verdicts."""
    verdicts = inputs.verdicts
    stated = verdicts.counts["article"]
    published = {name: (claim.value, claim.unit) for name, claim in declared.items()}
    gpus = [measured.run["gpu"] for measured in inputs.measured.values() if measured.run.get("gpu")]
    capability = str(gpus[0].get("compute_capability", "")) if gpus else ""
    rows = [row for family in inputs.measured.values() for row in family.summary.to_dict("records")]
    quotients = {claim.id: claim.over(published.get(claim.id)) for claim in verdicts.claims}
    return {
        "verdicts": verdicts,
        "total": len(verdicts.claims),
        "stated": stated,
        "statements": sum(stated.values()) - stated[COVERED],
        "gpu": verdicts.gpu,
        "gpus": {name: measured.gpu for name, measured in inputs.measured.items() if measured.gpu},
        "by_article": by_article(verdicts.claims),
        "disagreements": disagreements(verdicts.claims, published),
        "distances": {name: distance(over) for name, over in quotients.items() if over},
        "figures": {name: claim.figure for name, claim in declared.items()},
        # Rows whose interval comes from too few samples to be printed.
        "few": {row_anchor(row) for row in rows if not counted(row)},
        "mechanisms": explained(verdicts.claims, mechanisms(), capability),
    }


def placed(family: str, findings: Mapping[str, FigureView]) -> list[str]:
    """The paper's own figures that belong to a family's results: those that need it first. "" is the whole paper."""
    needed = paper_figures.needed()
    return [name for name in findings if (needed[name] or ("",))[0] == family]


def numbered(findings: Mapping[str, FigureView], families: Sequence[View]) -> dict[str, FigureView]:
    """Number all figures: of the whole paper, then of each family the paper's and its own. Returns the paper's."""
    numbers = count(1)
    ours = {name: replace(findings[name], number=next(numbers)) for name in placed("", findings)}
    for family in families:
        ours |= {name: replace(findings[name], number=next(numbers)) for name in placed(family.name, findings)}
        drawn = () if family.unmeasured else family.figures
        family.figures = [replace(figure, number=next(numbers)) for figure in drawn]
    return ours


def main(options: Namespace) -> int:
    """Write the report."""
    inputs = Inputs(options)
    pages = render(inputs)
    bundle.write(pages, inputs.files, options.out)
    paper = len(pages["index.html"].encode())
    print(f"wrote {options.out}/index.html, {paper / 1e6:.2f} MB, and {len(pages) - 1} pages beside it")
    return 0
