"""The abstract's numbers: the articles' fastest kernels, and how many kernels pass their gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.rows import RowView
from gemmrepro.paper.table import LevelView


@dataclass(frozen=True)
class Headline:
    """The level of a family that is the fastest here of those whose ratio to a library its article prints."""

    family: FamilyView
    level: LevelView
    row: RowView


@dataclass(frozen=True)
class GateTally:
    """How many kernels there are, and how many pass the static gate, pass the numerical one, and fail either."""

    kernels: int
    static: int
    numeric: int
    failed: int


def headlines(families: Sequence[FamilyView]) -> list[Headline]:
    """The headline of each family whose article prints ratios: of its current rows in its first type.

    By its first toolkit if it has such rows, with a warm cache unless the family was timed with a cold one alone.
    """
    return [headline for family in families if (headline := _headline(family))]


def _headline(family: FamilyView) -> Headline | None:
    table = family.table
    rows = [
        Headline(family, level, row)
        for level in table.levels
        for row in level.cells
        if row and row.cache == table.caches[0] and not row.stale and row.ratio_value is not None
        if level.published_ratio and level.dtype == table.types[0]
    ]
    by_first = [each for each in rows if each.row.toolkit == table.toolkits[0]]
    return max(by_first or rows, key=lambda each: each.row.ratio_value or 0.0, default=None)


def gate_tally(families: Sequence[FamilyView]) -> GateTally:
    """The gates of every kernel, counted."""
    gates = [kernel.gate for family in families for kernel in family.kernels]
    return GateTally(
        kernels=len(gates),
        static=sum(gate.static_passed for gate in gates),
        numeric=sum(gate.numeric_passed for gate in gates),
        failed=sum(gate.status == "failed" for gate in gates),
    )
