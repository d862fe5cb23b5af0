"""Writes the report: a folder of pages that opens from disk with no network.

``index.html`` is the paper; beside it are a page of claims, one for each family, kernel and baseline, one of the runs,
one of commands, and the files that they link to. Everything follows from the files that the earlier stages wrote;
the templates are in ``reports/template``. A stage that did not run, a family that was not measured, or a container that
was not built is stated, not hidden.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gemmrepro.core import paths, schemas
from gemmrepro.core.names import REPORT_PAGES, SIZE, SNAKEMAKE
from gemmrepro.core.text import as_published, listed
from gemmrepro.errors import run_stage
from gemmrepro.experiments import paper_figures
from gemmrepro.judge import claims as declared_claims
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.metrics import metric_rules
from gemmrepro.judge.rules import COVERED, verdict_rules
from gemmrepro.judge.ways import register_rules, way_rules
from gemmrepro.measure.rows import Measurements, counted
from gemmrepro.paper import bundle, evidence_index, exports
from gemmrepro.paper.accuracy import ALLOWED, Accuracies
from gemmrepro.paper.baselines import BaselinePage, baseline_pages
from gemmrepro.paper.citation import Citation, citation, linked_data
from gemmrepro.paper.claims import by_article, disagreements, distance
from gemmrepro.paper.family import FamilyView, family_view
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.findings import reference_gpu
from gemmrepro.paper.gates import gate_tally
from gemmrepro.paper.gpus import Gpu, SideBySide, side_by_side
from gemmrepro.paper.inputs import TEMPLATES, Inputs, read_inputs
from gemmrepro.paper.limits import limits
from gemmrepro.paper.machine import machine_view, runnable
from gemmrepro.paper.policy import LOADER, PAPER, secured, tidy
from gemmrepro.paper.references import explained, mechanisms, references
from gemmrepro.paper.regimes import PRECISE, recommendations, regime_lines
from gemmrepro.paper.rows import row_anchor
from gemmrepro.paper.search import SEARCH, search_script
from gemmrepro.paper.text import MARKS, TRANSFER_WORDS, anchor, code_spans, number


def render(inputs: Inputs) -> dict[str, str]:
    """Every page as HTML, by its place in the bundle; what they link to goes to the inputs' `files`."""
    found, families = numbered(inputs.findings, [family_view(name, inputs) for name in inputs.families])
    baselines = baseline_pages(inputs)
    for name in ("paper.css", "paper.js"):
        inputs.files.add(TEMPLATES / name, f"assets/{name}")
    declared = {claim.id: claim for claim in declared_claims.load(tuple(inputs.families), judged=True)}
    metrics = {f"claim-{anchor(name)}": claim.metric for name, claim in declared.items()}
    script = evidence_index.evidence_script(families, baselines, found, metrics)
    inputs.files.text(script, evidence_index.SCRIPT)
    environment = _environment(inputs, declared, found, families, baselines)
    cited = _cited(inputs)
    environment.globals |= {"cited": cited, "linked_data": linked_data(cited, references(), _described(families))}
    pages = {}

    def page(place: str, template: str, **own: Any) -> None:
        text = environment.get_template(template).render(place=place, **own)
        pages[place] = tidy(text)

    page("index.html", "index.html.j2")
    for name in REPORT_PAGES[1:]:
        page(f"{name}.html", f"{name}.html.j2")
    for family in families:
        page(f"families/{family.name}.html", "family.html.j2", family=family)
        if family.rows:
            page(f"families/{family.name}-rows.html", "rows.html.j2", family=family)
        for place, kernel in enumerate(family.kernels):
            beside = {
                "earlier": family.kernels[place - 1] if place else None,
                "later": family.kernels[place + 1] if place + 1 < len(family.kernels) else None,
            }
            page(f"kernels/{kernel.id}.html", "kernel.html.j2", family=family, kernel=kernel, **beside)
    for baseline in baselines:
        page(f"baselines/{baseline.id}.html", "baseline.html.j2", baseline=baseline)
    _exports(inputs, declared, cited)
    inputs.files.text(search_script(inputs.verdicts.claims, families, pages["index.html"]), SEARCH)
    return {place: secured(text) for place, text in bundle.resolved(pages, inputs.files).items()}


