"""How far takes of one card, and cards, are apart."""

from __future__ import annotations

import pytest

from gemmrepro.measure.columns import REGIME_POINT
from gemmrepro.recordings.regimes import TakeRows, between_cards, by_card, repeated, rows_of


def take(card: str, build: str = "0", **medians: float) -> TakeRows:
    cells = dict.fromkeys(REGIME_POINT, "") | {"toolkit": "cuda13", "regime": "sustained", "ratio": "1.0"}
    rows = [cells | {"kernel": name, "median_us": str(number), "build_key": build} for name, number in medians.items()]
    return {"gpu": {"card": card}}, rows


def test_takes_of_a_card_and_cards_are_held_apart():
    found = [take("a", x=100.0, y=10.0), take("a", x=103.0, y=10.1), take("b", x=110.0, y=10.05, z=1.0)]
    again = repeated(rows_of(found), "sustained")
    assert again.rows == 2 and again.at.startswith("x ") and again.at.endswith(" sustained")
    assert again.largest == pytest.approx(0.03) and again.middle == pytest.approx(0.02)
    cards = between_cards(rows_of(found), "sustained")
    assert cards.rows == 2 and cards.largest == pytest.approx(110 / 101.5 - 1)
    assert repeated(rows_of(found), "burst") is None and between_cards(rows_of(found[:2]), "sustained") is None
    assert repeated(rows_of(found[1:]), "sustained") is None


def test_a_take_of_some_rows_leaves_the_other_rows_compared():
    found = [take("a", x=100.0, y=10.0), take("b", x=101.0, y=10.3), take("c", x=104.0)]
    cards = between_cards(rows_of(found), "sustained")
    assert cards.rows == 2 and cards.at.startswith("x ") and cards.largest == pytest.approx(0.04)
    assert repeated(rows_of([*found, take("c", x=104.0, y=9.0)]), "sustained").rows == 1
    assert by_card(rows_of(found))["rows"][1]["times_us"] == [10.0, 10.3, None]


def test_rows_of_an_earlier_binary_are_not_compared():
    before, after = take("a", "old", x=100.0), take("b", "new", x=107.0)
    assert between_cards(rows_of([before, after]), "sustained") is None and by_card(rows_of([before, after])) == {}
    again = take("a", "new", x=104.0)
    assert between_cards(rows_of([before, again, after]), "sustained").largest == pytest.approx(107 / 104 - 1)
    assert by_card(rows_of([before, again, after]))["rows"][0]["times_us"] == [104.0, 107.0]
    assert repeated(rows_of([before, again]), "sustained") is None
