"""The articles' tables and charts as figures: what was published beside what was measured.

``kernels/<family>/tables.py`` holds ``TABLES``, a `Table` for each table or chart of the article. Its `marks` looks
both sides up and divides each by something of its own chip: bare numbers of different GPUs never share a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gemmrepro.core import paths
from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError

FILE = "tables.py"


@dataclass(frozen=True)
class Printed:
    """A published number, or a quotient of two, and the GPU it belongs to."""

    value: float
    hardware: str

    def __truediv__(self, other: Printed | float) -> Printed:
        return Printed(self.value / (other.value if isinstance(other, Printed) else other), self.hardware)

    def inverse(self) -> Printed:
        """One over it."""
        return Printed(1 / self.value, self.hardware)


@dataclass(frozen=True)
class Measured:
    """A measured number, or a quotient of two, with its interval (the number itself where none is known).

    A quotient of two has no interval of its own. `keys` name the rows; `stale` says whether one of them is.
    """

    value: float
    low: float
    high: float
    stale: bool
    keys: tuple[str, ...]

    def __truediv__(self, other: Measured | float) -> Measured:
        if isinstance(other, Measured):
            value = self.value / other.value
            return Measured(value, value, value, self.stale or other.stale, (*self.keys, *other.keys))
        return Measured(self.value / other, self.low / other, self.high / other, self.stale, self.keys)

    def inverse(self) -> Measured:
        """One over it."""
        return Measured(1 / self.value, 1 / self.high, 1 / self.low, self.stale, self.keys)


@dataclass(frozen=True)
class Mark:
    """One number of a table in `panel`, of `series`, at `x`: as published (of each chip) and as measured."""

    panel: str
    series: str
    x: float | str
    printed: tuple[Printed, ...]
    measured: Measured | None


@dataclass(frozen=True)
class Panel:
    """A panel: its title, the label of its values' axis, whether that is logarithmic, and a line to compare with.

    An axis that is not logarithmic begins at `low`.
    """

    title: str
    label: str
    log: bool = False
    line: float | None = None
    low: float = 0.0


class Numbers(Protocol):
    """Where the marks of a table come from. Each look-up gives None for what is not there."""

    def printed(self, system: str, metric: str, **cells: Any) -> Printed | None:
        """The one row of numbers.csv of the family's article (or of `article`). Raises UserError for several."""

    def swept(self, kernel: str, column: str, n: int, cache: str = "warm") -> Measured | None:
        """``tflops``, ``gbps``, ``median_us`` or ``ratio`` of a kernel's square problem or
        copy, by the family's toolkit."""

    def found(self, experiment: str, kernel: str, column: str, **cells: Any) -> Measured | None:
        """The first row of an experiment's kernel or library with these cells."""

    def rate(self, hardware: str, name: str) -> float | None:
        """A rate of the data sheet of an article's GPU, in TFLOP/s or GB/s."""

    def rate_here(self, name: str, ceiling: str = "") -> float | None:
        """The same of the GPU that was measured: by a kernel of the family ceilings, else by its data sheet."""


@dataclass(frozen=True)
class Table:
    """A figure of a table or chart of the article.

    Attributes:
        panels: by the names that the marks use, in their order.
        marks: looks the numbers up; a mark of which both sides are missing may be left out.
        x_label: the label of the axis of sizes; empty where x is a name, and names stand down the side.
        ticks: "log2" or "linear", of sizes.
        experiment: whose rows it shows; empty for those of the sweep.
        caption: what is drawn and how both sides are made comparable, in one to three sentences.
        counts: what other panels of marks hold, whose numbers stand in the figure's table alone.
        says: see `gemmrepro.experiments.Says`; without it, or where it says nothing, the title is the subject.
    """

    name: str
    title: str
    panels: Mapping[str, Panel]
    marks: Callable[[Numbers], Iterable[Mark]]
    x_label: str = ""
    ticks: str = "log2"
    experiment: str = ""
    caption: str = ""
    counts: Mapping[str, str] = field(default_factory=dict)
    says: Callable[[Any], str] | None = None


def quotient(above: Any, below: Any) -> Any:
    """`above` / `below` of two `Printed`, two `Measured` or a number; None where one is missing."""
    return None if above is None or below is None else above / below


def mark(panel: str, series: str, x: float | str, printed: Printed | None, measured: Measured | None) -> Mark:
    """A mark with one published number at most."""
    return Mark(panel, series, x, () if printed is None else (printed,), measured)


def path_of(family: str) -> Path:
    """Where a family declares its tables; the file need not be there."""
    return paths.KERNELS_DIR / family / FILE


@cache
def _declared(path: Path) -> tuple[Table, ...]:
    module = load_module(f"gemmrepro_tables_{path.parent.name}", path)
    names = [table.name for table in module.TABLES]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: table {name} is declared twice; rename one.")
    return tuple(module.TABLES)


def declared(family: str) -> dict[str, Table]:
    """The tables of a family by name, in the order of its file; none where it has no such file.

    Raises:
        UserError: a name occurs twice.
    """
    path = path_of(family)
    return {table.name: table for table in _declared(path)} if path.is_file() else {}
