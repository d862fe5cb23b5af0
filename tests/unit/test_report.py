"""The paper says what its inputs say, lacks nothing that it refers to, and fetches nothing."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from synthetic import LEVELS, World, stand_in

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.text import in_words
from gemmrepro.errors import UserError
from gemmrepro.figures import stage as figures
from gemmrepro.judge import claims, verdicts
from gemmrepro.judge.ways import REGISTERS, WAYS, register_rules, way_rules
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper import page as report
from gemmrepro.paper.bundle import Files, resolved
from gemmrepro.paper.claims import claim_view, disagreements, references
from gemmrepro.paper.exports import Citation, linked_data
from gemmrepro.paper.gates import gate_view, gather_checks
from gemmrepro.paper.gpus import machine_view
from gemmrepro.paper.inputs import inline_svg
from gemmrepro.paper.step import side_by_side
from gemmrepro.paper.text import anchor, histogram
from gemmrepro.registry.ladders import compared, heading, level_name

SIZES = (1024, 4096)
VOID = set("area base br col embed hr img input link meta source track wbr".split())


def call(module: ModuleType, *arguments: object) -> None:
    """Run a stage's main in this process, so that it sees the registry as a test has set it."""
    before, sys.argv = sys.argv, [module.__name__, *map(str, arguments)]
    try:
        assert not module.main()
    finally:
        sys.argv = before


def make(world: World, drawn: bool = True) -> Path:
    """Verdicts, figures (unless not `drawn`) and the report from a synthetic world; returns the paper's path."""
    root = world.root
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build]
    call(verdicts, *inputs, "--families", ",".join(world.families), "--out", root / "verdicts.json")
    for family in world.families if drawn else ():
        call(figures, "--family", family, "--measure", world.measure, "--out", root / "figures" / family)
    inputs += ["--verdicts", root / "verdicts.json", "--figures", root / "figures", "--images", world.images]
    call(report, *inputs, "--config", world.config, "--recorded", world.recorded, "--out", root / "report")
    return root / "report" / "index.html"


def texts(folder: Path) -> dict[str, str]:
    """The pages of a report, by their place in its folder; the paper comes first."""
    pages = sorted(folder.rglob("*.html"), key=lambda path: (path.name != "index.html", path))
    return {path.relative_to(folder).as_posix(): path.read_text() for path in pages}


class Page(HTMLParser):
    """Collects what the tests ask about, and refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.bare_headers = 0
        self.stack: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found.get("href", "")] if tag == "a" else []
        if tag in ("img", "script", "iframe", "video", "audio", "source", "link"):
            self.sources.append(found.get("href" if tag == "link" else "src", ""))
        self.tags.append(tag)
        self.bare_headers += tag == "th" and "scope" not in found
        self.stack += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.stack and self.stack[-1] == tag, f"</{tag}> closes {self.stack[-3:]}"
            self.stack.pop()

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def headings(self) -> list[int]:
        return [int(tag[1]) for tag in self.tags if re.fullmatch("h[1-6]", tag)]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@dataclass(frozen=True)
class Made:
    """A report: the text of each page by its place, and what the tests ask about it."""

    folder: Path
    text: dict[str, str]
    page: dict[str, Page]

    @classmethod
    def of(cls, paper: Path) -> Made:
        text = texts(paper.parent)
        return cls(paper.parent, text, {place: Page(markup) for place, markup in text.items()})

    @property
    def paper(self) -> str:
        return self.text["index.html"]

    @property
    def words(self) -> str:
        """What all pages say."""
        return " ".join(page.words for page in self.page.values())

    @property
    def markup(self) -> str:
        return "\n".join(self.text.values())

    def kernel(self, name: str) -> str:
        """The page of a kernel."""
        return self.text[f"kernels/{name}.html"]


def made(world: World, drawn: bool = True) -> Made:
    return Made.of(make(world.write(), drawn))


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Made:
    """The pages of two real families, of whose ladder only LEVELS are measured."""
    world = World(tmp_path_factory.mktemp("full"), sizes=SIZES).write()
    world.write_sanitizers("ladder.smem", ["found", "a race <here>", "SUMMARY: 1 hazard"], changed="cuda12")
    return Made.of(make(world))


@pytest.fixture(scope="module")
def lacking(tmp_path_factory) -> Made:
    """A page without counters, ceilings, containers, numerical gates, figures, and the article's size."""
    options = {"counters": False, "ceilings": False, "locks": False, "numeric": "not run", "sizes": (256,)}
    return made(World(tmp_path_factory.mktemp("lacking"), **options), drawn=False)


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Made:
    """A page of rows measured live, some stale, one gate failed, no samples kept, and markup in the GPU's name."""
    options = {"source": "live", "samples": False, "failed_gates": ("ladder.smem",), "stale": ("ladder.warptile",)}
    return made(World(tmp_path_factory.mktemp("odd"), sizes=(4096,), gpu="<script>alert(1)</script>", **options))


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Made:
    """A page of stand-in families of which nothing was built, judged or measured."""
    root = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, root)
        families = ("ladder", "hopper", "ceilings")
        world = World(root, families=families, ladder=False, ceilings=False, locks=False).write()
        for path in (*world.build.rglob("*.json"), *world.gates.rglob("*.json")):
            path.unlink()
        return Made.of(make(world, drawn=False))


