"""The goals of this project for the report: one line for each goal and regime, and all of them as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gemmrepro.judge.goals import OUTCOMES, Goal, Judged

COLUMNS = ("id", "title", "regime", "n", "least", "outcome", "value", "low", "high", "kernel", "row", "because")


@dataclass(frozen=True)
class GoalLine:
    """A goal in one regime; `cells` by size."""

    goal: Goal
    regime: str
    cells: dict[int, Judged]


@dataclass(frozen=True)
class GoalsView:
    """All goals: their lines, all sizes that any of them has, and how many have each outcome."""

    lines: tuple[GoalLine, ...]
    sizes: tuple[int, ...]
    counts: dict[str, int]

    @classmethod
    def of(cls, judged: Sequence[Judged]) -> GoalsView:
        """Goals in the order of `judged`, which has those of a goal and a regime together."""
        lines = [
            GoalLine(goal, regime, {each.n: each for each in group})
            for (goal, regime), group in groupby(judged, key=lambda each: (each.goal, each.regime))
        ]
        counted = Counter(each.outcome for each in judged)
        return cls(
            tuple(lines),
            tuple(sorted({each.n for each in judged})),
            {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]},
        )


def goals_csv(judged: Sequence[Judged]) -> str:
    """Every goal at every size as a row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in judged:
        row: dict[str, object] = {name: getattr(each, name) for name in ("regime", "n", "least", "outcome")}
        row |= {name: getattr(each.goal, name) for name in ("id", "title", "because")}
        if each.best:
            row |= {name: getattr(each.best, name) for name in ("value", "low", "high", "kernel")}
            row["row"] = each.best.key
        writer.writerow(row)
    return text.getvalue()
