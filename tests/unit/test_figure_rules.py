"""Rules for every figure, tried on the recorded rows: legible, small, true to the pairing of rows, and described."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from colour_difference import VISION, ciede2000, lab
from drawn_text import Box, boxes, faults, size_of

from gemmrepro import registry
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.experiments import Lines, tables
from gemmrepro.figures import catalogue, climb, layouts, lines, points, slim, style, widths
from gemmrepro.measure.rows import load

RECORDED = ROOT / "reports" / "recorded" / "h200"
FAMILIES = ("ladder", "hopper", "ada", "cute", "cutile", "ozaki", "crt")
BYTES, ELEMENTS = 40_000, 1_200


@pytest.fixture(scope="module")
def drawings() -> Iterator[dict[str, style.Drawing]]:
    """The figures of the sweeps' rows, of the layouts and of the articles' tables, family by family."""
    found = {}
    for family in FAMILIES:
        names = (*registry.family(family).figures, *(name for name in tables.declared(family)))
        drawn = catalogue.draw(load(RECORDED, family), load(RECORDED, "ceilings"), names)
        found |= {f"{family}/{name}": drawing for name, drawing in drawn.items()}
    yield found
    plt.close("all")


@pytest.fixture(scope="module")
def svgs(drawings) -> dict[str, str]:
    """Both widths of each figure."""
    wide = {name: catalogue.svg_of(drawing) for name, drawing in drawings.items()}
    return wide | {f"{name}.narrow": catalogue.svg_of(each, each.narrow) for name, each in drawings.items()}


def test_no_text_leaves_a_figure_or_meets_another(svgs):
    assert {name: found for name, svg in svgs.items() if (found := faults(svg))} == {}


def test_the_smallest_letters_are_legible_on_a_phone(svgs):
    """At 300 pixels, the width of a column on a screen of 390, letters are 10 pixels high."""
    narrow = {name: svg for name, svg in svgs.items() if name.endswith(".narrow")}
    assert len(narrow) == len(svgs) / 2
    for name, svg in narrow.items():
        assert min(box.size for box in boxes(svg)) * 300 / size_of(svg)[0] >= 10, name


def test_figures_are_small(svgs):
    sizes = {name: (len(svg.encode()), len(re.findall(r"<[a-zA-Z]", svg))) for name, svg in svgs.items()}
    assert {name: size for name, size in sizes.items() if size[0] > BYTES or size[1] > ELEMENTS} == {}


def test_a_description_states_a_finding_in_40_to_300_characters(drawings):
    for name, drawing in drawings.items():
        assert len(drawing.alt) in style.SAID and drawing.alt != drawing.title, name
        assert drawing.title and not re.search(r"\bnan\b|\d(e[+-])\d", drawing.title + drawing.alt), name


def test_a_csv_holds_the_table(drawings):
    for drawing in drawings.values():
        rows = list(csv.DictReader(io.StringIO(catalogue.csv_of(drawing))))
        assert len(rows) == len(drawing.table) > 0


@pytest.mark.parametrize("family", ["ladder", "hopper", "ada"])
def test_a_drawn_baseline_agrees_with_the_ratio(family):
    shown = climb.selection(load(RECORDED, family), load(RECORDED, "ceilings"))
    levels = [level for panel in shown.panels for level in panel.levels() if not math.isnan(level.ratio)]
    assert len(levels) > 10
    for level in levels:
        assert (level.point.value > level.baseline) == (level.ratio > 1)


def test_no_interval_of_few_samples_or_above_the_ceiling():
    few = pd.Series(
        {"samples": 5, "ratio_ci_low": 0.9, "ratio_ci_high": 1.1, "ratio": 1.0, "n": 8, "status": "current"}
    )
    few = pd.concat([few, pd.Series({name: "x" for name in ("kernel", "toolkit", "dtype", "cache")})])
    few = pd.concat([few, pd.Series({"m": 8, "k": 8, "d": math.nan})])
    enough = few.copy()
    enough["samples"] = points.ENOUGH
    assert not points.ratio_point(few).has_interval and points.ratio_point(enough).has_interval
    for family in ("hopper", "ada"):
        shown = climb.selection(load(RECORDED, family), load(RECORDED, "ceilings"))
        ends = [level.point.high for panel in shown.panels for level in panel.levels() if level.point.has_interval]
        assert ends and max(ends) <= points.BEYOND * shown.ceilings[0].value


def test_eight_series_differ_by_marker_and_dash_and_a_ninth_is_refused():
    looks = [lines.look(number) for number in range(len(style.SERIES))]
    assert len(looks) == 8
    for a, b in combinations(looks, 2):
        assert a.colour != b.colour and a.marker != b.marker and a.dash != b.dash
    with pytest.raises(UserError, match="at most 8 series"):
        lines.look(8)


def _chart(ys: list[float], **declared) -> lines.LineChart:
    """A line for each of `ys`, ending there."""
    series = tuple(
        lines.Series(i, f"a series with a long name, {i}", tuple(lines.Point(x, y, y, y, False, "") for x in (1, 1024)))
        for i, y in enumerate(ys)
    )
    about = Lines("name", "Subject", "n", "n", "y", "error", "law", {"law": "law"}, {}, **declared)
    return lines.LineChart(about, None, "", False, (1, 1024), (lines.Panel("law", series, None),))


@pytest.mark.parametrize("page", [widths.WIDE, widths.NARROW])
def test_lines_that_coincide_have_labels_that_do_not(page):
    """Eight labels at one end stand clear of each other, and there is no legend."""
    style.set_style()
    figure = lines.paint(_chart([3.0] * 8), page)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = slim.slim(buffer.getvalue(), "title", "what it says")
    assert faults(svg) == []
    said = " ".join(box.text for box in boxes(svg))
    assert figure.legends == [] and all(re.search(rf"\b{i}\b", said) for i in range(8))


def test_a_title_states_what_the_rows_bear_out():
    factor = {"says": "{name}: {factor} times", "reference": "a series with a long name, 0"}
    assert lines.title(_chart([2.0], says="from {first} to {last}")) == "Subject"  # nothing changes
    assert lines.title(_chart([2.0, 1.0], **factor)).startswith("Subject")  # no other reaches further
    chart = _chart([2.0, 1.0, 3.0], **factor)
    [panel] = chart.panels
    further = [replace(each, points=tuple(replace(p, x=4 * p.x) for p in each.points)) for each in panel.series[1:]]
    panel = replace(panel, series=(panel.series[0], *further))
    assert lines.title(replace(chart, panels=(panel,))) == "a series with a long name, 1: 4.00 times"


APART = 12
"""Least CIEDE2000 difference of two colours of a figure."""


def test_the_difference_of_colours_is_that_of_the_published_pairs():
    pairs = [  # of Sharma, Wu and Dalal's table 1
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1, 2), (50, 0, 0), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ]
    for one, two, difference in pairs:
        assert ciede2000(np.array(one), np.array(two)) == pytest.approx(difference, abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("page", ["light", "dark", "cells"])
def test_any_two_colours_are_told_apart(page, vision):
    """On either page, with all cones and without the green or the red: series, what was published, ink; and cells."""
    drawn = (*style.SERIES, style.PUBLISHED, style.INK)
    shown = {"light": drawn, "dark": [style.COLOURS[each].dark for each in drawn], "cells": layouts.SHADES}[page]
    for a, b in combinations(shown, 2):
        assert ciede2000(lab(a, vision), lab(b, vision)) >= APART, (a, b)


def test_figures_use_these_colours_alone(svgs):
    """But for the scale of a map of tiles, which is continuous and has its numbers in its cells."""
    known = {*style.COLOURS, *layouts.SHADES, layouts.ON_CELL}
    used = {
        name: {each.lower() for each in re.findall(r"#[0-9a-f]{6}\b", svg.split("@media")[0])}
        for name, svg in svgs.items()
    }
    assert {name: more for name, found in used.items() if (more := found - known) and "tiles" not in name} == {}


def test_text_that_overlaps_or_leaves_is_found():
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 40"><style>\n.a{font-size:10px}\n</style>'
    text = '<text class="a" x="{}" y="{}">wide</text>'
    assert faults(head + text.format(5, 20) + text.format(50, 20) + "</svg>") == []
    assert faults(head + text.format(5, 20) + text.format(15, 22) + "</svg>") == ["'wide' meets 'wide'"]
    assert faults(head + text.format(90, 20) + "</svg>") == ["'wide' leaves the picture"]
    turned = head + text.format(5, 30) + '<text class="a" transform="translate(60 38) rotate(-90)">wide</text></svg>'
    assert faults(turned) == [] and all(isinstance(box, Box) for box in boxes(turned))


def test_slimming_keeps_marks_and_joins_neighbours():
    svg = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">
    <defs><clipPath id="p1"><rect x="0" y="0" width="9" height="9"/></clipPath></defs><g id="figure_1"><g id="one">
    <path d="M 0 1.2345 &#10;L 2 3" style="fill: none; stroke: #1b1f26" clip-path="url(#p1)"/>
    <path d="M 4 5 &#10;L 6 7" style="fill: none; stroke: #1b1f26" clip-path="url(#p1)"/></g>
    <defs><path id="m1" d="M 0 3 L 3 0 L 0 0 z"/>
    <path id="m2" d="M 0 3 L 3 0 L 0 0 z"/><path id="m3" d="M 2 0 L -2 0"/></defs>
    <use xlink:href="#m1" x="1" y="2" style="fill: #1c6799"/>
    <use xlink:href="#m2" x="3.14159" y="2" style="fill: #1c6799"/>
    <use xlink:href="#m3" x="1" y="2" style="stroke: #1c6799"/><text x="1" y="2" style="font-size: 9px">A &lt; B</text>
    </g></svg>"""
    small = slim.slim(svg, "A title", "What it says")
    assert 'd="M0 1.2L2 3M4 5L6 7"' in small and small.count("<clipPath") == 1
    assert small.count('<path id="') == 1 and small.count("<use ") == 2 and 'x="3.1"' in small
    assert 'd="M3 2L-1 2"' in small and "A &lt; B</text>" in small
    assert "<title>A title</title>" in small and "<desc>What it says</desc>" in small
    assert "stroke:var(--ink,#1b1f26)" in small and "--series-1:#2c80ff" in small
    with pytest.raises(UserError, match="is no SVG"):
        slim.slim("<p>", "one", "")
