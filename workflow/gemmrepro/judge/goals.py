"""The goals of this project, ``kernels/goals.yaml``, judged by the rows of the regimes that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import paths, yaml_files
from gemmrepro.errors import UserError
from gemmrepro.judge.ceilings import CEILING_FAMILY, measured_ceiling
from gemmrepro.measure.regimes.rows import Regimes
from gemmrepro.measure.regimes.rules import IN_TURN
from gemmrepro.measure.rows import Measurements, cubes, is_current, row_key, select

FILE = "goals.yaml"
SCHEMA = "goals.schema.yaml"

MET, MISSED, UNDECIDED, NOT_MEASURED = OUTCOMES = ("met", "missed", "undecided", "not measured")


@dataclass(frozen=True)
class Goal:
    """A goal at some sizes (m = n = k).

    Attributes:
        kernels: the best of them counts.
        over: the kernel that speeds are relative to; None: each kernel's baseline.
        share_of: the micro-kernel of whose rate the throughput is a share, instead of a speed; None: a speed.
        least: by regime, the least value that meets it at each of `sizes`.
        because: why this number.
    """

    id: str
    family: str
    title: str
    kernels: tuple[str, ...]
    over: str | None
    share_of: str | None
    sizes: tuple[int, ...]
    least: Mapping[str, tuple[float, ...]]
    because: str


@dataclass(frozen=True)
class Reached:
    """What a kernel reached, with its 95 % interval where there is one; `key` names the row."""

    kernel: str
    value: float
    low: float | None
    high: float | None
    key: str


@dataclass(frozen=True)
class Judged:
    """A goal at one size in one regime; `best` is None where nothing of it was measured."""

    goal: Goal
    regime: str
    n: int
    least: float
    best: Reached | None

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`; undecided where the interval has the goal inside it."""
        if self.best is None:
            return NOT_MEASURED
        low, high = self.best.low, self.best.high
        if low is not None and high is not None and low < self.least <= high:
            return UNDECIDED
        return MET if self.best.value >= self.least else MISSED


def goals(path: Path | None = None) -> tuple[Goal, ...]:
    """Every goal.

    Raises:
        UserError: the file is missing or wrong; names the goal.
    """
    return _read(path or paths.KERNELS_DIR / FILE)


@cache
def _read(path: Path) -> tuple[Goal, ...]:
    found = tuple(_goal(entry, path) for entry in yaml_files.read(path, SCHEMA)["goals"])
    names = [goal.id for goal in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: there are two goals {twice[0]}; rename one.")
    return found


def _goal(entry: Mapping[str, Any], path: Path) -> Goal:
    where = f"{path}, goal {entry['id']}"
    for key, names in (
        ("kernels", entry["kernels"]),
        ("over", [entry.get("over")]),
        ("share_of", [entry.get("share_of")]),
    ):
        family = CEILING_FAMILY if key == "share_of" else entry["family"]
        # Constants of a tunable may be those of another GPU.
        known = {kernel.id for kernel in registry.kernels(family)} | {each.id for each in registry.tunables()}
        for name in filter(None, names):
            if name not in known or not name.startswith(f"{family}."):
                raise UserError(f"{where}, key '{key}': {family} has no kernel {name}.")
    for regime, values in entry["least"].items():
        if len(values) != len(entry["sizes"]):
            raise UserError(f"{where}, key 'least.{regime}': {len(values)} values for {len(entry['sizes'])} sizes.")
    return Goal(
        id=entry["id"],
        family=entry["family"],
        title=entry["title"],
        kernels=tuple(entry["kernels"]),
        over=entry.get("over"),
        share_of=entry.get("share_of"),
        sizes=tuple(entry["sizes"]),
        least={regime: tuple(values) for regime, values in entry["least"].items()},
        because=entry["because"],
    )


def judge(measured: Mapping[str, Measurements], regimes: Mapping[str, Regimes]) -> list[Judged]:
    """The goals of the families in `measured`, by goal, regime and size."""
    return [
        Judged(goal, regime, n, least, _best(goal, regime, n, measured, regimes))
        for goal in goals()
        if goal.family in measured
        for regime, values in goal.least.items()
        for n, least in zip(goal.sizes, values, strict=True)
    ]


def _best(
    goal: Goal, regime: str, n: int, measured: Mapping[str, Measurements], regimes: Mapping[str, Regimes]
) -> Reached | None:
    """The kernel of the goal that reached most."""
    rows = _rows(measured[goal.family], regimes.get(goal.family), regime, n)
    found = _shares(goal, rows, measured) if goal.share_of else _speeds(goal, rows)
    return max(found, key=lambda reached: reached.value, default=None)


def _rows(measured: Measurements, alone: Regimes | None, regime: str, n: int) -> pd.DataFrame:
    """The current rows of a regime at one size; in turn, of the toolkit and the cache that represent the family."""
    if regime == IN_TURN:
        rows = select(measured.summary, cache=measured.cache, toolkit=measured.toolkit)
    else:
        rows = measured.summary.iloc[:0] if alone is None else alone.of(regime)
    return select(cubes(rows[is_current(rows)]), n=n)


def _of(goal: Goal, rows: pd.DataFrame, column: str) -> Iterator[Mapping[str, Any]]:
    """The rows of the goal's kernels that have `column`."""
    for name in goal.kernels:
        yield from select(rows[rows[column].notna()], kernel=name).to_dict("records")


def _speeds(goal: Goal, rows: pd.DataFrame) -> Iterator[Reached]:
    """Speeds relative to the baseline, or to the kernel `over`, through their common baseline."""
    base: Mapping[str, Any] = {}
    if goal.over:
        found = select(rows[rows["ratio"].notna()], kernel=goal.over).to_dict("records")
        if not found:
            return
        base = found[-1]
    for row in _of(goal, rows, "ratio"):
        value, low, high = (_number(row[name]) for name in ("ratio", "ratio_ci_low", "ratio_ci_high"))
        if base:
            middle, least, most = (_number(base[name]) for name in ("ratio", "ratio_ci_low", "ratio_ci_high"))
            value = _quotient(value, middle)
            low, high = _quotient(low, most), _quotient(high, least)
        if value is not None:
            yield Reached(row["kernel"], value, low, high, row_key(row))


def _shares(goal: Goal, rows: pd.DataFrame, measured: Mapping[str, Measurements]) -> Iterator[Reached]:
    """Throughputs over the rate of the goal's micro-kernel."""
    ceilings = measured.get(CEILING_FAMILY)
    ceiling = (
        measured_ceiling(ceilings, goal.share_of or "") if ceilings is not None and len(ceilings.summary) else None
    )
    if ceiling is None:
        return
    for row in _of(goal, rows, "tflops"):
        share, median = float(row["tflops"]) / ceiling.value, float(row["median_us"])
        least, most = _number(row["ci_low_us"]), _number(row["ci_high_us"])
        low, high = (share * median / end if end else None for end in (most, least))
        yield Reached(row["kernel"], share, low, high, row_key(row))


def _number(cell: Any) -> float | None:
    return None if pd.isna(cell) else float(cell)


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