@pytest.mark.parametrize("report", ["full", "whole", "lacking", "odd", "empty"])
def test_every_page_is_whole(report, request):
    """It nests, its links and files are there, none but references leads outside, and screen readers find their way."""
    made = request.getfixturevalue(report)
    cited = {each.url for each in references()} | {part["url"] for each in references() for part in each.parts}
    for place, page in made.page.items():
        text = made.text[place]
        assert not re.search(
            r"url\((?!#)|@import|\{\{|\{%|<[\w.]+ object at|\bNone\b(?! of)|\bnan\b", strip_code(text)
        ), place
        assert len(page.ids) == len(set(page.ids)), place
        folder = (made.folder / place).parent
        for source in page.sources:
            assert source in ("", "data:,") or (folder / source).is_file(), source
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                assert place == "index.html" and link in cited, link
                continue
            to, _, fragment = link.partition("#")
            target = folder / to if to else made.folder / place
            assert target.is_file(), f"{place}: {link}"
            if fragment and "=" not in fragment:
                home = target.resolve().relative_to(made.folder.resolve()).as_posix()
                assert fragment in made.page[home].ids, f"{place}: {link}"
        assert page.headings[0] == 1 and page.headings.count(1) == 1, place
        assert all(after - before <= 1 for before, after in pairwise(page.headings)), place
        assert page.tags.count("table") == page.tags.count("caption"), place
        assert page.bare_headers == 0, place
        for landmark in ("<header", "<nav", "<main", "<footer", 'class="skip"', '<html lang="en"'):
            assert landmark in text, place
    assert len(made.paper.encode()) < 1_500_000

    links = re.findall(COUNT, made.markup)
    claims = re.findall(CLAIM, made.text["claims.html"], re.DOTALL)
    for verdict, article, register, family, count in links:  # each count opens a list of its length
        verdicts = DECIDED if verdict == "decided" else (verdict.replace("%20", "-"),)
        wanted = (family, article, register)
        fits = [each for each in claims if all(not a or a == b for a, b in zip(wanted, each[:3], strict=True))]
        assert sum(not verdict or each[3] in verdicts for each in fits) == int(count), (verdict, *wanted)
    told = (made.folder / "data/evidence.js").read_text()
    rows = json.loads(told.removeprefix("gemmreproEvidence(").removesuffix(");\n"))["rows"]
    ids = {each for page in made.page.values() for each in page.ids if each.startswith("row-")}
    assert set(rows) == {each for each in ids if not each.startswith("row-counters")}


CLAIM = r'<tr id="claim-[^>]*data-family="(.*?)".*?class="where">([^,<]*),.*?<td>([^<]+)<.*?class="badge (.*?)"'
COUNT = r'claims.html#verdict=([^&]*)&amp;article=([^&]*)&amp;register=([^&]*)&amp;family=([^"]*)">(\d+)'
DECIDED = ("reproduced", "partly", "not-reproduced")


def strip_code(text: str) -> str:
    """A page without listings, scripts and links to files."""
    return re.sub(r"<(script|style|pre|code|title)\b.*?</\1>", "", text, flags=re.DOTALL)


