"""How far takes agree: two on the same card, and two cards of a model.

A take is a family's measurement in the regimes, of all its rows or of some; `gpu.card` in its run.json tells cards
apart. What is compared is the median of a row, where a take ran the same binary as the last take with this row:
others would tell binaries apart, not cards. Between cards, a card's value is the mean of its takes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gemmrepro.core.names import LIBRARY
from gemmrepro.measure.regimes.columns import POINT
from gemmrepro.measure.regimes.rules import REGIMES

Point = tuple[str, ...]
TOOLKIT = POINT.index("toolkit")


@dataclass(frozen=True)
class Take:
    """One take.

    Attributes:
        card: its card.
        medians: the median of each row, in µs.
        ratios: its ratio to the baseline, where it has one.
        builds: the key of the binary that it ran.
    """

    card: str
    medians: Mapping[Point, float]
    ratios: Mapping[Point, float] = field(default_factory=dict)
    builds: Mapping[Point, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Mapping[str, Any], rows: Iterable[Mapping[str, str]]) -> Take:
        """From run.json and the rows of a summary, as text."""
        at = {tuple(row[name] for name in POINT): row for row in rows}
        medians = {point: float(row["median_us"]) for point, row in at.items()}
        ratios = {point: float(row["ratio"]) for point, row in at.items() if row["ratio"]}
        builds = {point: row["build_key"] for point, row in at.items()}
        return cls(run["gpu"].get("card", ""), medians, ratios, builds)

    def rows_of(self, builds: Mapping[Point, str]) -> Take:
        """The same take without the rows of other binaries than `builds` names."""
        stay = {point for point in self.medians if self.builds.get(point) == builds.get(point)}
        return replace(
            self,
            medians={point: median for point, median in self.medians.items() if point in stay},
            ratios={point: ratio for point, ratio in self.ratios.items() if point in stay},
        )


@dataclass(frozen=True)
class Spread:
    """Relative differences of medians in one regime.

    Attributes:
        rows: how many rows were compared.
        middle, largest: the median of their differences, and the largest.
        at: the row with the largest.
    """

    rows: int
    middle: float
    largest: float
    at: str


def repeated(found: Sequence[Take], regime: str) -> Spread | None:
    """How far takes on the same card are apart, a row's two most distant ones; None where no card has two."""
    apart: dict[Point, float] = {}
    for same in _by_card(found):
        for point, difference in _differences(same, regime).items():
            apart[point] = max(difference, apart.get(point, 0.0))
    return _spread(apart)


def between_cards(found: Sequence[Take], regime: str) -> Spread | None:
    """How far cards are apart, a row's two most distant ones; None with takes of one card.

    Of kernels alone: a library chooses its algorithm anew in each take, and where candidates are close its rows differ
    on one card, too (cuBLAS at 1024 by 11%).
    """
    apart = _differences([_means(card) for card in _by_card(found)], regime)
    return _spread({point: value for point, value in apart.items() if point[TOOLKIT] != LIBRARY})


def _alike(found: Sequence[Take]) -> list[Take]:
    """The takes with those rows alone whose binary is the one of the last take that has the row."""
    last = {point: build for take in found for point, build in take.builds.items()}
    return [take.rows_of(last) for take in found]


def _by_card(found: Sequence[Take]) -> list[list[Mapping[Point, float]]]:
    found = _alike(found)
    cards = dict.fromkeys(take.card for take in found)
    return [[take.medians for take in found if take.card == card] for card in cards]


def _means(takes: Sequence[Mapping[Point, float]]) -> dict[Point, float]:
    """The mean of every point over the takes that have it."""
    points = dict.fromkeys(point for medians in takes for point in medians)
    return {point: statistics.fmean(medians[point] for medians in takes if point in medians) for point in points}


def _differences(medians_of: Sequence[Mapping[Point, float]], regime: str) -> dict[Point, float]:
    """How far the values of every point are apart that at least two of `medians_of` have."""
    apart = {}
    for point in sorted({point for medians in medians_of for point in medians if point[-1] == regime}):
        values = [medians[point] for medians in medians_of if point in medians]
        if len(values) > 1:
            apart[point] = max(values) / min(values) - 1
    return apart


def _spread(apart: Mapping[Point, float]) -> Spread | None:
    if not apart:
        return None
    worst = max(apart, key=lambda point: apart[point])
    return Spread(len(apart), statistics.median(apart.values()), apart[worst], " ".join(worst))


def by_card(found: Sequence[Take]) -> dict[str, Any]:
    """Every row that several cards have, with the mean time and ratio of each card's takes, None where a card has none.

    {} where no two cards have a row in common.
    """
    found = _alike(found)
    cards = list(dict.fromkeys(take.card for take in found))
    rows = []
    for point in dict.fromkeys(point for take in found for point in take.medians):
        of_card = [[take for take in found if take.card == card and point in take.medians] for card in cards]
        if sum(map(bool, of_card)) < 2:
            continue
        ratios = [[take.ratios[point] for take in takes if point in take.ratios] for takes in of_card]
        rows.append(
            {
                "point": dict(zip(POINT, point, strict=True)),
                "times_us": [_mean([take.medians[point] for take in takes]) for takes in of_card],
                "ratios": [_mean(each) for each in ratios],
            }
        )
    return {"cards": cards, "rows": rows} if rows else {}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def summary(found: Sequence[Take]) -> dict[str, Any]:
    """Takes, cards, and the spreads by regime, as JSON has them."""
    spreads = {
        regime: {
            name: None if spread is None else asdict(spread)
            for name, spread in (("repeated", repeated(found, regime)), ("between_cards", between_cards(found, regime)))
        }
        for regime in REGIMES
    }
    return {"takes": len(found), "cards": len({take.card for take in found}), "spread": spreads}
