"""The paper says what its inputs say, lacks nothing that it refers to, and fetches nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from bundle_links import dead_links
from synthetic import LEVELS, World, stand_in

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.core import paths, schemas
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.paper import page as paper
from gemmrepro.paper.claims import claim_view, references
from gemmrepro.paper.inputs import inline_svg
from gemmrepro.paper.text import anchor
from gemmrepro.registry.ladders import compared

SIZES = (1024, 4096)
VOID = set("area base br col embed hr img input link meta source track wbr".split())


def call(*words: object) -> None:
    """Run a stage in this process, so that it sees the registry as a test has set it."""
    assert command.run([*map(str, words)]) == 0


def make(world: World, drawn: bool = True, other: World | None = None) -> Path:
    """Verdicts, figures (unless not `drawn`) and the report from a synthetic world; returns the paper's path.

    The world of an `other` GPU is shown beside it.
    """
    if other:
        seen = ["--measure", other.measure, "--gates", other.gates, "--build", other.build]
        call("verdicts", *seen, "--families", ",".join(other.families), "--out", other.root / "verdicts.json")
    root = world.root
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build]
    call("verdicts", *inputs, "--families", ",".join(world.families), "--out", root / "verdicts.json")
    for family in world.families if drawn else ():
        call("figures", "--family", family, "--measure", world.measure, "--out", root / "figures" / family)
    inputs += ["--verdicts", root / "verdicts.json", "--figures", root / "figures", "--images", world.images]
    inputs += ["--gpus", *([other.root] if other else [])]
    call("report", *inputs, "--config", world.config, "--recorded", world.recorded, "--out", root / "report")
    return root / "report" / "index.html"


class Page(HTMLParser):
    """Collects what the tests ask about, and refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.bare_headers = 0
        self.stack: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
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
        text = {path.relative_to(paper.parent).as_posix(): path.read_text() for path in paper.parent.rglob("*.html")}
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
    """The pages of two real families, of whose ladder only LEVELS are measured, on two GPUs."""
    world = World(tmp_path_factory.mktemp("full"), sizes=SIZES).write()
    world.write_sanitizers("ladder.smem", ["found", "a race <here>", "SUMMARY: 1 hazard"], changed="cuda12")
    (world.root / "figures/paper").mkdir(parents=True)
    (world.root / "figures/paper/headlines.png").write_bytes(b"a picture")
    other = World(tmp_path_factory.mktemp("gpus") / "other", sizes=(4096,), samples=False, gpu="Other GPU").write()
    return Made.of(make(world, other=other))


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Made:
    """Rows measured live, some stale, one gate failed, no samples, counters and images, markup in the GPU's name."""
    options = {"source": "live", "samples": False, "failed_gates": ("ladder.smem",), "stale": ("ladder.warptile",)}
    options |= {"counters": False, "locks": False}
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


@pytest.mark.parametrize("report", ["full", "odd", "empty"])
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
        outside = set(re.findall(r'<[^<>]* (?:href|src)="((?!data:,)(?:[a-z]+:|//)[^"]*)"', text))
        assert outside <= (cited if place == "index.html" else set()), outside
        assert not re.search(r"<cite>[^<]*[぀-鿿]", text), "a title is read without a Japanese font"
        assert page.headings[0] == 1 and page.headings.count(1) == 1, place
        assert all(after - before <= 1 for before, after in pairwise(page.headings)), place
        assert page.tags.count("table") == page.tags.count("caption"), place
        assert page.bare_headers == 0, place
        for landmark in ("<header", "<nav", "<main", "<footer", 'class="skip"', '<html lang="en"'):
            assert landmark in text, place
    assert dead_links(made.folder) == [] and len(made.paper.encode()) < 1_500_000

    links = re.findall(COUNT, made.markup)
    groups = re.findall(r'<tbody data-article="(.*?)">(.*?)</tbody>', made.text["claims.html"], re.DOTALL)
    claims = [
        (family, article, register, verdict)
        for article, rows in groups
        for register, family, verdict in re.findall(CLAIM, rows, re.DOTALL)
    ]
    for verdict, article, register, family, count in links:  # each count opens a list of its length
        verdicts = DECIDED if verdict == "decided" else (verdict.replace("%20", "-"),)
        wanted = (family, article, register)
        fits = [each for each in claims if all(not a or a == b for a, b in zip(wanted, each[:3], strict=True))]
        assert sum(not verdict or each[3] in verdicts for each in fits) == int(count), (verdict, *wanted)
    told = (made.folder / "data/evidence.js").read_text()
    rows = json.loads(told.removeprefix("gemmreproEvidence(").removesuffix(");\n"))["rows"]
    ids = {each for page in made.page.values() for each in page.ids if each.startswith("row-")}
    assert set(rows) == {each for each in ids if not each.startswith("row-counters")}