def _environment(
    inputs: Inputs,
    declared: Mapping[str, Claim],
    found: Mapping[str, FigureView],
    families: Sequence[FamilyView],
    baselines: Sequence[BaselinePage],
) -> jinja2.Environment:
    """What every template sees."""
    lines = regime_lines(inputs.measured, inputs.regimes, Accuracies.of(inputs.experiments))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "anchor": anchor,
        "code_spans": code_spans,
        "number": number,
        "as_published": as_published,
        "listed": listed,
    }
    environment.globals |= {
        "families": families,
        "findings": found,
        "findings_of": {family.name: [found[name] for name in placed(family.name, found)] for family in families},
        "also_in": {family.name: [found[name] for name in also_in(family.name, found)] for family in families},
        "baselines": baselines,
        "gates": gate_tally(families),
        "runnable": runnable([family.name for family in families], inputs.measured.values()),
        "machine": machine_view(inputs.measured, inputs.config.get("sweep", {})),
        "locks": inputs.locks,
        "limits": limits(inputs, families),
        "reference_gpu": reference_gpu(),
        "regimes": lines,
        "recommendations": recommendations(lines),
        "allowed": ALLOWED,
        "precise": PRECISE,
        "side_by_side": _side_by_side(inputs),
        **_of_claims(inputs, declared),
        **_of_the_project(),
    }
    macros = environment.get_template("macros.j2").module
    environment.globals |= {name: macro for name, macro in vars(macros).items() if not name.startswith("_")}
    return environment


def _of_the_project() -> dict[str, Any]:
    """What templates see that does not depend on the run."""
    return {
        "style": Markup((TEMPLATES / "paper.css").read_text()),
        "script": Markup(PAPER.read_text()),
        "loader": Markup(LOADER),
        "marks": MARKS,
        "transfer_words": TRANSFER_WORDS,
        "snakemake": SNAKEMAKE,
        "size": SIZE,
        "references": references(),
        "verdict_rules": verdict_rules(),
        "metric_rules": metric_rules(),
        "way_rules": way_rules(),
        "register_rules": register_rules(),
    }


def _of_claims(inputs: Inputs, declared: Mapping[str, Claim]) -> dict[str, Any]:
    """What templates see of the claims and their verdicts."""
    verdicts = inputs.verdicts
    stated = verdicts.counts["article"]
    published = {name: (claim.value, claim.unit) for name, claim in declared.items()}
    gpus = [measured.run["gpu"] for measured in inputs.measured.values() if measured.run.get("gpu")]
    capability = str(gpus[0].get("compute_capability", "")) if gpus else ""
    return {
        "verdicts": verdicts,
        "total": len(verdicts.claims),
        "stated": stated,
        "statements": sum(stated.values()) - stated[COVERED],
        "gpu": verdicts.gpu,
        "gpus": {name: measured.gpu for name, measured in inputs.measured.items() if measured.gpu},
        "by_article": by_article(verdicts.claims),
        "disagreements": disagreements(verdicts.claims, published),
        "distances": {
            claim.id: distance(over) for claim in verdicts.claims if (over := claim.over(published.get(claim.id)))
        },
        "figures": {name: claim.figure for name, claim in declared.items()},
        "few": {row_anchor(row) for family in inputs.measured.values() for row in _few_samples(family)},
        "mechanisms": explained(verdicts.claims, mechanisms(), capability),
    }


def _side_by_side(inputs: Inputs) -> SideBySide:
    own = Gpu(inputs.verdicts.gpu or "not measured", inputs.measured, inputs.verdicts)
    return side_by_side(own, inputs.others, inputs.regimes)


def _cited(inputs: Inputs) -> Citation:
    """How to cite the report: its title names the GPU, its date is that of the measurements."""
    gpu = inputs.verdicts.gpu
    return citation(f"GEMM articles, checked{f' on {gpu}' if gpu else ''}", machine_view(inputs.measured, {}).date)