def test_it_states_counts_origin_and_headline(full):
    words = full.page["index.html"].words
    of = Counter(claim.register for claim in claims.load(("ladder",)) if not claim.covered_by)
    assert f"{of['article']} statements of 1 article (ladder)" in words
    assert f"{of['build']} facts of the builds that hold by construction" in words
    assert f"{of['project']} findings of this project" in words or f"{of['project']} finding of this project" in words
    assert "recorded earlier on Synthetic GPU" in words
    said = words_of(full.paper)
    assert "L7 warptile 4096: 0.900" in said.split("What to use on Synthetic GPU")[-1]
    count = len(registry.kernels("ladder")) + len(registry.kernels("ceilings"))
    assert f"{count} of {count} kernels pass the static gate, {count} the numerical one" in words
    assert "33\N{MULTIPLICATION SIGN}65\N{MULTIPLICATION SIGN}17" in full.words


def test_registers_and_ways_are_columns_filters_and_rules(full):
    claims_page = full.text["claims.html"]
    assert '<td>article<span class="where">measured<br>' in claims_page
    for name, words, rules in (("register", REGISTERS, register_rules()), ("way", WAYS, way_rules())):
        options = "".join(f"<option>{word}</option>" for word in words)
        assert f'<select name="{name}"><option value="">all</option>{options}</select>' in claims_page
        assert all(f"<dt>{word}</dt><dd>{rule}</dd>" in html.unescape(full.paper) for word, rule in rules)


def test_what_articles_get_wrong_is_a_section_after_the_results(tmp_path):
    world = World(tmp_path, sizes=(4096,), samples=False)
    make(world.write(), drawn=False)
    judged = json.loads((tmp_path / "verdicts.json").read_text())
    for entry in judged["claims"]:
        entry["correction"] = None
    wrong, *others = (entry for entry in judged["claims"] if entry["verdict"] == "not reproduced" and entry["measured"])
    right = next(entry for entry in judged["claims"] if entry["verdict"] == "reproduced")
    correction = {"class": "wrong", "instead": "It is <b>half</b> of that.", "known": "It was counted."}
    wrong["correction"], right["correction"] = correction, correction | {"instead": "It is not so."}
    for entry, kind in zip(others, ("outdated", *["latent fault"] * 2, "of its generation"), strict=False):
        entry["correction"] = correction | {"class": kind} | ({"release": "CUDA 1.0"} if kind == "outdated" else {})
    text = render(tmp_path, world, judged)
    section = text[text.index('<section id="corrections"') : text.index('<section id="limits"')]
    assert text.index('<section id="results"') < text.index('<section id="corrections"')
    assert f'href="claims.html#claim-{anchor(wrong["id"])}"' in section and wrong["id"] in section
    assert '<a href="#corrections">1 statement is wrong</a>' in text[: text.index('<nav class="contents"')]
    assert f"Marked as wrong, yet found to hold in this run: {right['id']}." in Page(text).words
    whole = (tmp_path / "report" / "corrections.html").read_text()
    for shown in (section, whole):
        assert "It is &lt;b&gt;half&lt;/b&gt; of that." in shown and "It is not so" not in shown
    assert wrong["explanation"] in html.unescape(whole) and "CUDA 1.0" in whole
    assert "Read as a Markdown source marked as a draft" in whole
    lists = re.findall(r"<h2 id=[^>]*>(.*?) \((\d+)\).*?</section>", whole, re.DOTALL)
    assert lists == [("Wrong", "1"), ("Latent fault", "2"), ("Outdated", "1"), ("Of its generation", "1")]
    assert whole.count("<dt>") == 5
    for entry in judged["claims"]:
        entry["correction"] = None
    assert 'id="corrections"' not in render(tmp_path, world, judged)
    assert "found no statement wrong" in (tmp_path / "report" / "corrections.html").read_text()


def render(root: Path, world: World, judged: dict) -> str:
    """The page on other verdicts than those that its world was judged with."""
    (root / "verdicts.json").write_text(json.dumps(judged))
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build, "--images", world.images]
    inputs += ["--verdicts", root / "verdicts.json", "--figures", root / "figures"]
    call(report, *inputs, "--config", world.config, "--out", root / "report")
    return (root / "report" / "index.html").read_text()


