"""Figures draw what the rows say, say what they lack, and are the same bytes for the same rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from synthetic import LEVELS, World, stand_in

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.figures import catalogue, climb, ratio, style
from gemmrepro.figures.catalogue import LADDER
from gemmrepro.judge import ceilings
from gemmrepro.measure.rows import load
from gemmrepro.registry import ladders


def call(world: World, out: Path, *options: str) -> None:
    """The figures' command line, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "gemmrepro.figures.stage",
        "--measure",
        world.measure,
        "--out",
        out,
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": "workflow", "PYTHONHASHSEED": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def draw(world: World, family: str = "ladder", names: Sequence[str] = LADDER) -> dict[str, style.Drawing]:
    """A family's figures as matplotlib holds them."""
    measured = world.write().measure
    return catalogue.draw(load(measured, family), load(measured, "ceilings"), names)


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("figures"))


@pytest.fixture(scope="module")
def drawn(world) -> dict[str, style.Drawing]:
    return draw(world)


@pytest.fixture(scope="module")
def svg(drawn) -> dict[str, str]:
    return {name: catalogue.svg_of(drawing) for name, drawing in drawn.items()}


@pytest.mark.parametrize("name", LADDER)
def test_svg_is_well_formed_and_keeps_its_text(svg, name):
    root = ElementTree.fromstring(svg[name])
    assert root.tag.endswith("svg")
    assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 5
    assert "metadata" not in svg[name]
    assert style.INK in svg[name]


def test_the_command_line_writes_the_same_bytes_and_what_they_show(world, drawn, svg, tmp_path):
    call(world, tmp_path, "--family", "ladder", "--figures", ",".join(LADDER))
    for name in LADDER:
        assert (tmp_path / f"{name}.svg").read_text() == svg[name]
        assert (tmp_path / f"{name}.csv").read_text() == catalogue.csv_of(drawn[name])
        about = json.loads((tmp_path / f"{name}.json").read_text())
        assert (about["title"], about["caption"], about["alt"]) == (
            drawn[name].title,
            drawn[name].caption,
            drawn[name].alt,
        )
        assert about["rows"] == list(drawn[name].rows) and about["stale"] is False
        assert about["columns"][0] == "level" and "stale" not in about["columns"]
        assert [row["level"] for row in about["table"]] == [row["level"] for row in drawn[name].table]
        assert about["command"].endswith(f"results/figures/ladder/{name}.svg")
        assert (about["source"], about["gpu"]) == ("recorded", "Synthetic GPU")


def test_a_family_without_baseline_has_no_figures(world, drawn, tmp_path):
    assert catalogue.figure_names("ceilings") == ()
    call(world, tmp_path / "out", "--family", "ceilings")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_unknown_figure_is_refused():
    with pytest.raises(UserError, match="there is no figure clim; known figures: climb, "):
        catalogue.check_names("ladder", ["clim"])


def test_ratio_puts_published_beside_measured(drawn):
    drawing = drawn["ratio"]
    rows = {row["level"]: row for row in drawing.table}
    assert rows["L7 warptile"]["published"] == 0.937
    assert rows["L7 warptile"]["measured, cuda12"] == pytest.approx(0.90)
    assert rows["L7 warptile"]["measured, cuda13"] == pytest.approx(0.918)
    low, high = rows["L7 warptile"]["95% interval"]
    assert low < 0.90 < high
    assert next(iter(drawing.table[0])) == "level"
    assert "NVIDIA A6000" in drawing.caption and "Synthetic GPU" in drawing.caption
    assert len(drawing.rows) == 2 * len(LEVELS)


def test_stale_rows_are_marked(tmp_path):
    for drawing in draw(World(tmp_path, stale=("ladder.smem",))).values():
        assert drawing.stale is True
        assert "stale" in drawing.caption
        assert {row["level"] for row in drawing.table if row.get("stale")} == {"L3 smem"}


def test_a_smaller_sweep_takes_its_largest_size_and_says_so(tmp_path):
    ratio = draw(World(tmp_path, sizes=(256, 512), caches=("cold", "warm")), names=["ratio"])["ratio"]
    assert "M = N = K = 512" in ratio.caption
    assert "4096 was not measured" in ratio.caption


# What a figure shows is selected before anything is drawn.


