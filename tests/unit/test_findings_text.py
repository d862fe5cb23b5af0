"""The families' findings.md: each number is a cell of the recording, and the text stays true on every GPU."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import World
from test_report import made

from gemmrepro.core import paths
from gemmrepro.core.names import REFERENCE
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.measure.rows import load
from gemmrepro.paper import findings
from gemmrepro.paper.findings import number, reference_gpu, render
from gemmrepro.paper.text import row_anchor
from gemmrepro.registry.articles import article, article_names

FILES = sorted(paths.KERNELS_DIR.glob(f"*/{findings.FILE}"))
RECORDED = paths.RECORDINGS / REFERENCE
L7 = "ratio ladder.warptile 4096"
ROW = "row-ladder-warptile-cuda12-fp32-4096x4096x4096-warm"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_number_is_a_cell_of_the_recording(path: Path) -> None:
    found = render(path.parent.name, {})
    assert found and "{" not in found.text and "\ue000" not in found.text
    bare = re.sub(r"\{[^{}]+\}", "", path.read_text())
    assert re.findall(r"\d\.\d+\s(?:of|times)\b|\d\s(?:[GT]FLOP|TB)/s", bare) == [], "a number without a reference"


def documented(name: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of the findings in README.md or docs/limits-and-findings.md, and the cells that their comments name."""
    (table,) = re.findall(
        r"^\| \| published \| H200 .*\n\|.*\n((?:\|.*\n)+)", (paths.ROOT / name).read_text(), re.MULTILINE
    )
    for line in table.splitlines():
        text, _, comment = line.partition(" <!-- ")
        yield re.sub(r"(level|rung|CUDA) [\d.]+", "", text), comment.removesuffix(" --> |").split("; ")


def of_documents(reference: str) -> findings.Number:
    """The number of a cell; one of an experiment or in print is preceded by its family."""
    found = re.fullmatch(r"(?:(\w+): )?(.*)", reference)
    assert found
    return number(found[2], found[1] or "", {})


@pytest.mark.parametrize("name", ["README.md", "docs/limits-and-findings.md"])
def test_each_number_of_the_documents_is_the_cell_that_its_row_names_as_the_report_prints_it(name: str) -> None:
    rows = list(documented(name))
    assert len(rows) >= 12
    for text, references in rows:
        cells = [of_documents(each).text for each in references]
        assert re.findall(r"\d+\.\d+(?:e-?\d+)?", text) == [cell for cell in cells if "." in cell], text
        assert all(re.search(rf"\b{re.escape(cell)}\b", text) for cell in cells), text


def test_a_number_leads_to_the_row_that_the_report_shows() -> None:
    rows = {row_anchor(row): row for row in load(RECORDED, "ladder").summary.to_dict("records")}
    shown = number(L7, "ladder", rows)
    assert shown.rows == (ROW,)
    assert shown.html(L7) == f'<a href="#{ROW}" aria-label="{shown.text}, {L7}">{shown.text}</a>'
    other = {ROW: {**rows[ROW], "ratio": 0.5}}
    for elsewhere in ({}, other):
        assert number(L7, "ladder", elsewhere).html(L7) == f"<span data-recorded>{shown.text}</span>"


def test_a_quotient_tells_its_terms_and_a_published_number_is_marked() -> None:
    rows = {row_anchor(row): row for row in load(RECORDED, "ladder").summary.to_dict("records")}
    tuned = number(f"ratio ladder.warptile_tuned 4096 / {L7}", "ladder", rows)
    terms = [number(term, "ladder", rows) for term in ("ratio ladder.warptile_tuned 4096", L7)]
    assert tuned.value == terms[0].value / terms[1].value and tuned.rows == terms[0].rows + terms[1].rows
    assert f'data-formula="{terms[0].text} \N{DIVISION SIGN} {terms[1].text}"' in tuned.html("")
    printed = number('published.ratio_to_cublas "L7 warptile" 4096', "ladder", rows)
    assert printed.html("") == "<span data-published>0.937</span>"
    assert number(f"{L7} / published.ratio_to_cublas 'L7 warptile' 4096", "ladder", rows).rows == (ROW,)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("ratio ladder.nave 4096", "no row with kernel ladder.nave there, but .*ladder.naive"),
        ("ratio ladder.naive 4095", "no row with n 4095 there, but .*4096"),
        ("speed ladder.naive 4096", "summary.csv has no column speed; it has .*tflops"),
        ("latency.cycles ceilings.walk_global", r"\d+ rows of .*latency.csv match; choose by level"),
        ("misses.cycles ceilings.chain", "there is no reports/recorded/h200/ladder/experiments/misses.csv"),
        ("ratio", "a reference is a column"),
        (f"{L7} / {L7} / {L7}", "a quotient is of two numbers"),
        ("ratio 'ladder.naive", "No closing quotation"),
    ],
)
def test_a_wrong_reference_is_one_line_that_says_where(tmp_path, monkeypatch, reference, words) -> None:
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder" / findings.FILE).write_text(f"A\n\n### B {{{reference}}}\n")
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    with pytest.raises(UserError, match=rf"^kernels/ladder/findings.md, line 3: \{{.*{words}") as caught:
        render("ladder", {})
    assert "\n" not in str(caught.value)


def test_markdown_is_escaped_and_its_tables_are_those_of_the_report(tmp_path, monkeypatch) -> None:
    (tmp_path / "ladder").mkdir()
    text = f"> Said {{{L7}}}.\n\n<b>a</b> & b\n\nTable: Rows of {{{L7}}}.\n\n| x | y |\n|:--|--:|\n| one | {{{L7}}} |\n"
    (tmp_path / "ladder" / findings.FILE).write_text(text)
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    found, cell = render("ladder", {}), number(L7, "ladder", {}).html(L7)
    assert found.abstract == f"Said {cell}."
    assert "&lt;b&gt;a&lt;/b&gt; &amp; b" in found.text and "Said" not in found.text
    assert 'aria-label="Rows of ."' in found.text and f"<caption><span>Rows of {cell}.</span></caption>" in found.text
    assert '<th scope="col" class="n">y</th>' in found.text
    assert f'<th scope="row">one</th>\n<td class="n">{cell}</td>' in found.text


def test_stories_of_articles_are_told_with_their_numbers() -> None:
    """Each number is a cell of the recording, and six stories stand on the first page."""
    known = {claim.id: claim.family for claim in claims.load(judged=True)}
    stories = [story for name in article_names() for story in article(name).stories.items()]
    told = {name: findings.told(text, known[name], {}) for name, text in stories}
    assert len(told) == 6 and all(text.startswith("<strong>") for text in told.values())
    assert "inside the tensor core err up to <span data-recorded>461</span> times as much" in told["ada.outside"]
    with pytest.raises(UserError, match=r"^line 1: \{ratio\}: a reference is a column"):
        findings.told("{ratio}", "ladder", {})


def test_on_the_reference_gpu_they_come_first(tmp_path) -> None:
    report = made(World(tmp_path, sizes=(4096,), samples=False, gpu=reference_gpu()), drawn=False)
    page = report.text["families/ladder.html"]
    assert "<h2>Findings</h2>" in page and "<details>\n<summary>What was found" not in page
    assert page.index('id="rungs-ladder"') < page.index('id="findings-ladder"')
    assert 'id="rows-ladder"' in report.text["families/ladder-rows.html"]
    assert "SGEMM ladder" in report.page["index.html"].words
    assert report.paper.count('class="finding-said"') == 1
