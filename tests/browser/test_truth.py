"""The report never contradicts itself: each number leads to its evidence, and each limit holds of the data."""

import random
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from pages import opened, script, waited
from support import ROOT, alone

from gemmrepro import registry
from gemmrepro.paper import text
from gemmrepro.registry import ladders

COMMAND = re.compile(r"snakemake .*--(force|config)\b.*results/")

KINDS = {"samples", "source", "machine code", "command"}


def evidence(said: dict, report: Path) -> set[str]:
    """Which of KINDS one more click at most reaches, from what a click on a number shows."""
    if "place" in said:  # a kernel's page has them below the number itself
        text = _text(said["place"], report)
        marks = {
            "samples": 'id="samples-',
            "source": 'id="source-',
            "machine code": 'id="code-',
            "command": "snakemake",
        }
        return {kind for kind, mark in marks.items() if mark in text}
    found = {"command"} if COMMAND.search(said["command"]) else set()
    for name, link in said["links"]:
        fragment = link.partition("#")[2]
        if not _text(link, report) or (fragment and ".html" in link and f'id="{fragment}"' not in _text(link, report)):
            return set()
        if re.match("Samples|Row|Numbers|All rows", name) or "#row-" in link:
            found.add("samples")
        if re.match("Source|Program", name):
            found.add("source")
        if name.startswith("Machine code"):
            found.add("machine code")
        # A kernel's page has all of them; a library's source and machine code are not ours to show.
        if "launched" in name or ("/kernels/" in link and "#row-" in link):
            found |= {"source", "machine code"}
    return found | ({"machine code"} if "of a library" in said["words"] else set())


def _text(link: str, report: Path) -> str:
    """What a file of the report holds; nothing where the link leads elsewhere."""
    path = Path(re.sub("^file://|#.*", "", link))
    held = path.is_file() and path.is_relative_to(report)
    return path.read_text(errors="replace") if held else ""


def with_numbers(report: Path) -> list[Path]:
    """The pages with measured numbers: all but that of the machines."""
    return [
        path
        for path in sorted(report.rglob("*.html"))
        if path.name not in ("gpus.html", "runs.html", "reproduce.html") and path.parent.name != "gpus"
    ]


def test_a_hundred_random_numbers_lead_to_samples_source_machine_code_and_command(page, report):
    """Two clicks at most: what one click shows, or leads to, has all four."""
    known = with_numbers(report)
    wanted = 100 if len(known) > 100 else 30  # the synthetic report has two families
    weights = [max(path.read_text().count('class="n'), path.read_text().count("#row-")) for path in known]
    chance = random.Random(21)
    lost, tried = [], 0
    for path in chance.choices(known, weights, k=2 * wanted):
        if tried == wanted:
            break
        page.get(path.as_uri())
        if not (count := page.execute_script(script("numbers") + "return found.length")):
            continue
        tried += 1
        index = chance.randrange(count)
        said = page.execute_async_script(script("numbers", "click"), index)
        missing = KINDS - evidence(said, report)
        if missing:
            lost.append(f"{path.relative_to(report)}, number {index}, {said['text']}: no {', '.join(sorted(missing))}")
    assert tried == wanted
    assert lost == []


def test_a_computed_number_says_how(page, report):
    """A quotient in the text shows its formula and the rows that it is computed from."""
    opened(page, report / "families/ladder.html")
    page.execute_script("document.querySelector('main a[data-formula]').click()")
    waited(page, "document.querySelector('dialog[open]')")
    formula = page.execute_script("return document.querySelector('dialog .formula').textContent")
    assert re.search(r"Computed: .*[\u00f7\u00d7]", formula)
    rows = page.execute_script("return [...document.querySelectorAll('dialog .operands a')].map((a) => a.href)")
    assert rows
    assert all(f'id="{link.partition("#")[2]}"' in Path(link[7:].partition("#")[0]).read_text() for link in rows)


WORDS = {"index.html": 2_400, "method.html": 1_600, "regimes.html": 900, "corrections.html": 3_000}
"""Most words of a page that a reader sees, without its navigation and the letters of its figures."""

SEEN = (
    "document.querySelectorAll('svg, nav, style, script').forEach(each => each.remove());return document.body.innerText"
)


def test_pages_are_short(page, report):
    for name, most in WORDS.items():
        opened(page, report / name)
        assert len(page.execute_script(SEEN).split()) <= most, name


PRIVATE = r"rungs?|hull|(?:earlier|own|this|another) take|metric|moduli alone|gated"
"""Words of this project that the first page does without."""


