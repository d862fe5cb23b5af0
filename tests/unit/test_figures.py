"""Figures draw what the rows say, say what they lack, are legible and small, and the same bytes for the same rows."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from colour_difference import VISION, too_near
from synthetic import World, stand_in

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.core.paths import ROOT
from gemmrepro.core.text import as_published, format_number, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures, results
from gemmrepro.figures import declared, kit, ladder, paper, stage, style
from gemmrepro.figures.inputs import Inputs, interval
from gemmrepro.judge import claims
from gemmrepro.measure.rows import ENOUGH, load, load_regimes
from gemmrepro.paper.claims import ClaimView, MeasuredView, VerdictsView

RECORDED = ROOT / "reports" / "recorded" / "h200"
BYTES, ELEMENTS = 40_000, 1_200
FAMILIES = [name for name in registry.family_names() if stage.painters(name)]


def judged(name: str, article: str, verdict: str, over: float) -> ClaimView:
    """A claim that was judged at `over` times the published value."""
    about = dict.fromkeys(("where", "statement", "transfer", "transfer_reason", "explanation"), "")
    about |= dict.fromkeys(("correction", "covered_by", "judged_on")) | dict.fromkeys(("kernels", "published"), ())
    about |= {"family": article, "article": article, "register": "article", "way": "measured", "verdict": verdict}
    value = MeasuredView(over, "ratio", over, over, (), "")
    return ClaimView(id=name, judged=(value,), expected=1.0, tolerance=0.1, **about)


def verdicts() -> VerdictsView:
    """Sixty statements of two articles, from a hundredth to a hundred times what was published, and two headlines."""
    kinds = ("reproduced", "partly", "not reproduced")
    made = [judged(f"{i}", ("ladder", "ozaki")[i % 2], kinds[i % 3], 10 ** ((i - 30) / 15)) for i in range(60)]
    made += [judged(name, "ladder", "not comparable here", 0.5) for name in ("ladder.ratio.L7", "ladder.speedup.all")]
    return VerdictsView(tuple(made), "NVIDIA H200", "recorded", {})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    folder = tmp_path_factory.mktemp("recorded")
    names = registry.family_names()
    for name in names:
        if (recorded := RECORDED / name / "experiments").is_dir():
            shutil.copytree(recorded, folder / name)
        if takes := sorted((RECORDED / name / "regimes").glob("*"), key=lambda take: int(take.name)):
            shutil.copytree(takes[-1], folder / "regimes" / name)
    return Inputs(
        {name: load(RECORDED, name) for name in names},
        {name: results.load(folder, name) for name in names},
        {name: load_regimes(folder / "regimes", name) for name in names},
        verdicts(),
        {claim.id: claim.value for claim in claims.load(judged=True)},
    )


@pytest.fixture(scope="module")
def drawings(inputs) -> Iterator[dict[str, style.Drawing]]:
    """Every figure of the recorded rows: the paper's own, then each family's."""
    found = {f"paper/{name}": drawing for name, drawing in stage.draw(inputs).items()}
    for family in FAMILIES:
        of_family = stage.draw(replace(inputs, family=family))
        found |= {f"{family}/{name}": drawing for name, drawing in of_family.items()}
    yield found
    plt.close("all")


@pytest.fixture(scope="module")
def svgs(drawings) -> dict[str, tuple[str, str]]:
    """Both widths of each figure."""
    return {name: (stage.svg_of(drawing), stage.svg_of(drawing, style.NARROW)) for name, drawing in drawings.items()}


def test_every_figure_is_drawn_and_described_by_its_finding(inputs, drawings):
    """The paper's are at most fifteen, beside those of each family."""
    assert len(paper_figures.needed()) <= 15
    assert paper_figures.names(["ladder"]) == [*paper_figures.WHOLE, "ladder", "shares", "issuing"]
    own = [name.removeprefix("paper/") for name in drawings if name.startswith("paper/")]
    assert own == paper_figures.drawn(registry.family_names())
    assert len({drawing.title for drawing in drawings.values()}) == len(drawings), "no two figures say the same"
    for name, drawing in drawings.items():
        unjudged = name.startswith("paper/stated_") and name not in ("paper/stated_ladder", "paper/stated_ozaki")
        assert bool(drawing.table) == ("not measured" not in drawing.title) or not unjudged, name
        assert len(drawing.alt) in style.SAID and drawing.alt != drawing.title, name
        assert 0 < len(drawing.title) < 140 and not drawing.title.endswith("."), name
        assert not re.search(r"\bnan\b|\d(e[+-])\d", drawing.title + drawing.alt), name
        assert len(list(csv.DictReader(io.StringIO(stage.csv_of(drawing))))) == len(drawing.table), name