def test_each_kernel_has_its_page(full):
    kernels = [kernel.id for family in ("ladder", "ceilings") for kernel in registry.kernels(family)]
    for kernel in kernels:
        page = full.page[f"kernels/{kernel}.html"]
        assert anchor(kernel) in page.ids
        assert f"--force results/gates/{kernel}.json" in page.words
        assert f"--force results/build/cuda13/{kernel}.json" in page.words
        assert full.kernel(kernel).count("Main loop, cuda12 for sm_90") == 1
    assert 'class="t-' in full.kernel("ladder.smem")
    drawn = sum(text.count('class="spark"') for place, text in full.text.items() if place.startswith("kernels/ladder"))
    assert drawn == len(LEVELS) * len(SIZES) * 2 * 2


def test_rows_have_ids_that_numbers_lead_to(full):
    row = "row-ladder-warptile-cuda12-fp32-4096x4096x4096-warm"
    assert row in full.page["kernels/ladder.warptile.html"].ids
    assert f"kernels/ladder.warptile.html#{row}" in full.page["index.html"].links
    assert f"../kernels/ladder.warptile.html#{row}" in full.page["families/ladder.html"].links
    own = "row-ladder-cublas-sgemm-library-fp32-4096x4096x4096-warm"
    assert own in full.page["baselines/cublas.sgemm.html"].ids


def test_a_kernel_is_shown_beside_the_one_before(full):
    page = full.kernel("ladder.smem")
    assert 'class="diff"' in page and "Against L2 coalesced" in words_of(page)
    assert 'class="diff"' not in full.kernel("ladder.naive")
    kernels = [kernel.id for kernel in registry.kernels("ladder")]
    place = kernels.index("ladder.smem")
    for rel, beside in (("prev", kernels[place - 1]), ("next", kernels[place + 1])):
        assert f'<a rel="{rel}" href="{beside}.html">' in page


def test_a_rung_that_was_not_measured_is_said_to_be(full):
    unmeasured = [kernel for kernel in compared("ladder") if kernel.id not in LEVELS]
    assert unmeasured
    table = full.text["families/ladder.html"].split('rowspan="2">Level</th>')[1].split("</table>")[0]
    for kernel in unmeasured:
        row = re.search(rf'<tr><th scope="row"><a href="[^"]*#{anchor(kernel.id)}">.*?</tr>', table, re.DOTALL)[0]
        assert words_of(row).endswith("not measured") and "TFLOP" not in row
        times = full.kernel(kernel.id).split('id="samples-')[1].split("<h2")[0]
        assert words_of(times).endswith("Times and samples not measured")
    measured = re.search(r'<tr><th scope="row"><a href="[^"]*#ladder-warptile">.*?</tr>', table, re.DOTALL)[0]
    assert "not measured" not in measured


def test_what_compute_sanitizer_said_of_todays_binary_is_on_the_kernels_page(full):
    shown = full.page["kernels/ladder.smem.html"].words
    today = "cuda13: memcheck, synccheck: clean; racecheck: 1 hazard; initcheck: not run"
    assert f"cuda12: not run on today's binary; {today}" in shown
    assert "What compute-sanitizer printed on cuda13" in shown and "a race &lt;here&gt;" in full.kernel("ladder.smem")
    assert "compute-sanitizer</dt><dd>not run on today&#39;s binary</dd>" in full.kernel("ladder.naive")


def test_an_odd_run_is_told_as_it_is(odd):
    """Live, stale, without samples, with a failed gate, and with markup in the data."""
    family = odd.text["families/ladder.html"]
    assert re.search(r'<s class="stale"><a href="[^"]*#row-ladder-warptile-', family)
    assert '<span class="flag">stale</span>' in family and "4 rows are stale" in odd.words
    words = odd.page["families/ladder.html"].words
    assert "measured in this run on <script>alert(1)</script>" in words
    assert "recorded" not in re.sub(r"recorded (here|beyond|ones)", "", words)
    assert 'class="spark"' not in odd.markup and "samples.parquet" not in odd.markup
    assert "1 fails a gate" in odd.words
    assert "<script>alert" not in odd.markup and "&lt;script&gt;alert(1)" in odd.paper


