"""The paper's own figures, of the recorded rows: legible in both widths, small, and true to their rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from drawn_text import boxes, faults, size_of

from gemmrepro import registry
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import paper_figures as findings
from gemmrepro.experiments import results
from gemmrepro.figures import catalogue as families
from gemmrepro.figures import style
from gemmrepro.figures.findings import accumulation, catalogue, issuing, row, statements
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.judge import claims
from gemmrepro.measure.regimes import rows as regime_rows
from gemmrepro.measure.rows import load
from gemmrepro.paper.claims import ClaimView, MeasuredView, VerdictsView

RECORDED = ROOT / "reports" / "recorded" / "h200"
SHOWN = 300
"""Pixels of a phone's column."""


def judged(name: str, article: str, verdict: str, over: float) -> ClaimView:
    """A claim that was judged at `over` times the published value."""
    value = MeasuredView(over, "ratio", over, over, (), "")
    rest = {"covered_by": None, "correction": None, "kernels": (), "published": (), "judged_on": None}
    words = dict.fromkeys(("where", "statement", "transfer", "transfer_reason", "explanation", "command"), "")
    return ClaimView(
        id=name,
        family=article,
        article=article,
        register="article",
        way="measured",
        verdict=verdict,
        judged=(value,),
        expected=1.0,
        tolerance=0.1,
        **rest,
        **words,
    )


def verdicts() -> VerdictsView:
    """Sixty statements of two articles, from a hundredth to a hundred times what was published."""
    kinds = ("reproduced", "partly", "not reproduced")
    made = [judged(f"{i}", ("ladder", "ozaki")[i % 2], kinds[i % 3], 10 ** ((i - 30) / 15)) for i in range(60)]
    return VerdictsView(tuple(made), "NVIDIA H200", "recorded", {})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    folder = tmp_path_factory.mktemp("experiments")
    names = registry.family_names()
    for name in names:
        if (recorded := RECORDED / name / "experiments").is_dir():
            shutil.copytree(recorded, folder / name)
    for name in findings.REGIMES:
        shutil.copytree(RECORDED / name / "regimes" / "1", folder / "regimes" / name)
    return Inputs(
        verdicts(),
        {claim.id: claim.value for claim in claims.load()},
        {name: load(RECORDED, name) for name in names},
        {name: results.load(folder, name) for name in names},
        {name: regime_rows.load(folder / "regimes", name) for name in names},
    )


@pytest.fixture(scope="module")
def drawn(inputs) -> Iterator[dict[str, style.Drawing]]:
    yield catalogue.draw(inputs)
    plt.close("all")


@pytest.fixture(scope="module")
def svgs(drawn) -> dict[str, tuple[str, str]]:
    return {name: (families.svg_of(each), families.svg_of(each, each.narrow)) for name, each in drawn.items()}


def test_every_finding_is_drawn(drawn):
    assert list(drawn) == findings.drawn(registry.family_names())
    assert list(findings.FINDINGS) == list(catalogue.PAINTERS)
    for name, drawing in drawn.items():
        judged = not name.startswith("stated_") or name in ("stated_ladder", "stated_ozaki")
        assert bool(drawing.table) == ("not measured" not in drawing.title) == judged, name
        assert len(drawing.alt) in style.SAID and drawing.alt != drawing.title, name
        assert len(drawing.title) < 120 and not drawing.title.endswith("."), name


def test_the_paper_shows_at_most_fifteen_figures():
    """A family that no finding shows has its figures on its own page alone."""
    assert len(findings.FINDINGS) <= 15


def test_what_a_scheduler_issues_adds_up(inputs):
    """Of its cycles; the multiply-adds of every level are at least those of the product, 4096^3, and few more."""
    shown = issuing.levels(inputs)
    assert len(shown) > 10
    assert all(0 < one.useful <= one.issuing <= 1 and one.other >= 0 for one in shown)
    best = max(shown, key=lambda one: one.useful)
    assert best.useful > 0.7 > 0.05 > shown[0].useful


def test_a_row_is_the_median_of_its_rounds(inputs):
    life = row.read(inputs)
    assert life is not None
    medians = [float((each["baseline_us"] / each["time_us"]).median()) for each in life.rounds]
    assert sorted(medians)[len(medians) // 2] == pytest.approx(float(life.row["ratio"]), rel=1e-4)
    assert life.count == life.row["samples"]


def test_lines_that_coincide_are_one(inputs, drawn):
    names = {each["sum kept"] for each in drawn["accumulation"].table}
    assert "inside mma, cuBLAS" in names and len(names) == 5
    lines = {
        "inside mma": accumulation.Line({64: 1.0}, False, ("a",)),
        "cuBLAS": accumulation.Line({64: 2.0}, False, ()),
    }
    assert accumulation.merged(lines) == lines
    assert accumulation.merged({**lines, "cuBLAS": lines["inside mma"]}).keys() == {"inside mma, cuBLAS"}


def test_no_text_leaves_a_finding_or_meets_another(svgs):
    assert {name: found for name, both in svgs.items() for svg in both if (found := faults(svg))} == {}


def test_findings_are_small(svgs):
    for name, both in svgs.items():
        for svg in both:
            assert len(svg.encode()) <= 40_000 and len(re.findall(r"<[a-zA-Z]", svg)) <= 1_200, name


def test_the_smallest_letters_are_legible_on_a_phone(svgs):
    for name, (_, narrow) in svgs.items():
        pixels = SHOWN / size_of(narrow)[0]
        assert min(box.size for box in boxes(narrow)) * pixels >= 10, name


def test_colours_of_a_finding_are_those_of_the_page(svgs):
    for name, both in svgs.items():
        for svg in both:
            literal = set(re.findall(r"(?<!,)(#[0-9a-f]{6})\b", svg.split("@media")[0]))
            assert not literal, (name, literal)


def test_no_two_statements_of_one_verdict_hide_each_other(inputs, drawn):
    shown = statements.compared(inputs)
    assert len(shown) == 60 and len(drawn["statements"].table) == 60
    assert [one.over for one in shown] == pytest.approx([10 ** ((i - 30) / 15) for i in range(60)])
    assert drawn["statements"].title == "Of 60 decided statements 20 hold on H200"


def test_without_rows_findings_say_so(inputs, tmp_path: Path):
    names = registry.family_names()
    bare = Inputs(
        replace(verdicts(), claims=()),
        {},
        {name: load(tmp_path, name) for name in names},
        {name: results.load(None, name) for name in names},
    )
    for name, drawing in catalogue.draw(bare).items():
        assert families.svg_of(drawing) and families.svg_of(drawing, drawing.narrow), name
        assert len(drawing.alt) in style.SAID, name
    assert findings.names(["ladder"]) == ["statements", "articles", "stages", "row", "ladder", "shares", "issuing"]