def test_figures_are_small_and_legible_on_a_phone(svgs):
    """At 300 pixels, the width of a column on a screen of 390, and at 675 otherwise, letters are 11 pixels high.

    Colours are the page's, but those of cells, which stay where the page is dark.
    """
    for name, both in svgs.items():
        literal = set(re.findall(r"(?<!,)(#[0-9a-f]{6})\b", re.sub(r"@media.*", "", "".join(both))))
        assert not literal or name.endswith(("_layout", "/tiles")), (name, literal)
        for svg, shown in zip(both, (675, 300), strict=True):
            width = float(re.search(r'viewBox="0 0 ([0-9.]+)', svg)[1])
            assert min(map(float, re.findall(r"font-size:([0-9.]+)px", svg))) * shown / width >= 11, name
        for svg in both:
            assert len(svg.encode()) <= BYTES and len(re.findall(r"<[a-zA-Z]", svg)) <= ELEMENTS, name


@pytest.mark.filterwarnings("error")
def test_without_rows_figures_say_so(inputs, tmp_path):
    names = registry.family_names()
    bare = Inputs({name: load(tmp_path, name) for name in names}, {name: results.load(None, name) for name in names})
    style.set_style(style.NARROW)
    for family in ("", *FAMILIES):
        for name, drawing in stage.draw(replace(bare, family=family)).items():
            if family in ("", "ladder", "cute", "cutile"):  # every kind of figure is among theirs
                plt.close(drawing.paint(style.NARROW))
            assert len(drawing.alt) in style.SAID, name
            assert not any(any(line.get("keys", {}).values()) for line in drawing.table), name
    with pytest.raises(UserError, match="there is no figure clim; known figures: roadmap, "):
        stage.draw(replace(inputs, family="ladder"), ["clim"])
    assert stage.painters("ceilings") == {}


