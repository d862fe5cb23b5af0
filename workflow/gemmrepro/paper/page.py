"""Writes the paper: ``reports/index.html``, one file that opens from disk with no network.

Everything in it follows from the files that the earlier stages wrote; the template is in ``reports/template``. A stage
that did not run, a family that was not measured, or a container that was not built is stated, not hidden.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import jinja2
from markupsafe import Markup

from gemmrepro.core.files import write_atomic
from gemmrepro.core.names import SIZE, SNAKEMAKE
from gemmrepro.core.text import as_published, listed
from gemmrepro.errors import run_stage
from gemmrepro.judge import claims as declared_claims
from gemmrepro.judge.metrics import metric_rules
from gemmrepro.judge.rules import verdict_rules
from gemmrepro.judge.ways import register_rules, way_rules
from gemmrepro.paper.claims import by_article, disagreements
from gemmrepro.paper.family import FamilyView, family_view
from gemmrepro.paper.figure_views import FigureView
from gemmrepro.paper.figures.findings import FINDINGS
from gemmrepro.paper.inputs import TEMPLATES, Inputs, read_inputs
from gemmrepro.paper.limits import limits
from gemmrepro.paper.machine import machine_view, recordings
from gemmrepro.paper.mechanisms import explained, mechanisms
from gemmrepro.paper.references import references
from gemmrepro.paper.summary import gate_tally, headlines
from gemmrepro.paper.text import MARKS, TRANSFER_WORDS, anchor, code_spans, number, pack


def render(inputs: Inputs) -> str:
    """The whole page as HTML."""
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
        "pack": pack,
        "listed": listed,
    }
    found, families = numbered(inputs.findings, [family_view(name, inputs) for name in inputs.families])
    declared = {claim.id: claim for claim in declared_claims.load(tuple(inputs.families))}
    page = environment.get_template("index.html.j2").render(
        style=Markup((TEMPLATES / "paper.css").read_text()),
        script=Markup((TEMPLATES / "paper.js").read_text()),
        verdicts=inputs.verdicts,
        marks=MARKS,
        transfer_words=TRANSFER_WORDS,
        families=families,
        findings=found,
        findings_of={family.name: [found[name] for name in placed(family.name, found)] for family in families},
        headlines=headlines(families),
        gates=gate_tally(families),
        machine=machine_view(inputs.measured, inputs.config.get("sweep", {})),
        locks=inputs.locks,
        recordings=recordings(families, inputs.measured),
        limits=limits(inputs, families),
        by_article=by_article(inputs.verdicts.claims),
        disagreements=disagreements(inputs.verdicts.claims, {name: claim.value for name, claim in declared.items()}),
        figures={name: claim.figure for name, claim in declared.items()},
        snakemake=SNAKEMAKE,
        size=SIZE,
        references=references(),
        mechanisms=explained(inputs.verdicts.claims, mechanisms()),
        verdict_rules=verdict_rules(),
        metric_rules=metric_rules(),
        way_rules=way_rules(),
        register_rules=register_rules(),
    )
    return "\n".join(line.rstrip() for line in page.splitlines()) + "\n"


def placed(family: str, found: Mapping[str, FigureView]) -> list[str]:
    """The paper's own figures that belong to a family's results: those that need it first. "" is the whole paper."""
    return [name for name in found if (FINDINGS[name] or ("",))[0] == family]


def numbered(
    found: Mapping[str, FigureView], families: Sequence[FamilyView]
) -> tuple[dict[str, FigureView], list[FamilyView]]:
    """All figures numbered across the page: those of the whole paper, then of each family its findings and its own."""
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
    parser.add_argument("--config", type=Path, required=True, help="the whole configuration as JSON")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    page = render(read_inputs(arguments))
    write_atomic(arguments.out, page)
    print(f"wrote {arguments.out}, {len(page.encode()) / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    run_stage(main)