CLAIM = r'<tr id="claim-[^>]*data-k="(\S+) \S+ (\S+)".*?class="badge (.*?)"'
COUNT = r'claims.html#verdict=([^&]*)&amp;article=([^&]*)&amp;register=([^&]*)&amp;family=([^"]*)">(\d+)'
DECIDED = ("reproduced", "partly", "not-reproduced")


def strip_code(text: str) -> str:
    """A page without listings, scripts and links to files."""
    return re.sub(r"<(script|style|pre|code|title)\b.*?</\1>", "", text, flags=re.DOTALL)


def test_it_states_counts_origin_and_headline(full):
    first, method = full.page["index.html"].words, full.page["method.html"].words
    of = Counter(claim.register for claim in claims.load(("ladder",)) if not claim.covered_by)
    assert f"{of['article']} statements of 1 article (From beginner to cuBLAS class)" in method
    assert re.search(rf"\b{of['project']} findings? of this project", method)
    assert "recorded earlier on Synthetic GPU" in first
    use = words_of(full.paper).split("What to use today on Synthetic GPU")[-1]
    assert "FP32 cuBLAS, 1024 to 4096 ladder.warptile 0.900 [0.898, 0.902] in turn" in use
    assert re.search("Of 2 headline claims 2 hold. 0 of them were judged on the author.s program, 2 .†. on", first)
    count = len(registry.kernels("ladder")) + len(registry.kernels("ceilings"))
    assert f"{count} pass the check of their machine code and {count} that of their results" in first


def test_a_link_to_a_page_shows_its_title_a_finding_and_the_picture(full, odd):
    for place, text in full.text.items():
        told = dict(re.findall(r'<meta property="og:([a-z:]+)" content="([^"]*)">', text))
        assert told["title"] == re.search("<title>(.*?)</title>", text)[1]
        assert re.match(r"Of \d+ statements .* \d+ hold\.", told["description"])
        assert ((full.folder / place).parent / told["image"]).read_bytes() == b"a picture"
    assert "og:image" not in odd.paper


def test_samples_are_in_one_archive_that_each_kernels_page_names(full):
    with zipfile.ZipFile(full.folder / "data/recordings.zip") as packed:
        assert {"ladder/samples.parquet", "ladder/summary.csv", "ceilings/run.json"} <= set(packed.namelist())
    assert 'href="../data/recordings.zip"' in full.kernel("ladder.smem")
    assert not [*full.folder.rglob("*.parquet")]


def test_another_gpu_has_its_own_claims_and_each_page_leads_to_them(full):
    assert 'href="gpus/other.html">Other GPU</a>' in full.paper
    assert 'href="../gpus/other-claims.html#verdict=&amp;family=ladder">' in full.text["families/ladder.html"]
    claims = full.text["gpus/other-claims.html"]
    assert 'href="../claims.html">Synthetic GPU</a>' in claims and 'id="claim-ladder-ratio-L7"' in claims
    assert not re.search(r'href="[^"]*#row-', claims), "rows of this report are of another GPU"
    counts = re.findall(r'other-claims.html#verdict=([^&]+)&amp;register=article">(\d+)<', full.text["gpus/other.html"])
    own = Counter(re.findall(r'data-k="article .*?class="badge (.*?)"', claims, re.DOTALL))
    assert counts and {verdict.replace("%20", "-"): int(count) for verdict, count in counts} == own


