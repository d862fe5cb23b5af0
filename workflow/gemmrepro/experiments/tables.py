"""The articles' tables and charts as figures: what was published beside what was measured.

``articles/<name>/figures.py`` holds ``TABLES``, a `Table` for each table or chart of the article. Its `marks` looks
both sides up and divides each by something of its own chip: bare numbers of different GPUs never share a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError, at_line, line_in
from gemmrepro.registry import articles


@dataclass(frozen=True)
class Printed:
    """A published number, or a quotient of two, and the GPU it belongs to."""

    value: float
    hardware: str

    def __truediv__(self, other: Printed | float) -> Printed:
        return Printed(self.value / (other.value if isinstance(other, Printed) else other), self.hardware)

    def inverse(self) -> Printed:
        return Printed(1 / self.value, self.hardware)


@dataclass(frozen=True)
class Measured:
    """A measured number, or a quotient of two, with its interval (the number itself where none is known).
    A quotient of two has no interval of its own. `keys` name the rows; `stale` says whether one of them is."""

    value: float
    low: float
    high: float
    stale: bool
    keys: tuple[str, ...]

    def __truediv__(self, other: Measured | float) -> Measured:
        if isinstance(other, Measured):
            value, keys = self.value / other.value, dict.fromkeys(self.keys + other.keys)
            return Measured(value, value, value, self.stale or other.stale, tuple(keys))
        return Measured(self.value / other, self.low / other, self.high / other, self.stale, self.keys)

    def inverse(self) -> Measured:
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
    An axis that is not logarithmic begins at `low`."""

    title: str
    label: str
    log: bool = False
    line: float | None = None
    low: float = 0.0


class Numbers(Protocol):
    """The source of a table's marks. Each look-up gives None for what is not there."""

    def printed(self, system: str, metric: str, **cells: Any) -> Printed | None:
        """The one row of numbers.csv of the article (or of `article`). Raises UserError for several."""

    def swept(self, kernel: str, column: str, n: int, cache: str = "warm") -> Measured | None:
        """``tflops``, ``gbps``, ``median_us`` or ``ratio`` of a kernel's cube or copy, by the family's toolkit."""

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
        family: whose rows it shows, and on whose page it stands.
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
    family: str
    title: str
    panels: Mapping[str, Panel]
    marks: Callable[[Numbers], Iterable[Mark]]
    x_label: str = ""
    ticks: str = "log2"
    experiment: str = ""
    caption: str = ""
    counts: Mapping[str, str] = field(default_factory=dict)
    says: Callable[[Any], str] | None = None
    article: str = ""


def quotient(above: Any, below: Any) -> Any:
    """`above` / `below` of two `Printed`, two `Measured` or a number; None where one is missing."""
    return None if above is None or below is None else above / below


def mark(panel: str, series: str, x: float | str, printed: Printed | None, measured: Measured | None) -> Mark:
    """A mark with one published number at most."""
    return Mark(panel, series, x, () if printed is None else (printed,), measured)


@cache
def _tables(path: Path) -> tuple[Table, ...]:
    try:
        tables = load_module(f"gemmrepro_figures_of_{path.parent.name}", path).TABLES
        named = [replace(table, article=path.parent.name) for table in tables]
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        why = f"its TABLES cannot be read ({' '.join(why.split())}); correct it."
        raise at_line(path, line_in(path, error) or 1, why) from None
    for name in (names := [table.name for table in named]):
        if names.count(name) > 1:
            raise UserError(f"{path}: table {name} is declared twice; rename one.")
    return tuple(named)


def of_article(article: str) -> tuple[Table, ...]:
    """The tables and charts of an article, in the order of its figures.py; none where it has no such file.
    Raises UserError if the file cannot be imported, holds no tables, or has a name twice."""
    path = articles.folder(article) / articles.FIGURES
    return _tables(path) if path.is_file() else ()


def declared(family: str) -> dict[str, Table]:
    """The articles' tables that show rows of a family, by name. Raises UserError as `of_article`."""
    found: dict[str, Table] = {}
    for table in (table for article in articles.article_names() for table in of_article(article)):
        if table.family == family and found.setdefault(table.name, table) is not table:
            other, path = found[table.name].article, articles.folder(table.article) / articles.FIGURES
            raise UserError(f"{path}: {other} has a table {table.name} of {family} too; rename one.")
    return found


def files(families: Collection[str]) -> list[Path]:
    """The figures.py of the articles that show rows of some families."""
    shown = dict.fromkeys(table.article for family in families for table in declared(family).values())
    return [articles.folder(article) / articles.FIGURES for article in shown]