def test_the_climb_selects_a_place_per_step_and_reaches_beyond_every_bar(world, drawn):
    shown = climb.selection(load(world.measure, "ladder"), load(world.measure, "ceilings"))
    assert shown.sizes == [4096, 8192] and len(shown.labels) == len(ladders.steps("ladder"))
    panel = shown.panels[0]
    speeds = [step.level.point.value for step in panel.steps if step.level]
    assert len(speeds) == len(LEVELS) and speeds == sorted(speeds)
    beside = [step.level.baseline for step in panel.steps if step.level]
    assert max(beside) == pytest.approx(min(beside))
    assert shown.ceilings[0].value == 60.0 and shown.reach >= 60.0
    assert not shown.has_tuned and shown.any_step


def test_an_interval_of_time_is_one_of_throughput_turned_over(world, drawn):
    shown = climb.selection(load(world.measure, "ladder"), None)
    levels = [level.point for panel in shown.panels for level in panel.levels()]
    assert levels and all(point.low < point.value < point.high for point in levels)


def test_bars_are_of_one_toolkit_and_diamonds_of_the_other(world, drawn):
    shown = ratio.selection(load(world.measure, "ladder"))
    assert (shown.toolkit, shown.other_toolkit) == ("cuda12", "cuda13")
    measured = [bar for bar in shown.bars if bar.values]
    assert len(measured) == len(LEVELS)
    assert all((len(bar.drawn), len(bar.others)) == (1, 1) for bar in measured)
    assert shown.reach == pytest.approx(max(bar.others[0].value for bar in measured), abs=0.1)


def test_a_recorded_family_is_drawn_at_the_size_of_its_article():
    drawn = catalogue.draw(load(ROOT / "reports/recorded/h200", "cute"), None, ["ratio"])["ratio"]
    assert "M = N = K = 2048" in drawn.caption
    assert {row["level"]: row["published"] for row in drawn.table if "published" in row}["cute_cpp 3-stage"] == 1.16


def test_a_family_timed_with_cold_caches_alone_is_drawn_from_them():
    """As the default run times Ada's and CuTe's."""
    measured = load(ROOT / "reports/recorded/h200", "ada")
    cold = replace(measured, summary=measured.summary[measured.summary["cache"] == "cold"])
    assert (measured.cache, cold.cache) == ("warm", "cold")
    for drawn in catalogue.draw(cold, None, ["ratio", "climb"]).values():
        assert drawn.rows and "cold cache" in drawn.caption and "warm" not in drawn.caption
    warm, alone = (climb.selection(each, None) for each in (measured, cold))
    shown = [[step.level is not None for panel in each.panels for step in panel.steps] for each in (warm, alone)]
    assert shown[0] == shown[1] and any(shown[0])
    assert all(bar.drawn for group in ratio.selection(cold).groups for bar in group.bars)


def test_nothing_measured_still_draws(tmp_path):
    for drawing in draw(World(tmp_path, ladder=False, ceilings=False)).values():
        assert len(catalogue.svg_of(drawing)) > 1000
        assert "Nothing was measured." in drawing.caption


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
        for variable in style.COLOURS.values():
            if variable.name not in ("grid", "paper"):
                assert contrast(values[f"--{variable.name}"], values["--paper"]) >= 3, variable
    for colour, variable in style.COLOURS.items():
        assert f"--{variable.name}: {colour}" in light, "the page and the SVG file must agree in light mode"
        assert f"--{variable.name}: {variable.dark}" in dark, "and in dark mode"


# With stand-ins for all that a family may hold: two types, tuned twins, steps past the article.


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, dict[str, style.Drawing]]:
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, folder)
        sizes = (1024, 4096, 8192, 16384)
        world = World(folder, families=("ladder", "hopper", "ceilings"), whole=True, sizes=sizes).write()
        roofs = load(world.measure, "ceilings")
        return {name: catalogue.draw(load(world.measure, name), roofs) for name in ("ladder", "hopper")}


