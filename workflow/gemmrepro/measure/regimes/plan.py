"""What the regimes measure of a family, and in which order.

Subjects of one problem and shape, the kernels and the libraries they are compared with, form a set. A pass visits all
subjects of a set once, each alone; the next pass visits them backwards (A B C C B A), so that a drift that is linear in
time is the same for all of them once a pair of passes is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro.core.names import LIBRARY
from gemmrepro.measure.plan import Point
from gemmrepro.measure.regimes.rules import BURST, SUSTAINED
from gemmrepro.measure.rounds import groups, library_point
from gemmrepro.operations import Problem, Shape


@dataclass(frozen=True)
class RegimeSettings:
    """The configuration's section `regimes` as it concerns one family.

    Attributes:
        document: the whole section as configured.
        toolkits: a kernel is measured with the first of these that compiles it.
        seconds: a sustained block is timed for this long.
        pairs: of passes, by regime.
        sizes: at which the family is measured; none: it is not.
        kernels: ids of the only kernels to measure; None: all that are timed.
        minutes: after which no pair of passes begins; None: without a limit.
    """

    document: Mapping[str, Any]
    toolkits: tuple[str, ...]
    seconds: float
    pairs: Mapping[str, int]
    sizes: tuple[int, ...]
    kernels: tuple[str, ...] | None
    minutes: float | None

    @classmethod
    def of(cls, document: Mapping[str, Any], family: str) -> RegimeSettings:
        """Those of `family` in a section that was checked against its schema."""
        kernels = document["kernels"].get(family)
        return cls(
            document=document,
            toolkits=tuple(document["toolkits"]),
            seconds=document["seconds"],
            pairs={SUSTAINED: document["pairs"]["sustained"], BURST: document["pairs"]["burst"]},
            sizes=tuple(document["sizes"].get(family, ())),
            kernels=None if kernels is None else tuple(kernels),
            minutes=document["minutes"].get(family),
        )

    @property
    def sampling(self) -> dict[str, Any]:
        """What decides how a block is taken, as the journal stores it."""
        return {"seconds": self.seconds, "protocol": PROTOCOL}


PROTOCOL = 1
"""Increment it when a rule or the meaning of a sample changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Set:
    """Subjects that are visited in turn: libraries first, then kernels in the order of their rungs."""

    problem: Problem
    shape: Shape
    subjects: tuple[Point, ...]

    def __str__(self) -> str:
        return f"{self.problem.dtype_in} {self.problem.layout} {self.shape}"

    @property
    def name(self) -> str:
        """Its name in the journal."""
        problem = self.problem
        parts = problem.op, problem.dtype_in, problem.dtype_out, problem.layout.replace(",", "-"), str(self.shape)
        return ".".join(parts)

    def order(self, backwards: bool) -> list[int]:
        """The indices of its subjects in the order of a pass."""
        places = list(range(len(self.subjects)))
        return places[::-1] if backwards else places


@dataclass(frozen=True)
class Pair:
    """Two passes over a set in one regime, forwards and backwards: what is measured, and kept, as a whole."""

    number: int
    regime: str
    members: Set

    @property
    def name(self) -> str:
        """Its entry in the journal."""
        return f"{self.members.name}.{self.regime}.p{self.number}"

    @property
    def blocks(self) -> int:
        return 2 * len(self.members.subjects)


def sets(points: Sequence[Point], toolkits: Sequence[str]) -> list[Set]:
    """The sets of a family's points, in their order.

    Args:
        toolkits: a kernel is in a set with the first of these with which it has a point there.
    """
    found = []
    for group in groups((0, point) for point in points if point.toolkit != LIBRARY):
        chosen: dict[str, Point] = {}
        for toolkit in reversed(toolkits):
            chosen |= {point.kernel: point for point in group.points if point.toolkit == toolkit}
        kernels = [chosen[name] for name in dict.fromkeys(point.kernel for point in group.points) if name in chosen]
        libraries = [library_point(name, group.problem, group.shape) for name in group.baselines]
        found.append(Set(group.problem, group.shape, (*libraries, *kernels)))
    return found


def pairs(members: Sequence[Set], counts: Mapping[str, int]) -> list[Pair]:
    """Every pair of passes, in the order in which they are measured.

    Each regime visits all sets before any set is visited again, so that a time limit leaves the fewest gaps, and what
    is repeated is spread over time.

    Args:
        counts: pairs of passes, by regime.
    """
    return [
        Pair(number, regime, each)
        for number in range(max(counts.values(), default=0))
        for regime, count in counts.items()
        if number < count
        for each in members
    ]