@pytest.mark.parametrize(
    ("report", "sentences"),
    [
        (
            "lacking",
            (
                "ladder: no hardware counters were recorded",
                "the numerical gate has not been run for today's binaries",
                "ladder: the article's size, 4096, was not part of this sweep",
                "This run used no containers",
                "This family was not measured.",
                "This figure was not drawn.",
                "0 the numerical one",
            ),
        ),
        ("empty", ("Nothing was measured", "It has no build record.")),
    ],
)
def test_what_is_missing_is_said(report, sentences, request):
    words = request.getfixturevalue(report).words
    assert [sentence for sentence in sentences if sentence not in words] == []


def test_data_for_programs(odd):
    """Claims and figures as CSV with a schema, verdicts that keep theirs, linked data, a citation, and badges."""
    data = odd.folder / "data"
    rows = pd.read_csv(data / "claims.csv")
    verdicts = json.loads((data / "verdicts.json").read_text())
    assert list(rows["id"]) == [claim["id"] for claim in verdicts["claims"]]
    assert list(rows["verdict"]) == [claim["verdict"] for claim in verdicts["claims"]]
    fields = json.loads((data / "claims.schema.json").read_text())["fields"]
    assert [column["name"] for column in fields] == list(rows.columns)
    schema = json.loads((data / "verdicts.schema.json").read_text())
    assert list(schemas.errors(verdicts, schema)) == []
    verdicts["claims"][0]["verdict"] = "true"
    assert [error.json_path for error in schemas.errors(verdicts, schema)] == ["$.claims[0].verdict"]
    tables = [*data.glob("figures/ladder/*.csv")]
    assert tables and all(len(pd.read_csv(path)) and path.with_suffix(".svg").is_file() for path in tables)
    [text] = re.findall(r'<script type="application/ld\+json">(.*?)</script>', odd.paper, re.DOTALL)
    paper, dataset = json.loads(text)["@graph"]
    assert (paper["@type"], dataset["@type"]) == ("ScholarlyArticle", "Dataset")
    assert paper["name"] == "GEMM articles, checked on <script>alert(1)</script>"
    assert any(each.get("url", "").startswith("https://siboehm.com") for each in paper["citation"])
    places = [each["contentUrl"] for each in dataset["distribution"]]
    assert "data/claims.csv" in places and all((odd.folder / place).is_file() for place in places)
    for name in ("title", "author", "publication_date", "language", "keywords"):
        assert re.search(rf'<meta name="citation_{name}" content="[^"<>]+">', odd.paper), name
    badge = json.loads((data / "badge.json").read_text())
    assert badge["schemaVersion"] == 1 and re.fullmatch(r"\d+ of \d+ hold", badge["message"])
    assert f"<title>{badge['label']}: {badge['message']}</title>" in (data / "badge.svg").read_text()


def test_claims_keep_their_table_schema(odd, validators, tmp_path):
    def ends(table):
        command = [validators / "frictionless", "validate", table, "--schema", odd.folder / "data/claims.schema.json"]
        return subprocess.run([*map(str, command), "--trusted"], cwd=tmp_path, capture_output=True, text=True)

    whole = ends(odd.folder / "data/claims.csv")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    claims_csv = (odd.folder / "data/claims.csv").read_text()
    (tmp_path / "wrong.csv").write_text(claims_csv.replace("not reproduced", "perhaps"))
    wrong = ends(tmp_path / "wrong.csv")
    assert wrong.returncode == 1 and "constraint" in wrong.stdout


def test_bibtex_has_balanced_braces_and_no_bare_specials():
    cited = Citation("50% & more: a_b {c}", "", ("A & B",), "1.0", "MIT", ("x",), "2026-11-22")
    assert "title = {{50\\% \\& more: a\\_b \\{c\\}}}," in cited.bibtex
    assert "year = {2026}," in cited.bibtex
    undated = replace(cited, date=None)
    assert "year" not in undated.bibtex and "datePublished" not in linked_data(undated, (), {})


