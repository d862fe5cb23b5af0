"""How far takes of one card, and cards, are apart."""

from __future__ import annotations

import pytest

from gemmrepro.measure.regimes.columns import POINT
from gemmrepro.measure.regimes.spread import Take, between_cards, by_card, repeated


def take(card: str, **medians: float) -> Take:
    return Take(card, {(name, "sustained"): number for name, number in medians.items()})


def test_takes_of_a_card_and_cards_are_held_apart():
    found = [take("a", x=100.0, y=10.0), take("a", x=103.0, y=10.1), take("b", x=110.0, y=10.05, z=1.0)]
    again = repeated(found, "sustained")
    assert (again.rows, again.at) == (2, "x sustained")
    assert again.largest == pytest.approx(0.03) and again.middle == pytest.approx(0.02)
    cards = between_cards(found, "sustained")
    assert cards.rows == 2 and cards.largest == pytest.approx(110 / 101.5 - 1)
    assert repeated(found, "burst") is None and between_cards(found[:2], "sustained") is None
    assert repeated(found[1:], "sustained") is None


def test_a_take_of_some_rows_leaves_the_other_rows_compared():
    found = [take("a", x=100.0, y=10.0), take("b", x=101.0, y=10.3), take("c", x=104.0)]
    cards = between_cards(found, "sustained")
    assert (cards.rows, cards.at) == (2, "x sustained") and cards.largest == pytest.approx(0.04)
    assert repeated([*found, take("c", x=104.0, y=9.0)], "sustained").rows == 1


def test_rows_of_an_earlier_binary_are_not_compared():
    def taken(card: str, median: float, build: str) -> Take:
        cells = dict.fromkeys(POINT, "") | {"kernel": "x", "toolkit": "cuda13", "regime": "sustained"}
        row = {**cells, "median_us": str(median), "ratio": "1.0", "build_key": build}
        return Take.of({"gpu": {"card": card}}, [row])

    before, after = taken("a", 100.0, "old"), taken("b", 107.0, "new")
    assert between_cards([before, after], "sustained") is None and by_card([before, after]) == {}
    again = taken("a", 104.0, "new")
    assert between_cards([before, again, after], "sustained").largest == pytest.approx(107 / 104 - 1)
    assert by_card([before, again, after])["rows"][0]["times_us"] == [104.0, 107.0]
    assert repeated([before, again], "sustained") is None
