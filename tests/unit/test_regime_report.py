"""What the report says of the regimes, and how far takes and cards are apart."""

from dataclasses import replace

import jinja2
import pandas as pd
import pytest

from gemmrepro.measure.regimes import spread
from gemmrepro.measure.regimes.columns import POINT, ROW_COLUMNS
from gemmrepro.measure.regimes.rows import Regimes
from gemmrepro.measure.regimes.rules import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.inputs import TEMPLATES
from gemmrepro.paper.regimes import cards_sentence, regime_lines
from gemmrepro.paper.text import number

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
        {**dict.fromkeys(POINT, "x"), "kernel": name, "regime": SUSTAINED, "median_us": str(time)}
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
    first = "Two takes on one card (hopper, sustained): times of the same row differ by 1.0% (median of 1 rows), "
    assert sentence.startswith(f"{first}at most by 1.0%. Cards of one model (hopper, sustained): ")
    assert "bursts" not in sentence
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
    assert text.count("hopper.lockstep: 1.020") == 2 and text.count("hopper.lockstep: 1.050") == 1
    assert text.count("0.140, 0.150") == 2
    assert "<table>" not in template.render(regimes=[])