def test_histogram_marks_the_median_and_tells_its_range():
    drawn = histogram(np.array([10.0, 11.0, 11.0, 12.0, 30.0]), 11.0)
    assert "5 samples from 10.00 µs to 30.00 µs" in drawn and 'class="mid"' in drawn
    assert histogram(np.array([])) == "" and "3 samples" in histogram(np.array([5.0, 5.0, 5.0]), 5.0)


def test_static_checks_are_gathered_across_architectures():
    def check(arch, name, found, passed=True, expected="at least 1"):
        return {"arch": arch, "check": name, "why": "", "expected": expected, "found": found, "passed": passed}

    lines = gather_checks(
        [
            *(check("sm_80", "LDG", 8), check("sm_80", "LDG", 0, expected="0"), check("sm_80", "bytes", 9)),
            *(check("sm_90", "LDG", 8), check("sm_90", "LDG", 1, False, "0"), check("sm_90", "bytes", 9, True, "most")),
        ]
    )
    assert [(line.check, line.expected, line.passed, line.found) for line in lines] == [
        ("LDG", "at least 1", True, [("8", "every target")]),
        ("LDG", "0", False, [("0", "sm_80"), ("1 (fails)", "sm_90")]),
        ("bytes", "at least 1 or most", True, [("9", "every target")]),
    ]
    gate = {"toolkits": {"cuda13": {"numeric": {"cases": [{"err_scaled_max": 3.0, "gamma": 2.0**-22}]}}}}
    assert gate_view(gate, registry.kernel("ladder.naive")).toolkits[0].cases[0]["allowed"] == 4


def test_toolkits_are_those_of_every_family():
    versions = {"ladder": {"cuda12": "12.4.131"}, "cutile": {"cuda13": "13.4.92"}, "ada": {"cuda12": "12.4.131"}}
    measured = {
        name: Measurements(name, pd.DataFrame({"arch": ["sm_90"]}), pd.DataFrame(), {"toolkits": found})
        for name, found in versions.items()
    }
    assert machine_view(measured, {}).toolkits == [("cuda12", "12.4.131"), ("cuda13", "13.4.92")]


def test_disagreements_compare_figures_only():
    usual = {"tolerance": 0.1, "verdict": "not reproduced", "register": "article", "expected": None, "unit": "ratio"}

    def claim(name, value, statement="", **own):
        told = usual | own
        measured = {"judged": True, "value": value, "ci_low": value, "ci_high": value, "from": []}
        entry = dict.fromkeys(("article", "where", "explanation", "way", "judged_on", "correction"), "")
        entry |= {"id": name, "family": name.split(".")[0], "statement": statement, "kernels": [name], "published": []}
        entry |= {"transfer": {"kind": "ratio", "why": ""}, "regime": {"judged": "in_turn", "beside": {}}}
        return claim_view(entry | told | {"measured": [measured | {"unit": told["unit"]}]})

    one = (1.0, "ratio")
    judged = [
        (claim("a.near", 0.9, "It runs at 100% of cuBLAS."), one),
        (claim("a.far", 0.25, "It runs at 100% of cuBLAS."), one),
        (claim("b.order", 1000.0, tolerance=None), one),
        (claim("c.partly", 9.0, verdict="partly"), one),
        (claim("d.fast", 3.0, unit="ms"), (0.002, "s")),
        (claim("e.own", 3.0, register="project"), one),
        (claim("f.carried", 3.0, expected=1.5), (9.0, "ratio")),
        (claim("g.other", 3.0, unit="ms"), (3.0, "cycles")),
    ]
    over = {each.id: value for each, published in judged if (value := each.over(published)) is not None}
    assert over == pytest.approx(
        {"a.near": 0.9, "a.far": 0.25, "c.partly": 9, "d.fast": 1.5, "e.own": 3, "f.carried": 2}
    ), "in one unit, of what was decided"
    found = disagreements([each for each, _ in judged], {each.id: published for each, published in judged})
    assert [(each.claim.id, each.text, each.difference) for each in found] == [
        ("a.far", "25.0%", "4.0 times lower"),
        ("f.carried", "3.00", "2.0 times higher"),
        ("d.fast", "3.00 ms", "50% higher"),
    ]


