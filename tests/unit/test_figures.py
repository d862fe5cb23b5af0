"""Figures draw what the rows say, say what they lack, and are the same bytes for the same rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from synthetic import LEVELS, World

from gemmrepro import figures
from gemmrepro.files import ROOT


def run(world: World, out: Path, family: str = "ladder", **environment: str) -> None:
    command = [sys.executable, "-m", "gemmrepro.figures", "--family", family, "--measure", world.measure, "--out", out]
    env = {**os.environ, "PYTHONPATH": "workflow", **environment}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def about(out: Path, name: str) -> dict:
    return json.loads((out / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("figures")
    run(World(root).write(), root / "out")
    return root / "out"


@pytest.mark.parametrize("name", figures.NAMES)
def test_svg_is_well_formed_and_draws_text_as_outlines(drawn, name):
    tree = ElementTree.parse(drawn / f"{name}.svg")
    assert tree.getroot().tag.endswith("svg")
    assert not list(tree.getroot().iter("{http://www.w3.org/2000/svg}text"))
    text = (drawn / f"{name}.svg").read_text()
    assert "<dc:date>" not in text
    assert figures.INK in text


def test_same_rows_same_bytes(drawn, tmp_path):
    run(World(tmp_path).write(), tmp_path / "again", PYTHONHASHSEED="3")
    for name in figures.NAMES:
        assert (tmp_path / "again" / f"{name}.svg").read_bytes() == (drawn / f"{name}.svg").read_bytes()
        assert about(tmp_path / "again", name) == about(drawn, name)


def test_ratio_puts_published_beside_measured(drawn):
    said = about(drawn, "ratio")
    rows = {row["level"]: row for row in said["table"]}
    assert rows["L7 warptile"]["published"] == 0.937
    assert rows["L7 warptile"]["measured, cuda12"] == pytest.approx(0.90)
    assert rows["L7 warptile"]["measured, cuda13"] == pytest.approx(0.918)
    low, high = rows["L7 warptile"]["95% interval"]
    assert low < 0.90 < high
    assert said["columns"][0] == "level"
    assert "NVIDIA A6000" in said["caption"] and "Synthetic GPU" in said["caption"]
    assert len(said["rows"]) == 2 * len(LEVELS)
    assert said["command"].endswith("results/figures/ladder/ratio.svg")


def test_throughput_holds_every_point_and_the_baseline(drawn):
    said = about(drawn, "throughput")
    assert len(said["table"]) == (len(LEVELS) + 1) * 6 * 2
    assert {row["cache"] for row in said["table"]} == {"warm", "cold"}
    assert sum(row["level"] == "cuBLAS" for row in said["table"]) == 12


def test_roofline_uses_the_counted_traffic(drawn):
    said = about(drawn, "roofline")
    rows = {row["level"]: row for row in said["table"]}
    traffic = 12 * 4096**2 * (1 + 40 * 2)
    assert rows["L1 naive"]["FLOP/byte"] == pytest.approx(2 * 4096**3 / traffic)
    assert {row["traffic"] for row in said["table"]} == {"counted"}
    assert any(key.startswith("ceilings.ffma/") for key in said["rows"])
    assert any(key.startswith("ceilings.dram_copy/") for key in said["rows"])


def test_roofline_without_counters_or_ceilings_says_so(tmp_path):
    run(World(tmp_path, counters=False, ceilings=False).write(), tmp_path / "out")
    said = about(tmp_path / "out", "roofline")
    assert {row["traffic"] for row in said["table"]} == {"least possible"}
    assert said["table"][0]["FLOP/byte"] == pytest.approx(2 * 4096**3 / (12 * 4096**2))
    assert "No hardware counters were read" in said["caption"]
    assert "arithmetic and memory ceilings of this GPU were not measured" in said["caption"]


def test_stale_rows_are_marked(tmp_path):
    run(World(tmp_path, stale=("ladder.smem",)).write(), tmp_path / "out")
    for name in figures.NAMES:
        said = about(tmp_path / "out", name)
        assert said["stale"] is True
        assert "stale" in said["caption"]
        assert {row["level"] for row in said["table"] if row["stale"]} == {"L3 smem"}


def test_a_smaller_sweep_takes_its_largest_size_and_says_so(tmp_path):
    run(World(tmp_path, sizes=(256, 512), caches=("cold", "warm")).write(), tmp_path / "out")
    assert "M = N = K = 512" in about(tmp_path / "out", "ratio")["caption"]
    assert "4096, was not measured" in about(tmp_path / "out", "ratio")["caption"]


def test_nothing_measured_still_draws(tmp_path):
    world = World(tmp_path, ladder=False, ceilings=False).write()
    run(world, tmp_path / "out")
    for name in figures.NAMES:
        assert (tmp_path / "out" / f"{name}.svg").stat().st_size > 1000
        assert "Nothing was measured." in about(tmp_path / "out", name)["caption"]


def test_a_family_without_baseline_has_no_figures(tmp_path):
    assert figures.figure_names("ceilings") == ()
    run(World(tmp_path).write(), tmp_path / "out", family="ceilings")
    assert list((tmp_path / "out").iterdir()) == []


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_series_stands_out_from_paper_light_and_dark():
    """3:1, as WCAG 2.1 asks of graphics."""
    css = (ROOT / "reports" / "template" / "paper.css").read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")[0], css.split("prefers-color-scheme: dark")[1]
    dark = dark.split("* { box-sizing")[0]
    for block in (light, dark):
        values = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", block))
        for variable in figures.THEME.values():
            if variable not in ("--grid", "--paper"):
                assert contrast(values[variable], values["--paper"]) >= 3, variable
    for colour, variable in figures.THEME.items():
        assert f"{variable}: {colour}" in light, "the page and the SVG file must agree in light mode"