def _few_samples(family: Measurements) -> list[Any]:
    """The rows whose interval comes from too few samples to be printed."""
    return [row for row in family.summary.to_dict("records") if not counted(row)]


def _exports(inputs: Inputs, declared: Mapping[str, Claim], cited: Citation) -> None:
    """Add the files for programs."""
    files = inputs.files
    values = {name: claim.value for name, claim in declared.items()}
    files.text(exports.claims_csv(inputs.verdicts, values), "data/claims.csv")
    files.text(json.dumps(exports.claims_schema(), indent=2) + "\n", "data/claims.schema.json")
    files.text(json.dumps(schemas.load("verdicts.schema.yaml"), indent=2) + "\n", "data/verdicts.schema.json")
    files.text(exports.badge(inputs.verdicts), "data/badge.svg")
    files.text(exports.badge_endpoint(inputs.verdicts), "data/badge.json")
    files.text(cited.bibtex, "data/citation.bib")
    files.add(paths.KERNELS_DIR / "published.csv", "data/published.csv")


def _described(families: Sequence[FamilyView]) -> dict[str, str]:
    """The data that the report offers, for those who look for data: places and what is there."""
    told = {
        "data/claims.csv": "every claim with its verdict; claims.schema.json describes the columns",
        "data/verdicts.json": "every claim with the values and rows behind its verdict; see verdicts.schema.json",
        "data/published.csv": "every number that the articles print",
    }
    for family in families:
        for link, meaning in ((family.summary_link, "measured rows"), (family.samples_link, "samples")):
            if link:
                told[link] = f"{family.title}: {meaning}"
    return told


def placed(family: str, found: Mapping[str, FigureView]) -> list[str]:
    """The paper's own figures that belong to a family's results: those that need it first. "" is the whole paper."""
    needed = paper_figures.needed()
    return [name for name in found if (needed[name] or ("",))[0] == family]


def also_in(family: str, found: Mapping[str, FigureView]) -> list[str]:
    """The paper's own figures that show a family beside the one to whose results they belong."""
    needed = paper_figures.needed()
    return [name for name in found if family in needed[name][1:]]


def numbered(
    found: Mapping[str, FigureView], families: Sequence[FamilyView]
) -> tuple[dict[str, FigureView], list[FamilyView]]:
    """All figures numbered: those of the whole paper, then of each family its findings and its own."""
    numbers = count(1)
    ours = {name: dataclasses.replace(found[name], number=next(numbers)) for name in placed("", found)}
    shown = []
    for family in families:
        ours |= {name: dataclasses.replace(found[name], number=next(numbers)) for name in placed(family.name, found)}
        own = tuple(dataclasses.replace(figure, number=next(numbers)) for figure in family.figures)
        shown.append(dataclasses.replace(family, figures=own))
    return ours, shown


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the report.")
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows per family")
    parser.add_argument("--gates", type=Path, required=True, help="folder with one gate verdict per kernel")
    parser.add_argument("--build", type=Path, required=True, help="folder with the build records")
    parser.add_argument("--figures", type=Path, required=True, help="folder with one folder of figures per family")
    parser.add_argument("--images", type=Path, required=True, help="folder with the images' lock files; may be empty")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments per family")
    parser.add_argument("--regimes", type=Path, help="folder with one folder of rows of the regimes per family")
    parser.add_argument(
        "--gpus", type=Path, nargs="*", default=[], help="folders of judged recordings, one per other GPU"
    )
    parser.add_argument("--recorded", type=Path, help="a GPU's recordings, for what compute-sanitizer said there")
    parser.add_argument("--config", type=Path, required=True, help="the whole configuration as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report; index.html begins it")
    arguments = parser.parse_args()
    inputs = read_inputs(arguments)
    pages = render(inputs)
    bundle.write(pages, inputs.files, arguments.out)
    paper = len(pages["index.html"].encode())
    print(f"wrote {arguments.out}/index.html, {paper / 1e6:.2f} MB, and {len(pages) - 1} pages beside it")
    return 0


if __name__ == "__main__":
    run_stage(main, collect=False)
