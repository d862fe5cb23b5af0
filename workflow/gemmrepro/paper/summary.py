"""The abstract's numbers: each family's best kernel, and how many kernels pass their gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.rows import RowView
from gemmrepro.paper.table import LevelView


@dataclass(frozen=True)
class Best:
    """A level with the best ratio to its baseline, and its row."""

    level: LevelView
    row: RowView


@dataclass(frozen=True)
class Headline:
    """A family's best kernel, and the best of those that its article gives a ratio for, if any was measured.

    Of schemes for FP64 the best is the fastest that is no less accurate than DGEMM.
    """

    family: FamilyView
    best: Best
    published: Best | None


@dataclass(frozen=True)
class GateTally:
    """How many kernels there are, and how many pass the static gate, pass the numerical one, and fail either."""

    kernels: int
    static: int
    numeric: int
    failed: int


def headlines(families: Sequence[FamilyView]) -> list[Headline]:
    """The headline of each family of GEMMs: current, in its first type, by its first toolkit if it has rows.

    With a warm cache, unless the family was timed with a cold one alone.
    """
    return [headline for family in families if (headline := _headline(family))]


def _headline(family: FamilyView) -> Headline | None:
    cache = next(iter(family.table.caches), None)
    candidates = [
        Best(level, row)
        for level in family.table.levels
        for row in level.cells
        if row and row.cache == cache and not row.stale and row.ratio_value is not None
        if level.dtype == family.table.types[0]
    ]
    by_first = [
        candidate for candidate in candidates if candidate.row.toolkit == family.table.toolkits[0]
    ] or candidates
    if family.table.emulates:
        by_first = [one for one in by_first if one.level.error and one.level.error.as_accurate]
    best = _best(by_first)
    if best is None:
        return None
    return Headline(family, best, _best([candidate for candidate in by_first if candidate.level.published_ratio]))


def _best(candidates: Sequence[Best]) -> Best | None:
    return max(candidates, key=lambda candidate: candidate.row.ratio_value or 0.0, default=None)


def gate_tally(families: Sequence[FamilyView]) -> GateTally:
    """The gates of every kernel, counted."""
    gates = [kernel.gate for family in families for kernel in family.kernels]
    return GateTally(
        kernels=len(gates),
        static=sum(gate.static_passed for gate in gates),
        numeric=sum(gate.numeric_passed for gate in gates),
        failed=sum(gate.status == "failed" for gate in gates),
    )
