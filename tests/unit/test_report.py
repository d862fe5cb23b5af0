"""The paper says what its inputs say, lacks nothing that it refers to, and fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from synthetic import LEVELS, World

from gemmrepro import report
from gemmrepro.files import ROOT

VOID = set("area base br col embed hr img input link meta source track wbr".split())


def stage(module: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", f"gemmrepro.{module}", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": "workflow"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def make(world: World) -> Path:
    """Verdicts, figures and the paper from a synthetic world; returns the paper's path."""
    root = world.root
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build]
    done = stage("verdicts", *inputs, "--out", root / "verdicts.json")
    assert done.returncode == 0, done.stderr
    done = stage("figures", "--family", "ladder", "--measure", world.measure, "--out", root / "figures" / "ladder")
    assert done.returncode == 0, done.stderr
    inputs += ["--verdicts", root / "verdicts.json", "--figures", root / "figures", "--images", world.images]
    done = stage("report", *inputs, "--config", world.config, "--out", root / "index.html")
    assert done.returncode == 0, done.stderr
    return root / "index.html"


class Page(HTMLParser):
    """Collects what the tests ask about, and refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.headings: list[int] = []
        self.tables = self.captions = 0
        self.bare_headers = 0
        self.stack: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found.get("href", ""))
        if tag in ("img", "script", "iframe", "video", "audio", "source"):
            self.sources.append(found.get("src", ""))
        if tag == "link":
            self.sources.append(found.get("href", ""))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.tables += tag == "table"
        self.captions += tag == "caption"
        self.bare_headers += tag == "th" and "scope" not in found
        if tag not in VOID:
            self.stack.append(tag)

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
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[str, Page]:
    text = make(World(tmp_path_factory.mktemp("full")).write()).read_text()
    return text, Page(text)


def test_it_is_one_file_that_asks_for_nothing(full):
    text, page = full
    assert len(text.encode()) < 3_000_000
    assert [source for source in page.sources if source not in ("", "data:,")] == []
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert not [link for link in page.links if re.match(r"[a-z]+:|//", link)]


def test_anchors_resolve_and_ids_are_unique(full):
    _, page = full
    assert len(page.ids) == len(set(page.ids))
    assert [link for link in page.links if link.startswith("#") and link[1:] not in page.ids] == []


def test_structure_for_screen_readers(full):
    text, page = full
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert page.tables == page.captions > 0
    assert page.bare_headers == 0
    for landmark in ("<header", "<nav", "<main", "<footer", 'class="skip"', '<html lang="en">'):
        assert landmark in text
    assert text.count('role="img"') >= 3 and "aria-labelledby" in text


def test_it_states_counts_origin_and_headline(full):
    _, page = full
    words = page.words
    assert "25 statements in numbers from 1 article (ladder)" in words
    assert "recorded earlier on Synthetic GPU" in words
    assert "L7 warptile built by cuda12, runs at 44.1 TFLOP/s" in words
    assert "the article gives 0.937 on NVIDIA A6000" in words
    assert "10 of 10 kernels pass the static gate, 10 the numerical one" in words
    assert "33\N{MULTIPLICATION SIGN}65\N{MULTIPLICATION SIGN}17" in words


def test_each_kernel_has_its_section(full):
    text, page = full
    for kernel in ("ladder.vector_add", *LEVELS, "ceilings.ffma", "ceilings.dram_copy"):
        assert report.anchor(kernel) in page.ids
        assert f"--force results/gates/{kernel}.json" in page.words
        assert f"--force results/build/cuda13/{kernel}.json" in page.words
    assert text.count("Main loop, cuda12 for sm_90") == 10
    assert 'class="t-' in text
    assert text.count('class="spark"') == len(LEVELS) * 6 * 2 * 2


def test_svg_colours_follow_the_page(full):
    text, _ = full
    plots = re.findall(r'<div class="plot".*?</svg></div>', text, re.DOTALL)
    assert len(plots) == 3
    for plot in plots:
        assert "var(--ink)" in plot and "var(--paper)" in plot
        assert not re.search(r"#1b1f26|#0072b2|#ffffff", plot, re.IGNORECASE)


def test_stale_rows_are_struck_and_labelled(tmp_path):
    text = make(World(tmp_path, stale=("ladder.warptile",)).write()).read_text()
    page = Page(text)
    assert re.search(r'<s class="stale"><a href="#samples-ladder-warptile">', text)
    assert '<span class="flag">stale</span>' in text
    assert "24 rows are stale" in page.words
    assert "the fastest level, L6 vectorized" in page.words


def test_what_is_missing_is_said(tmp_path):
    world = World(tmp_path, counters=False, ceilings=False, locks=False, numeric="not run", sizes=(256, 512)).write()
    words = Page(make(world).read_text()).words
    assert "The profiler could not be used" in words
    assert "The numerical gate has not been run for today's binaries" in words
    assert "The article's size, 4096, was not part of this sweep" in words
    assert "This run used no containers" in words
    assert "This family was not measured." in words
    assert "0 the numerical one" in words


def test_live_is_said_everywhere(tmp_path):
    words = Page(make(World(tmp_path, source="live", sizes=(4096,)).write()).read_text()).words
    assert "measured in this run on Synthetic GPU" in words
    assert "recorded" not in re.sub(r"recorded (here|beyond|ones)", "", words.split("Limits")[0].split("Results")[1])


def test_nothing_at_all_still_makes_a_paper(tmp_path):
    world = World(tmp_path, ladder=False, ceilings=False, locks=False).write()
    for folder in (world.build, world.gates):
        for path in folder.rglob("*.json"):
            path.unlink()
    words = Page(make(world).read_text()).words
    assert "Nothing was measured" in words
    assert "There is no build record of it." in words


def test_samples_may_be_missing(tmp_path):
    text = make(World(tmp_path, samples=False, sizes=(4096,)).write()).read_text()
    assert 'class="spark"' not in text and "samples.parquet" not in text


def test_a_failed_gate_is_shown(tmp_path):
    words = Page(make(World(tmp_path, failed_gates=("ladder.smem",), sizes=(4096,)).write()).read_text()).words
    assert "1 fails a gate" in words


def test_markup_in_the_data_is_escaped(tmp_path):
    text = make(World(tmp_path, gpu="<script>alert(1)</script>", sizes=(4096,)).write()).read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text


def test_a_missing_input_is_one_line(tmp_path):
    world = World(tmp_path, sizes=(4096,)).write()
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build, "--figures", tmp_path]
    inputs += ["--verdicts", tmp_path / "none.json", "--images", world.images, "--config", world.config]
    done = stage("report", *inputs, "--out", tmp_path / "index.html")
    assert done.returncode == 1
    assert done.stderr.startswith("gemmrepro: the verdicts") and done.stderr.count("\n") == 1


def test_histogram_marks_the_median_and_tells_its_range():
    drawn = report.histogram(np.array([10.0, 11.0, 11.0, 12.0, 30.0]), 11.0)
    assert "5 samples from 10.00 µs to 30.00 µs" in drawn
    assert 'class="mid"' in drawn
    assert report.histogram(np.array([])) == ""
    assert "3 samples" in report.histogram(np.array([5.0, 5.0, 5.0]), 5.0)


def test_static_checks_are_gathered_across_architectures():
    def check(arch, name, found, passed=True, expected="at least 1", why="because"):
        return {"arch": arch, "check": name, "why": why, "expected": expected, "found": found, "passed": passed}

    lines = report.gather_checks(
        [
            check("sm_80", "LDG", 8),
            check("sm_80", "LDG", 0, expected="0"),
            check("sm_80", "shared bytes", 9, expected="at most 10"),
            check("sm_90", "LDG", 8),
            check("sm_90", "LDG", 1, passed=False, expected="0"),
            check("sm_90", "shared bytes", 9, expected="at most 20"),
        ]
    )
    assert [(line["check"], line["expected"], line["passed"]) for line in lines] == [
        ("LDG", "at least 1", True),
        ("LDG", "0", False),
        ("shared bytes", "at most 10 or at most 20", True),
    ]
    assert lines[0]["found"] == [{"found": "8", "archs": "every target"}]
    assert lines[1]["found"] == [{"found": "0", "archs": "sm_80"}, {"found": "1 (fails)", "archs": "sm_90"}]


def test_links_lead_only_into_the_repository(tmp_path):
    inside = ROOT / "kernels" / "published.csv"
    assert report.relative(inside, ROOT / "reports" / "index.html") == "../kernels/published.csv"
    assert report.relative(inside, tmp_path / "index.html") is None