@pytest.mark.parametrize("family", registry.family_names())
def test_no_two_kernels_share_a_name_or_a_heading(family):
    kernels = registry.kernels(family)
    assert len(set(map(level_name, kernels))) == len(set(map(heading, kernels))) == len(kernels)


def test_figures_on_a_page_share_no_ids_and_no_rules():
    drawn = """<svg xmlns="http://www.w3.org/2000/svg" width="10pt" height="10pt" viewBox="0 0 10 10">
<title>A &lt;title&gt;</title>
<desc>what</desc>
<style>
svg{font-family:x}
.a{fill:var(--ink,#1b1f26)}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7ec}}
</style>
<defs><path id="p0" d="M0 1"/></defs>
<g clip-path="url(#p0)"><use class="a" href="#p0" x="1"/></g>
</svg>"""
    one, two = (inline_svg(drawn, name) for name in ("one", "two"))
    marks = [set(re.findall(r' id="([^"]*)"', each)) for each in (one, two)]
    assert not marks[0] & marks[1] and set(re.findall(r'(?:href="|url\()#([^")]*)', one)) <= marks[0]
    assert "#one{font-family:x}" in one and "#one .a{fill:var(--ink)}" in one and "@media" not in one
    assert '<title id="one-title">A &lt;title&gt;</title>' in one and "width=" not in one.split(">")[0]
    assert 'aria-labelledby="one-title one-desc"' in one
    with pytest.raises(UserError, match="is not an SVG"):
        inline_svg("<p>", "one")


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<SCRIPT href="x.js"/>',
        '<x:script xmlns:x="http://www.w3.org/2000/svg">alert(1)</x:script>',
        '<g onclick="alert(1)"/>',
        '<g ONLOAD="alert(1)"/>',
        '<use href="java&#115;cript:alert(1)"/>',
        '<use xlink:href="data:text/html,x" xmlns:xlink="http://www.w3.org/1999/xlink"/>',
        '<a href="javascript:alert(1)"><text>x</text></a>',
        '<set attributeName="href" to="javascript:alert(1)"/>',
        "<foreignObject/>",
        "<?x ><script>alert(1)</script>?>",
        "<!-- --><![CDATA[<script>]]>",
        "<g>",
    ],
)
def test_a_figure_that_could_run_a_script_is_refused(inside):
    with pytest.raises(UserError, match="which no figure of this project has; draw the figures again"):
        inline_svg(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{inside}</svg>', "one")


def test_links_are_relative_to_their_page():
    files = Files()
    files.text("", "data/x.csv")
    pages = {
        "index.html": '<a href="#there"> <a href="#nowhere"> <a href="data/x.csv"> <a href="a/b.html#x=1">',
        "a/b.html": '<p id="there"><a href="#there"> <a class="c" href="index.html"> <a href="https://x">',
    }
    assert resolved(pages, files) == {
        "index.html": '<a href="a/b.html#there"> <a> <a href="data/x.csv"> <a href="a/b.html#x=1">',
        "a/b.html": '<p id="there"><a href="#there"> <a class="c" href="../index.html"> <a href="https://x">',
    }
    with pytest.raises(UserError, match=r"links to gone\.html"):
        resolved({"index.html": '<a href="gone.html">1</a>'}, files)


def test_a_comparison_keeps_three_lines_around_a_change():
    left = [f"line {number}" for number in range(20)]
    lines = list(side_by_side(left, [*left[:10], "new", *left[11:]]))
    assert [line.kind for line in lines] == ["gap", *["same"] * 3, "changed", *["same"] * 3, "gap"]
    assert (lines[4].left, lines[4].right) == ("line 10", "new")
    added = [line for line in side_by_side(left, [*left, "more"]) if line.kind == "changed"]
    assert [(line.left, line.right) for line in added] == [(None, "more")]


# With stand-ins for all that a family may hold: two types, tuned twins, steps past the article.


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Made:
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, root)
        families = ("ladder", "hopper", "ceilings")
        world = World(root, families=families, whole=True, sizes=(4096, 8192), stale=("ladder.stages",)).write()
        add_entry_point(world, "ladder.warptile", "warptile_wide", registers=77, hot_loop="FFMA R7")
        return Made.of(make(world))