def test_the_first_page_explains_its_terms_and_names_its_kernels(page, report):
    """Each term of the glossary has a tooltip where it is first used; no kernel is called by its rung alone."""
    opened(page, report / "index.html")
    first = page.execute_script(
        "document.querySelectorAll('svg, nav, style, script, pre, code, details, h1, h2, h3, a, caption, thead')"
        ".forEach(each => each.remove());"
        "return [document.body.innerText, [...document.querySelectorAll('abbr')].map(each => each.title)]"
    )
    words, explained = first
    for entry in text.glossary():
        used = [
            each for each in (entry["term"], *entry.get("also", ())) if re.search(rf"(?<![\w.-]){each}(?![\w-])", words)
        ]
        assert not used or entry["means"] in explained, used
    opened(page, report / "index.html")
    seen = page.execute_script(SEEN)
    assert re.findall(rf"\b(?:{PRIVATE})\b", seen) == []
    names: dict[str, set[str]] = {}
    for kernel in (kernel for family in registry.family_names() for kernel in registry.kernels(family)):
        spoken = re.search(r"(?<= )\w+", ladders.label(kernel))
        names.setdefault(kernel.rung, set()).update({kernel.name, spoken[0] if spoken else ""})
    rungs = [rung for rung in names if re.match(r"[A-Z]\d", rung) and rung not in ("L1", "L2")]
    bare = [
        found[0]
        for found in re.finditer(rf"(?<![\w.])({'|'.join(map(re.escape, rungs))})(?![\w.])(?: (\w+))?", seen)
        if found[2] not in names[found[1]]
    ]
    assert bare == []


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?(?![\w])")
_PROSE = re.compile(r"<(p|li|dd)\b[^<>]*>(.*?)</\1>", re.S)
_APART = re.compile(r"<(style|script|svg|table|pre|figure|nav|footer)\b.*?</\1>", re.S)

_NOTES = re.compile(r'<(p|ol|ul|details) class="(?:where|sources|muted|references|tally)".*?</\1>', re.S)


def _plain(markup: str) -> str:
    apart = r'<span class="(?:ci|where|origin|flag|evidence)">.*?</span>|<code>.*?</code>'
    markup = re.sub(apart, " ", markup, flags=re.S)
    return " ".join(unescape(re.sub("<[^<>]+>", "", markup)).split())


def paragraphs(page: Path) -> list[str]:
    """Paragraphs, list items and definitions, without tables, figures, listings, intervals and notes of origin."""
    markup = _NOTES.sub("", _APART.sub("", page.read_text()))
    return [text for _, inner in _PROSE.findall(markup) if (text := _plain(inner))]


def split(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=[.?!:;])\s+(?=[A-Z0-9“])", text) if each]


def count_words(text: str) -> int:
    return len(text.split())


def per_hundred_words(texts: list[str]) -> float:
    """Numbers per 100 words; sizes and names such as L7, sm_90 and bf16 are words."""
    count = sum(count_words(text) for text in texts)
    return 100 * sum(len(NUMBER.findall(text)) for text in texts) / max(count, 1)


def test_the_paper_and_its_pages_read_easily(report):
    """T3: of the first page and those beside it, and of every family's; tables and figures are left out."""
    families = [path for path in (report / "families").glob("*.html") if not path.stem.endswith("-rows")]
    assert families
    for path in (*(report / name for name in WORDS), report / "claims.html", *sorted(families)):
        texts = paragraphs(path)
        sentences = [each for part in texts for each in split(part)]
        counts = [count_words(each) for each in sentences]
        assert sum(counts) / len(counts) <= 22, path.name
        assert [each for each in sentences if count_words(each) > 40] == [], path.name
        # Findings are about measurements, and each of their numbers leads to its row.
        assert per_hundred_words(texts) <= (12 if path.parent.name == "families" else 10), path.name


def test_the_articles_and_our_kernels_have_findings(report):
    """T4: at least three, each with a number that is looked up and leads to its row or claim."""
    found = re.findall(r'<span class="finding-said">(.*?)</span>\s*<', (report / "index.html").read_text(), re.S)
    assert all(re.search(r'<a href="[^"]*#(row|claim)-[^"]*"[^>]*>[\d.,]+', each) for each in found)
    families = [path for path in (report / "families").glob("*.html") if not path.stem.endswith("-rows")]
    assert len(found) >= (3 if len(families) == len(registry.family_names()) else 0)


def test_every_command_plans(report, tmp_path_factory):
    """T5: all targets that the pages' commands name, in one dry run from the recordings."""
    targets = {
        target
        for path in sorted(report.rglob("*.html"))
        for command in re.findall(r"snakemake [^<\n]*", path.read_text())
        for target in re.findall(r"(?<= )results/\S+", unescape(command))
    }
    assert len(targets) > 50
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--nolock", "--quiet", "--cores", "1"]
    command += ["--config", "measure=recorded", "--", *sorted(targets)]
    with alone("checkout", tmp_path_factory):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
