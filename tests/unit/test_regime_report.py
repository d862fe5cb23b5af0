"""What the report says of the regimes, and how far takes and cards are apart."""

from dataclasses import replace

import jinja2
import pandas as pd
import pytest
from support import ROOT

from gemmrepro.measure.regimes import spread
from gemmrepro.measure.regimes.columns import POINT, ROW_COLUMNS
from gemmrepro.measure.regimes.places import FILES
from gemmrepro.measure.regimes.rows import Regimes, load
from gemmrepro.measure.regimes.rules import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import Measurements
from gemmrepro.measure.rows import load as load_rows
from gemmrepro.paper import evidence_index
from gemmrepro.paper.inputs import TEMPLATES
from gemmrepro.paper.provenance import ShownRows
from gemmrepro.paper.regimes import cards_sentence, regime_lines
from gemmrepro.paper.rows import regime_row_view, row_anchor
from gemmrepro.paper.text import NONE, anchor, number

RATIOS = {
    # kernel: ratio in turn, sustained, in bursts
    "hopper.lockstep": (0.99, 1.02, 1.05),
    "hopper.by_size": (1.01, 0.98, 1.04),
}
REGIMES = (SUSTAINED, BURST)


def row(kernel: str, regime: str, ratio: float | None, **cells: object) -> dict[str, object]:
    toolkit = "library" if kernel.startswith("cublas") else "cuda13"
    shape = {"m": 4096, "n": 4096, "k": 4096}
    types = {"dtype": "bf16", "dtype_out": "bf16", "layout": "row,col,row"}
    known = {"kernel": kernel, "toolkit": toolkit, "regime": regime, "cache": "warm", "status": "current"}
    values = {"ratio": ratio, "rung": kernel, "baseline": "cublas.gemm", "clock_mhz": 1500.0, "joules": 0.14}
    times = {"median_us": 200.0, "baseline_median_us": None if toolkit == "library" else 200.0}
    return {**dict.fromkeys(ROW_COLUMNS), **known, **shape, **types, **values, **times, **cells}


def measured() -> tuple[dict[str, Measurements], dict[str, Regimes]]:
    turned = [row(kernel, IN_TURN, ratios[0]) for kernel, ratios in RATIOS.items()]
    turned.append(row("hopper.ping_pong", IN_TURN, 1.5))  # not measured in the regimes
    alone = [
        row(kernel, regime, ratios[1 + place])
        for kernel, ratios in RATIOS.items()
        for place, regime in enumerate(REGIMES)
    ]
    alone += [row("cublas.gemm", regime, None, joules=0.15) for regime in REGIMES]
    in_turn = Measurements("hopper", pd.DataFrame(turned).drop(columns="regime"), pd.DataFrame())
    return {"hopper": in_turn}, {"hopper": Regimes("hopper", pd.DataFrame(alone))}


def test_the_best_kernel_is_named_for_each_regime():
    (line,) = regime_lines(*measured())
    assert (line.family, line.dtype, line.n, line.kernels) == ("hopper", "bf16", 4096, 2)
    assert {regime: winner.kernel for regime, winner in line.winners.items() if winner} == {
        IN_TURN: "hopper.by_size",
        SUSTAINED: "hopper.lockstep",
        BURST: "hopper.lockstep",
    }
    assert line.flips
    best = line.winners[SUSTAINED]
    assert best and (best.joules, best.library_joules) == (0.14, 0.15)


def test_a_winners_number_leads_to_its_row():
    (line,) = regime_lines(*measured())
    for regime in REGIMES:
        winner = line.winners[regime]
        assert winner and winner.anchor == row_anchor(row(winner.kernel, regime, None))
        assert winner.anchor.endswith(regime)


def test_a_row_of_the_regimes_says_how_many_blocks_began_as_they_should():
    cells = {"rounds": 6, "ready": 6, "samples": 60, "ci_low_us": 199.0, "ci_high_us": 201.0, "power_w": 690.0}
    cells |= {"ratio_ci_low": 0.98, "ratio_ci_high": 1.02, "tflops": 687.2, "temp_c": 60.0, "throttle": "sw_power_cap"}
    shown = regime_row_view(row("hopper.by_size", SUSTAINED, 1.0, **cells))
    assert (shown.blocks, shown.joules, shown.row.size) == ("6 blocks, all steady", "0.140", "4096")
    assert shown.row.time == "200.0 \N{MICRO SIGN}s" and shown.row.ratio_interval == "[0.9800, 1.020]"
    burst = regime_row_view(row("hopper.by_size", BURST, 1.0, **cells | {"rounds": 2, "ready": 1, "joules": None}))
    said = evidence_index._row("hopper-by-size-alone", shown.row, shown.regime, shown.blocks)
    assert said[:3] == ["hopper-by-size-alone", "bf16 4096, sustained, cuda13", shown.row.time]
    assert said[9:11] == ["60", "6 blocks, all steady"] and said[-1] == SUSTAINED and len(said) == 15
    assert (burst.blocks, burst.joules) == ("2 blocks, 1 rested", NONE) and burst.row.anchor != shown.row.anchor


