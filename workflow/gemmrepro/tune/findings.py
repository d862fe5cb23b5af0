"""What a search knows about candidates so far, a small file each, kept between runs; and how it ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmrepro import stats, timing
from gemmrepro.core.journal import Journal
from gemmrepro.tune.candidates import Listing
from gemmrepro.tune.supervision import say

PROTOCOL = 1
"""Increment it when the meaning of a sample or a verdict changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Samples:
    """One round of one candidate at one size: times of kernel and baseline in µs, pair by pair, and sensor readings."""

    times: list[float]
    baseline: list[float]
    sensors: list[dict[str, Any]]


class Findings:
    """Verdicts and samples of one tunable on one machine, in a journal.

    An entry counts only for the machine, binary and baseline that it was made with.
    """

    def __init__(self, folder: Path, machine: Mapping[str, str], listing: Listing, baseline_version: str) -> None:
        self._machine, self._listing, self._baseline_version = dict(machine), listing, baseline_version
        self._journal = Journal(folder, self._machine, say)

    @property
    def folder(self) -> Path:
        return self._journal.folder

    def verdict(self, name: str) -> str | None:
        """What is wrong with a candidate; '' if it is correct, None if it was not judged yet."""
        entry = self._journal.get(f"{name}.verdict", self._identity(name))
        return None if entry is None else entry["message"]

    def accept(self, name: str) -> None:
        """Record that a candidate is correct."""
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": ""})

    def reject(self, name: str, message: str) -> None:
        """Record what is wrong with a candidate, and report it."""
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": message})
        say(f"left out: {self._listing.candidates[name]}: {message}")

    def add(self, stage: Stage, name: str, size: int, number: int, samples: Samples) -> None:
        """Record round `number` of a stage."""
        self._journal.put(*self._round(stage, name, size, number), asdict(samples))

    def samples(self, stage: Stage, name: str, size: int, number: int) -> Samples | None:
        """Round `number` of a stage; None if it was not timed yet."""
        entry = self._journal.get(*self._round(stage, name, size, number))
        return None if entry is None else Samples(**entry)

    def point(self, stage: Stage, name: str, size: int) -> Point:
        """All rounds of a stage together; each must have been timed."""
        timed = (self.samples(stage, name, size, number) for number in range(stage.rounds))
        rounds = [samples for samples in timed if samples]
        times, baseline = [samples.times for samples in rounds], [samples.baseline for samples in rounds]
        return Point(
            stats.rounds_interval(times).value,
            stats.rounds_interval(baseline).value,
            stats.ratio_interval(baseline, times),
            timing.summarize_sensors([reading for samples in rounds for reading in samples.sensors]),
        )

    def _identity(self, name: str) -> dict[str, Any]:
        return {**self._machine, "build_key": self._listing.compiled[name].build_key, "protocol": PROTOCOL}

    def _round(self, stage: Stage, name: str, size: int, number: int) -> tuple[str, dict[str, Any]]:
        """Name and identity of the entry of one round."""
        plan = [stage.plan.interval, stage.plan.seconds, stage.plan.least, stage.plan.most]
        identity = {**self._identity(name), "baseline": self._baseline_version, "plan": plan}
        return f"{name}.{stage.name}.{size}.r{number}", identity


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
