"""Successive halving: many candidates timed briefly, the best of them longer, the best few longest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gemmrepro import stats, timing

FINALISTS = 5


@dataclass(frozen=True)
class Stage:
    """One step of the search.

    Attributes:
        share: fraction of the previous ranking that takes part; at least `finalists` candidates do.
        every_size: whether every size or only the first is timed.
        judged: whether candidates must pass the numerical gate's large cases first.
    """

    name: str
    share: float
    every_size: bool
    rounds: int
    plan: timing.Plan
    judged: bool = True
    finalists: int = FINALISTS

    def entrants(self, waiting: int) -> int:
        """How many of `waiting` candidates take part."""
        return min(waiting, max(self.finalists, math.ceil(self.share * waiting)))


STAGES = (
    Stage("coarse", 1.0, False, 1, timing.Plan(interval=0.01, seconds=0.04, least=3, most=20), judged=False),
    Stage("close", 1 / 3, True, 1, timing.Plan(interval=0.005, seconds=0.25, least=5, most=50)),
    Stage("final", 0.0, True, 5, timing.Plan(interval=0.002, seconds=0.5, least=10, most=200)),
)


def stages_with(rounds: int) -> tuple[Stage, ...]:
    """The stages, with another number of rounds in the last one."""
    return (*STAGES[:-1], replace(STAGES[-1], rounds=rounds))


@dataclass(frozen=True)
class Point:
    """What one stage measured at one size: times in µs, the ratio baseline time / kernel time, the sensors' summary."""

    time_us: float
    baseline_us: float
    ratio: stats.Interval
    sensors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """The last stage that a candidate took part in, and its points by size."""

    stage: str
    points: Mapping[int, Point]

    @property
    def score(self) -> float:
        """Geometric mean of the ratios: above 1 it is faster than the baseline."""
        return math.exp(math.fsum(math.log(point.ratio.value) for point in self.points.values()) / len(self.points))


Measure = Callable[[Stage, Sequence[str], Sequence[int]], Mapping[str, Mapping[int, Point]]]
"""Times candidates in a stage at some sizes; leaves out those that turn out wrong."""


def successive_halving(
    candidates: Iterable[str], sizes: Sequence[int], measure: Measure, stages: Sequence[Stage] = STAGES
) -> dict[str, Standing]:
    """The standing of each candidate, best first, after successive halving over `stages`."""
    standings: dict[str, Standing] = {}
    waiting = list(candidates)
    for number, stage in enumerate(stages):
        entrants = waiting[: stage.entrants(len(waiting))]
        measured = measure(stage, entrants, sizes if stage.every_size else sizes[:1]) if entrants else {}
        standings |= {name: Standing(stage.name, points) for name, points in measured.items()}
        wrong = set(entrants) - set(measured)
        standings = {name: standing for name, standing in standings.items() if name not in wrong}
        order = [finished.name for finished in stages[: number + 1]]
        standings = dict(
            sorted(standings.items(), key=lambda item: (-order.index(item[1].stage), -item[1].score, item[0]))
        )
        waiting = [name for name, standing in standings.items() if standing.stage == stage.name]
    return standings