def test_rows_of_the_regimes_have_places_on_the_pages_of_their_kernels(tmp_path):
    """Where claims and goals lead to."""
    regimes = {"cutile": load(tmp_path, "cutile")}
    assert regimes["cutile"].summary.empty
    take = ROOT / "reports/recorded/h200/cutile/regimes/1"
    for file in FILES:
        (tmp_path / "cutile").mkdir(exist_ok=True)
        (tmp_path / "cutile" / file).write_bytes((take / file).read_bytes())
    regimes = {"cutile": load(tmp_path, "cutile")}
    measured = {"cutile": load_rows(ROOT / "reports/recorded/h200", "cutile")}
    known = ShownRows.of(measured, {}, regimes, {"cutile.tail_bf16"})
    key = "cutile.tail_bf16/cuda13/bf16/4096x4096x4096/warm/sustained"
    assert known("cutile", key) == anchor(f"row {key}")
    assert known("cutile", key.replace("tail_bf16", "pairs_int8").replace("bf16", "int8")) is None, "it has no page"


def test_a_baseline_of_another_take_says_nothing_of_energy():
    in_turn, regimes = measured()
    rows = regimes["hopper"].summary
    rows.loc[rows["kernel"] == "cublas.gemm", "median_us"] = 202.0
    (line,) = regime_lines(in_turn, regimes)
    best = line.winners[SUSTAINED]
    assert best and (best.joules, best.library_joules) == (0.14, None)


def test_a_size_of_the_regimes_alone_has_no_winner_in_turn():
    in_turn, regimes = measured()
    rows = in_turn["hopper"].summary
    rows[["m", "n", "k"]] = 8192
    (line,) = regime_lines(in_turn, regimes)
    assert line.winners[IN_TURN] is None
    assert line.winners[BURST] and not line.flips


def test_stale_rows_and_families_without_rows_have_no_line():
    in_turn, regimes = measured()
    stale = Regimes("hopper", regimes["hopper"].summary.assign(status="stale"))
    assert regime_lines(in_turn, {"hopper": stale}) == []
    assert regime_lines(in_turn, {"hopper": Regimes("hopper", pd.DataFrame(columns=ROW_COLUMNS))}) == []


def take(card: str, **times: float) -> spread.Take:
    """A take whose rows are called by their kernels, sustained."""
    rows = [
        {**dict.fromkeys(POINT, "x"), "kernel": name, "regime": SUSTAINED}
        | {"median_us": str(time), "ratio": "", "build_key": "0"}
        for name, time in times.items()
    ]
    return spread.Take.of({"gpu": {"card": card}}, rows)


def test_takes_on_one_card_and_cards_are_compared_apart():
    takes = [take("a", one=100.0, two=200.0), take("a", one=101.0, two=200.0), take("b", one=110.55, two=202.0)]
    again, cards = spread.repeated(takes, SUSTAINED), spread.between_cards(takes, SUSTAINED)
    assert again and cards
    assert (again.rows, again.middle, again.largest) == (2, pytest.approx(0.005), pytest.approx(0.01))
    assert again.at.startswith("one ")
    # a card's value is the mean of its takes
    assert (cards.rows, cards.middle, cards.largest) == (2, pytest.approx(0.055), pytest.approx(0.1))
    assert spread.repeated(takes, BURST) is None and spread.between_cards(takes[:2], SUSTAINED) is None


def test_the_limits_say_how_far_takes_and_cards_are_apart():
    takes = [take("a", one=100.0), take("a", one=101.0), take("b", one=103.0)]
    nothing = pd.DataFrame(columns=ROW_COLUMNS)
    sentence = cards_sentence(Regimes("hopper", nothing, spread.summary(takes)))
    first = "Two takes on one card (hopper): times of the same row differ by 1.0% sustained (median of 1 rows; "
    assert sentence.startswith(f"{first}at most 1.0%). Cards of one model (hopper): ")
    assert "bursts" not in sentence
    both = {"spread": {regime: spread.summary(takes)["spread"][SUSTAINED] for regime in (SUSTAINED, BURST)}}
    assert "1.0% sustained (median of 1 rows; at most 1.0%) and 1.0% in bursts (" in cards_sentence(
        Regimes("hopper", nothing, both)
    )
    assert cards_sentence(Regimes("hopper", nothing, spread.summary(takes[:1]))) == ""
    assert cards_sentence(Regimes("hopper", nothing)) == ""


def test_the_table_of_the_report_has_a_row_for_each_line():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["number"] = number
    environment.globals["scroll"] = environment.get_template("macros.j2").module.scroll
    template = environment.get_template("sections/regimes.j2")
    (line,) = regime_lines(*measured())
    gap = replace(line, winners={**line.winners, BURST: None})
    text = template.render(regimes=[line, gap])
    assert text.count("<tr>") == 1 + 2
    place = row_anchor(row("hopper.lockstep", SUSTAINED, None))
    assert text.count(f'hopper.lockstep: <a href="#{place}">1.020</a>') == 2 and text.count(">1.050</a>") == 1
    assert text.count("0.140, 0.150") == 2
    assert "<table>" not in template.render(regimes=[])