def test_what_articles_get_wrong_is_told_on_the_first_page_and_listed_on_its_own(tmp_path):
    world = World(tmp_path, sizes=(4096,), samples=False)
    make(world.write(), drawn=False)
    judged = json.loads((tmp_path / "verdicts.json").read_text())
    for entry in judged["claims"]:
        entry["correction"] = None
    wrong, old, *_ = (each for each in judged["claims"] if each["verdict"] == "not reproduced" and each["measured"])
    right = next(entry for entry in judged["claims"] if entry["verdict"] == "reproduced")
    told = next(entry for entry in judged["claims"] if entry["id"] == "ladder.reason.L1")
    correction = {"class": "wrong", "instead": "It is <b>half</b> of that.", "known": "It was counted."}
    wrong["correction"], right["correction"] = correction, correction | {"instead": "It is not so."}
    old["correction"] = correction | {"class": "outdated", "release": "CUDA 1.0"}
    told |= {"correction": correction, "verdict": "not reproduced"}
    render(tmp_path, world, judged)
    pages = {path.name: path.read_text() for path in (tmp_path / "report").glob("*.html")}
    section = pages["index.html"].split('<section id="corrections"')[1].split('<section id="limits"')[0]
    assert 'href="claims.html#claim-ladder-reason-L1"' in section
    assert '<a href="corrections.html#wrong">2 wrong</a>' in section
    assert f"Marked as wrong, yet found to hold in this run: {right['id']}." in Page(pages["runs.html"]).words
    whole = pages["corrections.html"]
    assert "It is &lt;b&gt;half&lt;/b&gt; of that." in whole and "It is not so" not in whole
    assert f'href="claims.html#claim-{anchor(wrong["id"])}"' in whole and "CUDA 1.0" in whole
    assert whole.index(told["statement"]) < whole.index(wrong["statement"]), "what is told comes first"
    lists = re.findall(r"<h2 id=[^>]*>(.*?) \((\d+)\).*?</section>", whole, re.DOTALL)
    assert lists == [("Wrong", "2"), ("Outdated", "1")]


def render(root: Path, world: World, judged: dict) -> None:
    """Write the report on other verdicts than those that its world was judged with."""
    (root / "verdicts.json").write_text(json.dumps(judged))
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build, "--images", world.images]
    inputs += ["--verdicts", root / "verdicts.json", "--figures", root / "figures"]
    call("report", *inputs, "--config", world.config, "--out", root / "report")


def test_a_new_article_has_section_tallies_claims_and_reference_by_its_folder_alone(tmp_path, monkeypatch):
    shutil.copytree(paths.ARTICLES_DIR, tmp_path / "articles")
    monkeypatch.setattr(paths, "ARTICLES_DIR", tmp_path / "articles")
    folder = tmp_path / "articles/fresh"
    call("article", "new", "fresh")
    (folder / "article.yaml").write_text((folder / "article.yaml").read_text() + "short: A fresh one\n")
    row = "a,{},fp32,4096,,throughput,{},TFLOP/s,H100,p,"
    rows = [row.format(*each) for each in (("First", 9), ("Second", 18), ("cuBLAS", 20))]
    header = (folder / "numbers.csv").read_text().splitlines()[0]
    (folder / "numbers.csv").write_text("\n".join([header, *rows]) + "\n")
    mapped = {"First": "ladder.smem", "Second": "ladder.warptile", "cuBLAS": "cublas.sgemm"}
    systems = {name: {"kernels": [kernel], "program": "same idea", "why": "y"} for name, kernel in mapped.items()}
    (folder / "map.yaml").write_text(json.dumps({"systems": systems}))
    (folder / "figures.py").write_text(
        "from gemmrepro.experiments import Panel, Table, mark\n"
        "marks = lambda numbers: [mark('p', 's', 'x', numbers.printed('First', 'throughput'), None)]\n"
        "TABLES = [Table('fresh_rates', 'ladder', 'Fresh rates', {'p': Panel('P', 'TFLOP/s')}, marks)]\n"
    )
    report = made(World(tmp_path / "run", sizes=(4096,), samples=False).write())
    section = report.paper[report.paper.index('id="article-fresh"') :].split("<h3")[0]
    own = {name: text for name, text in report.text.items() if "A fresh one" in text}
    assert "A fresh one</h3>" in section and "First Last, 2026, on H100" in words_of(section)
    assert (
        re.search(r"Of 6 statements decided, \d hold", section) and "Judged on our program of the same idea" in section
    )
    assert 'href="families/ladder.html#figure-ladder-fresh_rates"' in section
    assert '<tbody data-article="fresh">' in report.text["claims.html"]
    assert report.text["claims.html"].count('id="claim-fresh-') == 6
    assert 'id="ref-fresh"' in report.paper and {"index.html", "method.html"} <= own.keys()


