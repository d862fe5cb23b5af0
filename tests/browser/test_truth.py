"""The report never contradicts itself: each number leads to its evidence, and each limit holds of the data."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import numbers_shown
import pandas as pd
import prose
from pages import opened, waited
from support import ROOT, alone

from gemmrepro import registry
from gemmrepro.measure.rows import BEYOND, ENOUGH


def with_numbers(report: Path) -> list[Path]:
    """The pages with measured numbers: all but that of the machines."""
    return [
        path for path in sorted(report.rglob("*.html")) if path.name not in ("gpus.html", "runs.html", "reproduce.html")
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
        if not (count := page.execute_script(numbers_shown.COUNT)):
            continue
        tried += 1
        index = chance.randrange(count)
        said = page.execute_async_script(numbers_shown.CLICK, index)
        missing = set(numbers_shown.KINDS) - numbers_shown.evidence(said, report)
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


def limits(report: Path) -> list[str]:
    section = (report / "index.html").read_text().split('<section id="limits"', 1)[1].split("</section>")[0]
    return [unescape(re.sub("<[^<>]+>", "", each)) for each in re.findall("<li>(.*?)</li>", section, re.S)]


def tables(report: Path, name: str) -> dict[str, pd.DataFrame]:
    """A table of each family that the report holds."""
    return {path.parent.name: pd.read_csv(path) for path in sorted((report / "data").glob(f"*/{name}"))}


def test_limits_hold_of_the_data(report):
    """T1: a family that is said to lack something lacks it in the report's own files."""
    said, rows, counters = limits(report), tables(report, "summary.csv"), tables(report, "counters.csv")
    assert said

    def families(words: str) -> list[str]:
        sentences = [each for each in said if words in each]
        return [name for name in rows if any(re.search(rf"\b{name}\b", each.split(":")[0]) for each in sentences)]

    assert all(counters[name].empty for name in families("no hardware counters were recorded"))
    for cache, other in (("warm", "cold"), ("cold", "warm")):
        assert all(not (rows[name]["cache"] == other).any() for name in families(f"timed with a {cache} cache only"))
    for toolkit in ("cuda12", "cuda13"):
        assert all(set(rows[name]["toolkit"]) <= {toolkit, "library"} for name in families(f"by {toolkit} only"))


def test_no_interval_from_too_few_samples_or_above_a_ceiling(report):
    """On the pages of kernels and baselines, where every row is."""
    ceilings = tables(report, "summary.csv").get("ceilings")
    loops = {} if ceilings is None else ceilings.groupby("dtype")["tflops"].max().to_dict()
    sixteen = [loops[dtype] for dtype in ("fp16", "bf16") if loops.get(dtype)]
    loops |= dict.fromkeys(("fp16", "bf16"), max(sixteen)) if sixteen else {}
    row = re.compile(r'<tr data-row="row-[^"]*".*?</tr>', re.S)
    checked = 0
    for path in sorted((report / "families").glob("*-rows.html")):
        text = path.read_text()
        headings = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", text)
        samples, rate = headings.index("Samples"), headings.index("TFLOP/s")
        kinds = [headings.index("Type")] if "Type" in headings else []
        for markup in row.findall(text):
            cells = re.findall(r"<t[hd][ >].*?</t[hd]>", markup, re.S)
            checked += 1
            if int(re.sub("<[^<>]+>|,", "", cells[samples])) < ENOUGH:
                assert 'class="ci"' not in markup, markup
            ends = re.search(r"\[([\d.,e+]+), ([\d.,e+]+)\]", cells[rate])
            dtype = re.sub("<[^<>]+>", "", cells[kinds[0]]) if kinds else ""
            if ends and dtype in loops and loops[dtype] > 0:
                assert float(ends[2].replace(",", "")) <= BEYOND * loops[dtype] * 1.001, markup
    assert checked > 0


def test_no_baseline_stands_beside_kernels_with_a_throughput_of_another_moment(report):
    """A table of kernels links to no row of a baseline, and states its throughput as it was beside them."""
    for path in sorted((report / "families").glob("*.html")):
        text = path.read_text()
        for table in re.findall(r"<table\b.*?</table>", text, re.S):
            if "data-figure" in table or "Published" not in text:
                continue
            heads = re.findall(r'<th scope="row">.*?baselines/([^"]+)\.html.*?</tr>', table, re.S)
            rows = [each for each in re.findall(r"<tr.*?</tr>", table, re.S) if "baselines/" in each.split("</th>")[0]]
            assert all("#row-" not in each.split("</th>", 1)[1] or "error of" in each for each in rows), heads


def test_the_paper_and_its_pages_read_easily(report):
    """T3: of the paper, of the claims' page and of every family's; tables and figures are left out."""
    assert sum(map(prose.words, prose.paragraphs(report / "index.html"))) <= 9_000
    families = [path for path in (report / "families").glob("*.html") if not path.stem.endswith("-rows")]
    assert families
    for path in (report / "index.html", report / "claims.html", *sorted(families)):
        texts = prose.paragraphs(path)
        sentences = [each for text in texts for each in prose.sentences(text)]
        counts = [prose.words(each) for each in sentences]
        assert sum(counts) / len(counts) <= 22, path.name
        assert [each for each in sentences if prose.words(each) > 40] == [], path.name
        # A family's findings are about measurements, and each of their numbers leads to its row.
        assert prose.per_hundred_words(texts) <= (12 if path.parent.name == "families" else 8), path.name


def test_the_abstract_names_findings(report):
    """T4: at least three, each with a number that is looked up and leads to its row or claim."""
    text = (report / "index.html").read_text()
    found = re.findall(r'<li class="finding-said">(.*?)</li>', text.split('id="abstract"', 1)[1].split("</section>")[0])
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