def add_entry_point(world: World, kernel: str, entry: str, **built: object) -> None:
    """Give a kernel's builds another entry point, which differs in `built`."""
    for toolkit in ("cuda12", "cuda13"):
        path = world.build / toolkit / f"{kernel}.json"
        record = json.loads(path.read_text())
        other = {arch: {**first, **built} for arch, first in record["archs"].items()}
        record["variants"] = {record["entry"]: record["archs"], entry: other}
        path.write_text(json.dumps(record))


def words_of(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def test_every_entry_point_has_its_row_and_loop(whole):
    found = whole.kernel("ladder.warptile")
    assert "for each entry point of the source" in words_of(found) and ">Entry point</th>" in found
    for entry in ("warptile", "warptile_wide"):
        assert f"<summary>Main loop of <code>{entry}</code>, cuda12 for sm_90" in found
    assert "FFMA R7" in found and re.search(r"warptile_wide</code></td><td>sm_90</td><td class=\"n\">77</td>", found)
    assert "Entry point</th>" not in whole.kernel("ladder.smem")


def test_types_have_a_column_where_there_are_several(whole):
    hopper, ladder = whole.text["families/hopper.html"], whole.text["families/ladder.html"]
    assert ">Type</th>" in hopper and ">Published</th>" not in hopper
    table = ladder.split('id="rows-ladder"')[1].split("</table>")[0]
    assert ">Type</th>" not in table and ">Published</th>" in table
    assert re.search(r"H1 wgmma</a></th><td>bf16</td>", hopper)
    assert re.search(r"H1 wgmma, fp16</a></th><td>fp16</td>", hopper)
    words = whole.page["families/hopper.html"].words
    assert "cublas.gemm in bf16 at 4096 ran synthetic_bf16_128x256" in words
    assert "cublas.gemm in fp16 at 4096 ran synthetic_fp16_128x256" in words
    # Both baselines stand in the table as fast as they were beside the levels.
    found = re.findall(
        r'cuBLAS<span class="ci">cublas.gemm</span></a></th><td>(\w+)</td>\s*<td [^>]*data-published>([\d.]+)',
        hopper,
    )
    assert dict(found) == {"bf16": "685", "fp16": "666"}


def test_a_gain_is_shown_with_its_counters(whole):
    found = words_of(whole.kernel("ladder.async_copy"))
    assert "compared with L7 warptile" in found and "cycles in which a scheduler issued an instruction" in found
    assert "85.0%" in found
    assert "speed relative to the baseline, timed in alternation" in found
    assert "What it gains" not in whole.kernel("ladder.naive")
    tuned = words_of(whole.kernel("ladder.warptile_tuned"))
    assert "compared with L7 warptile ." in tuned and "\N{MULTIPLICATION SIGN} 1.10" in tuned
    assert "compared with H1 wgmma, fp16" in words_of(whole.kernel("hopper.tiles_fp16"))
    assert "Starting point" in whole.kernel("hopper.wgmma_fp16")
    rows = re.findall(r"<tr>.*?</tr>", whole.kernel("ladder.stages").split("</table>")[0], re.DOTALL)
    assert len(rows) == 5 and all('<s class="stale">' in row for row in rows[1:])
    assert all(row.rstrip().endswith('<td class="n">\N{EN DASH}</td></tr>') for row in rows[1:])
    assert 'The source of <a href="hopper.tiles.html#hopper-tiles">H2 tiles</a>' in whole.kernel("hopper.tiles_fp16")


def test_a_family_of_which_nothing_was_measured_shows_predictions_and_no_empty_figure(empty):
    page = empty.text["families/hopper.html"]
    told = words_of(page.split('id="rows-hopper"')[1].split("</section>")[0])
    assert "Not measured yet" in told and "--force results/measure/hopper/summary.csv" in told
    assert "What tma_store adds." in told  # the idea of a synthetic rung
    assert 'id="figures-hopper"' not in page and "<figure" not in page


def test_counters_in_words():
    counters = {(62.34, "%"): "62.3%", (4.2e9, "byte"): "4.20 GB", (5.2e11, "byte/second"): "520 GB/s"}
    counters[2.7e8, "inst"] = "270 million"
    assert {counter: in_words(*counter) for counter in counters} == counters