def test_each_kernel_has_its_page_beside_the_one_before(full):
    kernels = [kernel.id for kernel in registry.kernels("ladder")]
    for kernel in (*kernels, *(each.id for each in registry.kernels("ceilings"))):
        page = full.page[f"kernels/{kernel}.html"]
        assert anchor(kernel) in page.ids and f"--force results/gates/{kernel}.json" in page.words
        assert full.kernel(kernel).count("Main loop, cuda12 for sm_90") == 1
    drawn = sum(text.count('class="spark"') for place, text in full.text.items() if place.startswith("kernels/ladder"))
    assert drawn == len(LEVELS) * len(SIZES) * 2 * 2
    page, place = full.kernel("ladder.smem"), kernels.index("ladder.smem")
    assert 'class="t-' in page and 'class="diff"' in page and "Against L2 coalesced" in words_of(page)
    assert 'class="diff"' not in full.kernel("ladder.naive")
    for rel, beside in (("prev", kernels[place - 1]), ("next", kernels[place + 1])):
        assert f'<a rel="{rel}" href="{beside}.html">' in page
    table = full.text["families/ladder-rows.html"].split('rowspan="2">Level</th>')[1].split("</table>")[0]
    for kernel in (kernel.id for kernel in compared("ladder")):
        row = re.search(rf'<tr><th scope="row"><a href="[^"]*#{anchor(kernel)}">.*?</tr>', table, re.DOTALL)[0]
        assert words_of(row).endswith("not measured") == (kernel not in LEVELS)


def test_what_compute_sanitizer_said_of_todays_binary_is_on_the_kernels_page(full):
    shown = full.page["kernels/ladder.smem.html"].words
    assert "cuda13: memcheck clean, racecheck 1 hazard, synccheck clean" in shown
    assert "What racecheck printed on cuda13" in shown and "a race &lt;here&gt;" in full.kernel("ladder.smem")
    assert "printed on" not in full.kernel("ladder.naive")


def test_an_odd_run_is_told_as_it_is(odd):
    """Live, stale, without samples, with a failed gate, and with markup in the data."""
    rows = odd.text["families/ladder-rows.html"]
    assert re.search(r'<s class="stale"><a href="[^"]*#row-ladder-warptile-', rows)
    assert '<span class="flag">stale</span>' in rows and "4 rows are stale" in odd.words
    words = odd.page["families/ladder.html"].words
    assert "measured in this run on <script>alert(1)</script>" in words
    assert "recorded" not in re.sub(r"recorded (here|beyond|ones)", "", words)
    assert 'class="spark"' not in odd.markup and "samples.parquet" not in odd.markup
    assert "1 fails a gate" in odd.words
    assert "<script>alert" not in odd.markup and "&lt;script&gt;alert(1)" in odd.paper


