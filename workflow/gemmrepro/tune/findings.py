"""What a search knows about candidates so far: verdicts and samples, a small file each, kept between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import stats, timing
from gemmrepro.core.journal import Journal
from gemmrepro.tune.candidates import Listing
from gemmrepro.tune.halving import Point, Stage
from gemmrepro.tune.progress import say

PROTOCOL = 1
"""Increment it when the meaning of a sample or a verdict changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Samples:
    """One round of one candidate at one size: times of kernel and baseline in µs, pair by pair, and sensor readings."""

    times: list[float]
    baseline: list[float]
    sensors: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {
            "times": [round(time, 4) for time in self.times],
            "baseline": [round(time, 4) for time in self.baseline],
            "sensors": self.sensors,
        }


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
        self._journal.put(*self._round(stage, name, size, number), samples.to_json())

    def samples(self, stage: Stage, name: str, size: int, number: int) -> Samples | None:
        """Round `number` of a stage; None if it was not timed yet."""
        entry = self._journal.get(*self._round(stage, name, size, number))
        return None if entry is None else Samples(entry["times"], entry["baseline"], entry["sensors"])

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