def test_ratio_puts_twins_beside_their_level(whole):
    table = {row["level"]: row for row in whole["ladder"]["ratio"].table}
    assert table["L7 warptile"]["published"] == 0.937
    assert table["L7 warptile, tuned"]["measured, cuda12"] == pytest.approx(0.99)
    assert "published" not in table["L7 warptile, tuned"] and "published" not in table["L7.1 async_copy"]
    levels = list(table)
    assert levels.index("L7 warptile, tuned") == levels.index("L7 warptile") + 1 < levels.index("L7.1 async_copy")
    said = whole["ladder"]["ratio"].caption
    assert "striped: the same source, tuned on this GPU" in said and "fp32" in said
    hopper = whole["hopper"]["ratio"]
    assert "Hatched" not in hopper.caption and "bf16 and fp16" in hopper.caption
    assert {"H1 wgmma", "H1 wgmma, fp16"} <= {row["level"] for row in hopper.table}


def test_climb_shows_the_ceilings_of_its_type(whole):
    climb = whole["hopper"]["climb"]
    rows = {row["level"]: row for row in climb.table}
    assert rows["WGMMA loop, measured"]["TFLOP/s"] == 850 and rows["WGMMA loop, measured"]["power, W"] == 90
    assert rows["computed peak"]["TFLOP/s"] == pytest.approx(100 * 4096 * 1000 / 1e6)
    assert {row["size"] for row in climb.table if row["level"] == "H8 hilbert"} == {4096, 8192, 16384}
    assert not [row for row in climb.table if "fp16" in row["level"]]
    assert {key.split("/")[2] for key in climb.rows} == {"bf16"}
    assert "850 TFLOP/s at 1,000 MHz, 90 W" in climb.caption
    ladder = {row["level"] for row in whole["ladder"]["climb"].table}
    assert {"FFMA loop, measured", "FFMA from registers loop, measured", "L7 warptile, tuned"} <= ladder
    assert "WGMMA loop, measured" not in ladder


def test_peaks_follow_from_clock_and_multiprocessors():
    h200 = {"compute_capability": "9.0", "sm_count": 132, "clock_max_mhz": 1980}
    assert ceilings.computed_peak(h200, "fp32")[0] == pytest.approx(66.9, abs=0.05)
    # NVIDIA gives 989 TFLOP/s dense for the H100 SXM, at its boost clock of 1830 MHz.
    assert ceilings.computed_peak({**h200, "clock_max_mhz": 1830}, "bf16")[0] == pytest.approx(989, abs=1)
    assert ceilings.computed_peak({**h200, "compute_capability": "9.9"}, "bf16") is None
    assert ceilings.computed_peak({}, "fp32") is None


def test_the_toolkit_that_built_most_kernels_stands_for_a_family(tmp_path):
    world = World(tmp_path, families=("ladder",), sizes=(2048,)).write()
    measured = load(world.measure, "ladder")
    assert measured.toolkit == "cuda12"
    rows = measured.summary
    fewer = rows[(rows["toolkit"] != "cuda12") | (rows["kernel"] != "ladder.smem")]
    assert replace(measured, summary=fewer).toolkit == "cuda13"
    assert replace(measured, summary=rows[:0]).toolkit is None


def test_what_a_kernels_gain_is_measured_over(tmp_path, monkeypatch):
    stand_in(monkeypatch, tmp_path)
    from gemmrepro.registry import kernel

    def before(name):
        found = ladders.before(kernel(name))
        return found and found.id

    assert before("ladder.naive") is None and before("ladder.vector_add") is None
    assert before("ladder.coalesced") == "ladder.naive"
    assert before("ladder.warptile_tuned") == "ladder.warptile"
    assert before("ladder.async_copy") == "ladder.warptile"
    assert ladders.before(kernel("ladder.smem").with_story(gain_over="ladder.naive")).id == "ladder.naive"
    assert before("hopper.tiles_fp16") == "hopper.wgmma_fp16"
    assert ladders.dtypes("hopper") == ["bf16", "fp16"]
    assert ladders.how_made(kernel("hopper.tiles_fp16")) == "fp16"


def test_labels_keep_their_distance_and_their_order():
    places = style.spread([0.5, 0.5, 0.51, 0.1], 0.1, 0.0, 1.0)
    assert places[3] == pytest.approx(0.1)
    inner = sorted(places[:3])
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(inner))
    assert places[0] < places[2] and max(style.spread([0.99, 1.0, 1.0], 0.1, 0.0, 1.0)) <= 1.0