def test_figures_of_the_paper_show_what_the_rows_say(inputs, drawings):
    """A row is the median of its rounds; shares of cycles add up; every judged statement is a dot."""
    life = drawings["paper/row"]
    medians = pd.DataFrame(life.table).groupby("round")["ratio"].median()
    value = float(re.search(r"rounds give ([0-9.]+)", life.title)[1])
    assert sorted(medians)[len(medians) // 2] == pytest.approx(value, rel=1e-3)
    issued = pd.DataFrame(drawings["paper/issuing"].table)
    parts = issued[["FFMA", "other instructions", "none"]]
    assert len(issued) > 10 and (parts >= 0).all(axis=None) and parts.sum(axis=1).to_numpy() == pytest.approx(1)
    assert issued["FFMA"].max() > 0.7 > 0.05 > issued["FFMA"].iloc[0]
    assert [over for _, over in paper.compared(inputs)] == pytest.approx([10 ** ((i - 30) / 15) for i in range(60)])
    assert "at every size in tf32 and fp64, in fp16 at 8192" in drawings["paper/types"].title
    sweep = {line["at"]: line["measured"] for line in drawings["ozaki/sweep_d"].table if "cuBLAS FP64" in line[""]}
    frontier = {line["scheme"]: line["speed over DGEMM"] for line in drawings["paper/fp64_frontier"].table}
    assert {d: frontier[f"d = {d}"] for d in range(5, 10)}.items() <= sweep.items(), "a speed has one value"
    assert [kit._power(value) for value in (0.0012, 0.899, 0.998, 6471)] == ["10⁻³", ".90", "1.0", "6.5k"]
    regimes = {name.rpartition("regimes_")[2] for name, each in drawings.items() if "regimes_" in name and each.table}
    measured = {family for family, rows in inputs.regimes.items() if len(rows.summary)}
    assert regimes <= measured and len(regimes) > 5, "a family whose intervals are too wide draws nothing"


def test_an_interval_needs_enough_samples():
    few, row = (pd.Series({"samples": count, "low": 0.9, "high": 1.1}) for count in (ENOUGH - 1, ENOUGH))
    assert np.isnan([*interval(few, "low", "high"), *interval(row, None, None)]).all()
    assert interval(row, "low", "high") == (0.9, 1.1)


def test_a_title_states_what_the_rows_bear_out():
    """A declared finding holds of the values; where they say otherwise, or lack what it needs, the subject stands."""
    values = pd.DataFrame({"a": [1.0, 3.0]}, index=["x", "y"])
    rises = lambda rows: "It rises" if rows["a"].iloc[-1] > rows["a"].iloc[0] else ""  # noqa: E731
    assert declared.titled("Subject", rises, values) == "It rises"
    assert declared.titled("Subject", rises, -values) == "Subject"
    assert declared.titled("Subject", rises, values.rename(columns={"a": "b"})) == "Subject"
    assert declared.titled("Subject", rises, values[:0], known=False) == "Subject: not measured"


def statements_hold(title: str, table: pd.DataFrame) -> bool:
    """Each kind of number outside its tolerance lies on the side of 1 that is said."""
    off, ends = table[table["verdict"] != "reproduced"], paper.GROUPS.items()
    kinds = off["unit"].map(lambda unit: next((kind for end, kind in ends if unit.endswith(end)), "counts and sizes"))
    over = (off["measured"] / off["expected here"].fillna(off["published"])).groupby(kinds)
    sides = over.agg(lambda of: "below" if of.max() < 1 else "above" if of.min() >= 1 else "on either side")
    said = [f"{listed(list(of.index))} {side}" for side, of in sides.groupby(sides, sort=False)]
    return sorted(title.partition(": ")[2].split(", ")) == sorted(said)


def rungs_hold(title: str, table: pd.DataFrame) -> bool:
    """The rung that is named has these numbers, and where all or none is said it is so."""
    rows = table.set_index("rung")
    own = rows.loc[~rows.index.str.endswith(", tuned"), "measured"]
    named = re.fullmatch(r"(?:.* library: )?(.+?)(?:: (\S+) of the library in print,| runs at) (\S+) o[nf] .+", title)
    if not named:
        return own.min() > 1 if title.startswith("Every ") else own.max() < 1
    row = rows.loc[named[1]]
    found = as_published(row["published"]) if named[2] else None, format_number(row["measured"])
    return found == named.groups()[1:] and (bool(named[2]) or title.startswith("No ") == (row["measured"] < 1))


def regimes_hold(title: str, table: pd.DataFrame) -> bool:
    """The best kernels change with their use, or are faster from a size on, where that is said."""
    flips, slow = [], 0
    for (contest, n), rows in table.groupby(["contest", "n"], sort=False):
        uses = [of.set_index("kernel") for _, of in rows.groupby("regime")]
        shared = set.intersection(*(set(of.index) for of in uses))
        best = [set(of.index[of["leads"] != "no"]) & shared for of in uses]
        flips += [f"{contest} at {n}"] * (all(best) and not set.intersection(*best))
        first = [led.nlargest(1, "ratio") for of in uses if len(led := of[of["leads"] != "no"])]
        slow = max([slow, *(n for of in first if of["low"].item() <= 1)])
    said, faster = title.partition(" with its use in ")[2], re.search(r"from (\d+) on the best kernel is faster", title)
    return (
        bool(flips) == bool(said) and all(each in said for each in flips) and slow < int(faster[1] if faster else 1e9)
    )


def test_titles_that_are_made_are_true_of_the_numbers_beside_them(drawings):
    kinds = {"/stated_": statements_hold, "/regimes_": regimes_hold, "/ratio": rungs_hold, "paper/ladder": rungs_hold}
    for kind, hold in kinds.items():
        of = [each for name, each in drawings.items() if kind in name and "not measured" not in each.title]
        wrong = [each.title for each in of if not hold(each.title, pd.read_csv(io.StringIO(stage.csv_of(each))))]
        assert of and wrong == [], kind
    slow = pd.DataFrame({"rung": ["a"], "measured": [0.9], "published": [0.5]})
    assert not rungs_hold("Every scheme of x is faster than the library at 4096", slow)


def rungs(world: World) -> style.Drawing:
    """The rungs of the ladder's synthetic rows."""
    return ladder.ratio(
        Inputs({name: load(world.write().measure, name) for name in ("ladder", "ceilings")}, family="ladder")
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("figures"))


def test_the_command_line_writes_the_same_bytes_and_what_they_show(world, tmp_path):
    measured = {name: load(world.write().measure, name) for name in ("ladder", "ceilings")}
    drawing = stage.draw(Inputs(measured, family="ladder"), ["roadmap"])["roadmap"]
    words = ["figures", "--family", "ladder", "--measure", str(world.measure), "--out", str(tmp_path)]
    assert command.run([*words, "--figures", "roadmap"]) == 0
    shown = {"svg": stage.svg_of(drawing), "narrow.svg": stage.svg_of(drawing, style.NARROW)}
    shown |= {"csv": stage.csv_of(drawing)}
    assert shown == {ending: (tmp_path / f"roadmap.{ending}").read_text() for ending in shown}
    assert not (tmp_path / "roadmap.png").exists(), "the paper's first figure alone is a picture too"
    about = json.loads((tmp_path / "roadmap.json").read_text())
    assert (about["title"], about["caption"], about["alt"]) == (drawing.title, drawing.caption, drawing.alt)
    assert about["table"][0]["keys"]["measured"] and not {"stale", "keys"} & set(about["columns"])
    assert about["command"].endswith("results/figures/ladder/roadmap.svg")
    assert (about["source"], about["gpu"], about["stale"]) == ("recorded", "Synthetic GPU", False)
    assert stage.picture_of(drawing).startswith(b"\x89PNG") and "keys" not in shown["csv"]


def test_rungs_put_published_beside_measured(world):
    drawing = rungs(world)
    last = {row["rung"]: row for row in drawing.table}["L7 Warptiling"]
    assert (last["published"], last["measured"]) == (0.937, pytest.approx(0.90))
    assert last["95% interval"][0] < 0.90 < last["95% interval"][1] and last["keys"]["measured"]
    assert rungs_hold(drawing.title, pd.DataFrame(drawing.table)) and "0.937 of the library in print" in drawing.title
    assert "NVIDIA A6000" in drawing.caption and "Synthetic GPU" in drawing.caption


def test_stale_rows_are_marked_and_a_smaller_sweep_takes_its_largest_size(tmp_path):
    stale = rungs(World(tmp_path / "stale", stale=("ladder.smem",)))
    assert stale.stale is True and "stale" in stale.caption
    assert {row["rung"] for row in stale.table if row.get("stale")} == {"L3 Shared memory"}
    smaller = rungs(World(tmp_path / "small", sizes=(256, 512)))
    assert "M = N = K = 512" in smaller.caption and "as published for NVIDIA A6000, at 4096" in smaller.caption


def test_tuned_twins_stand_beside_their_rung_and_ceilings_over_the_same_library(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, tmp_path)
        made = World(tmp_path, families=("ladder", "hopper", "ceilings"), whole=True, sizes=(4096, 8192)).write()
        measured = {name: load(made.measure, name) for name in ("ladder", "hopper", "ceilings")}
        every = {name: ladder.draw(Inputs(measured), name) for name in ("ladder", "hopper")}
        roofed = ladder.draw(Inputs(measured), "hopper", ceiling="ceilings.wgmma")
    table = {row["rung"]: row for row in every["ladder"].table}
    assert table["L7 Warptile, tuned"]["measured"] == pytest.approx(0.99)
    assert table["L7 Warptile, tuned"]["published"] is None and table["L7.1 Async copy"]["published"] is None
    names = list(table)
    assert names.index("L7 Warptile, tuned") == names.index("L7 Warptile") + 1 < names.index("L7.1 Async copy")
    assert "Hollow grey" not in every["hopper"].caption and "Ticks" in roofed.caption
    own = measured["hopper"].summary
    library = own[(own["kernel"] == "cublas.gemm") & (own["n"] == 4096) & (own["dtype"] == "bf16")].iloc[-1]
    shown = ladder.rungs(measured["hopper"], 850)[1].dropna(subset=["limit"])
    limits = shown.loc[shown["kernel"] != "hopper.sketch", "limit"]
    assert len(limits) and limits.to_numpy() == pytest.approx(850 / library["tflops"]), "one limit, one value"
    with pytest.raises(UserError, match="there is no kernel"):
        ladder.draw(Inputs(measured), "hopper", ceiling="ceilings.none")


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("page", ["light", "dark"])
def test_any_two_colours_are_told_apart(page, vision):
    """On either page, with all cones and without the green or the red: series, what was published, and ink."""
    drawn = (*style.SERIES, style.PUBLISHED, style.INK)
    assert too_near({"light": drawn, "dark": [style.COLOURS[each].dark for each in drawn]}[page], vision) == []


def test_slimming_keeps_marks_and_numbers_and_names_styles():
    svg = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">
    <metadata>made by</metadata><defs><style type="text/css">*{stroke-linecap: butt}</style></defs>
    <defs><clipPath id="p1"><rect x="0" y="0" width="9" height="9"/></clipPath></defs><g id="figure_1"><g id="one">
    <path d="M 0 1.2345 &#10;L 2 3" style="fill: none; stroke: #1b1f26" clip-path="url(#p1)"/></g>
    <defs><path id="m1" d="M 0 3 &#10;L 3 0 L 0 0 z"/></defs><g clip-path="url(#p1)">
    <use xlink:href="#m1" x="3.14159" y="2" style="fill: #1c6799; fill-opacity: 1"/></g>
    <text x="1" y="2.00" transform="rotate(-0 1 2)" style="font-size: 9px; fill: #1b1f26">A &lt; 0.937</text>
    </g></svg>"""
    small = style.slim(svg, "A & B", "What it says")
    assert 'd="M0 1.2 L2 3"' in small.replace("&#10;", "") and small.count("<clipPath") == small.count("<use ") == 1
    assert '<g clip-path="url(#p1)">' in small and 'href="#m1" x="3.1"' in small and "xlink" not in small
    assert 'y="2" class="c2">A &lt; 0.937</text>' in small, "numbers that are read keep their digits"
    assert "<title>A &amp; B</title>" in small and "<desc>What it says</desc>" in small
    assert not {"metadata", "figure_1", "opacity", "rotate", "butt"} & set(re.findall(r"[\w-]+", small))
    assert ".c1{fill:var(--series-1,#1c6799)}" in small and "--series-1:#2c80ff" in small
    with pytest.raises(UserError, match="is no SVG"):
        style.slim("<p>", "one", "")