@pytest.mark.parametrize(
    ("report", "sentences"),
    [
        ("odd", ("ladder: no hardware counters were recorded", "This run used no containers")),
        ("empty", ("Nothing was measured", "It has no build record.")),
    ],
)
def test_what_is_missing_is_said(report, sentences, request):
    words = request.getfixturevalue(report).words
    assert [sentence for sentence in sentences if sentence not in words] == []


def test_a_limit_is_printed_where_it_holds(full, odd):
    usual = {"kernels of our own", "one model of GPU"}
    for made, own in ((full, {"recorded earlier"}), (odd, {"no containers", "no counters", "stale rows"})):
        assert set(re.findall(r'<li data-limit="(.*?)">', made.paper)) == usual | own


def test_data_for_programs(odd):
    """Claims and figures as CSV with a schema, verdicts that keep theirs, and a badge."""
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
    held = sum(claim["verdict"] == "reproduced" for claim in verdicts["claims"] if claim["register"] == "article")
    assert re.search(rf"<title>claims: {held} of \d+ hold</title>", (data / "badge.svg").read_text())
    tables = [*data.glob("figures/ladder/*.csv")]
    assert tables and all(len(pd.read_csv(path)) and path.with_suffix(".svg").is_file() for path in tables)


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


@pytest.mark.parametrize(
    ("own", "published", "over"),
    [
        ({"value": 0.25, "statement": "It runs at 100% of cuBLAS."}, (1.0, "ratio"), 0.25),
        ({"unit": "ms"}, (0.002, "s"), 1.5),
        ({"expected": 1.5}, (9.0, "ratio"), 2),
        ({"register": "project"}, (1.0, "ratio"), 3),
        ({"unit": "ms"}, (3.0, "cycles"), None),
    ],
)
def test_quotients_are_in_one_unit_and_of_what_was_decided(own, published, over):
    usual = {"tolerance": 0.1, "verdict": "not reproduced", "register": "article", "expected": None, "unit": "ratio"}
    told = usual | {"value": 3.0, "statement": ""} | own
    value = told.pop("value")
    measured = {"judged": True, "value": value, "ci_low": value, "ci_high": value, "from": [], "unit": told["unit"]}
    entry = dict.fromkeys(("article", "where", "explanation", "way", "judged_on", "correction"), "")
    entry |= {"id": "a.b", "family": "a", "kernels": [], "published": [], "measured": [measured]}
    entry |= {"transfer": {"kind": "ratio", "why": ""}, "regime": {"judged": "in_turn", "beside": {}}}
    assert claim_view(entry | told).over(published) == (over if over is None else pytest.approx(over))


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<x:script xmlns:x="http://www.w3.org/2000/svg">alert(1)</x:script>',
        '<a href="javascript:alert(1)"><text>x</text></a>',
        "<!-- --><![CDATA[<script>]]>",
    ],
)
def test_a_figure_that_could_run_a_script_is_refused(inside):
    with pytest.raises(UserError, match="which no figure of this project has; draw it again"):
        inline_svg(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{inside}</svg>', "one")


def test_a_figure_has_the_number_of_its_first_place():
    mark = f"{paper.NUMBER}{{}}{paper.NUMBER}".format
    pages = {
        "a": f'{mark("y")}<figure id="x">{mark("x")}<figure id="y">',
        "b": f'<figure id="z">{mark("z")}{mark("x")}',
    }
    assert paper.numbered(pages) == {"a": '2<figure id="x">1<figure id="y">', "b": '<figure id="z">31'}


def words_of(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def test_a_family_of_which_nothing_was_measured_shows_predictions_and_no_empty_figure(empty):
    page = empty.text["families/hopper.html"]
    told = words_of(page.split('id="rows-hopper"')[1].split("</section>")[0])
    assert "Not measured yet" in told and "--force results/measure/hopper/summary.csv" in told
    assert "What tma_store adds." in told  # the idea of a synthetic rung
    assert 'id="figures-hopper"' not in page and "<figure" not in page
