"""A family's main table: its levels at one size, next to the published figures and the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.names import SIZE
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.paper.accuracy import TYPE, Accuracies, ErrorView
from gemmrepro.paper.claims import PublishedView
from gemmrepro.paper.rows import RowView, row_view
from gemmrepro.paper.text import NONE, anchor, number
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, level_name

CACHES = ("warm", "cold")


@dataclass(frozen=True)
class LevelView:
    """A level: its figures in print, a cell for each toolkit and cache state, and its error if it emulates FP64."""

    name: str
    anchor: str
    dtype: str
    published_rate: PublishedView | None
    published_ratio: PublishedView | None
    cells: tuple[RowView | None, ...]
    error: ErrorView | None = None

    @property
    def measured(self) -> bool:
        """Whether any of its cells has a row."""
        return any(self.cells)


@dataclass(frozen=True)
class BaselineView:
    """A baseline in a type; `ran` is the GPU kernel it launched.

    `cells` holds its throughput for each toolkit and cache state as it was timed beside the levels, from the lowest to
    the highest: a clock that moves during the sweep moves both, so one value beside all levels would mislead.
    """

    id: str
    dtype: str
    cells: tuple[str, ...]
    ran: str | None
    error: ErrorView | None = None


@dataclass(frozen=True)
class TableView:
    """The levels at `size`; `has_size` if the article's size was measured."""

    types: tuple[str, ...]
    size: int
    has_size: bool
    caches: tuple[str, ...]
    toolkits: tuple[str, ...]
    levels: tuple[LevelView, ...]
    baselines: tuple[BaselineView, ...]

    @property
    def emulates(self) -> bool:
        """Whether the error of any level is known, as that of schemes for FP64 is."""
        return any(level.error for level in self.levels)

    @property
    def _published(self) -> list[PublishedView]:
        return [row for level in self.levels for row in (level.published_rate, level.published_ratio) if row]

    @property
    def published(self) -> bool:
        """Whether the article gives a figure for any level."""
        return bool(self._published)

    @property
    def hardware(self) -> list[str]:
        """The GPUs that the article's figures were measured on."""
        return sorted({row.hardware for row in self._published})

    @property
    def published_unit(self) -> str:
        """The unit of the article's throughputs."""
        return " or ".join(sorted({level.published_rate.unit for level in self.levels if level.published_rate}))


def published_of(kernel: registry.Kernel, published: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of `published` about a kernel by metric: only those of its type, if the article has several."""
    rows = [
        row for row in published if kernel.story.published_system and row["system"] == kernel.story.published_system
    ]
    own = [row for row in rows if row["dtype"] == kernel.compute.dtype_in]
    return {row["metric"]: row for row in own or rows}


def _in_print(family: registry.Family) -> list[dict[str, Any]]:
    """What the family's article prints at SIZE."""
    return [row for row in published_rows() if family.article and row["article"] == family.article and row["n"] == SIZE]


def table_view(
    family: registry.Family, measured: Measurements, accuracies: Accuracies, ceilings: Mapping[str, float]
) -> TableView:
    """The table of a family, at the article's size if it was measured, else at the largest that was."""
    compared = ladders.compared(family.name)
    cubic = cubes(measured.summary)
    sizes = sorted({int(n) for n in cubic["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    rows = select(cubic if compared else measured.summary, n=size)
    caches = tuple(cache for cache in CACHES if (rows["cache"] == cache).any())
    toolkits = tuple(toolkit for toolkit in names.TOOLKITS if (rows["toolkit"] == toolkit).any())
    published = _in_print(family)

    def cells(kernel: str, dtype: str) -> tuple[RowView | None, ...]:
        of_kernel = select(rows, kernel=kernel, dtype=dtype)
        return tuple(
            _cell(select(of_kernel, toolkit=column, cache=cache), ceilings) for column in toolkits for cache in caches
        )

    def level(kernel: registry.Kernel) -> LevelView:
        printed = published_of(kernel, published)
        return LevelView(
            name=level_name(kernel),
            anchor=anchor(kernel.id),
            dtype=kernel.compute.dtype_in,
            published_rate=PublishedView.of(printed.get("throughput")),
            published_ratio=PublishedView.of(printed.get("ratio_to_cublas")),
            cells=cells(kernel.id, kernel.compute.dtype_in),
            error=accuracies(kernel.id, size) if kernel.compute.dtype_in == TYPE else None,
        )

    levels = tuple(map(level, compared))

    def beside(baseline: str, dtype: str) -> tuple[str, ...]:
        own = [
            shown.cells
            for kernel, shown in zip(compared, levels, strict=True)
            if (kernel.timing.baseline, kernel.compute.dtype_in) == (baseline, dtype)
        ]
        return tuple(map(_range, zip(*own, strict=True)))

    return TableView(
        types=tuple(dtypes(family.name)),
        size=size,
        has_size=SIZE in sizes,
        caches=caches,
        toolkits=toolkits,
        levels=levels,
        baselines=tuple(
            BaselineView(
                id=baseline,
                dtype=dtype,
                cells=beside(baseline, dtype),
                ran=_ran(measured, baseline, dtype, size),
                error=accuracies(baseline, size) if dtype == TYPE else None,
            )
            for baseline, dtype in _baselines(compared)
        ),
    )


def _range(cells: Iterable[RowView | None]) -> str:
    """The throughputs of the baseline that these rows were timed with: the lowest and the highest."""
    rates = [cell.paired for cell in cells if cell and cell.paired and not cell.stale]
    if not rates:
        return NONE
    low, high = number(min(rates)), number(max(rates))
    return low if low == high else f"{low} to {high}"


def _baselines(compared: Iterable[registry.Kernel]) -> Iterator[tuple[str, str]]:
    yield from dict.fromkeys(
        (kernel.timing.baseline, kernel.compute.dtype_in) for kernel in compared if kernel.timing.baseline
    )


def _cell(rows: pd.DataFrame, ceilings: Mapping[str, float]) -> RowView | None:
    return row_view(rows.iloc[-1], ceilings=ceilings) if len(rows) else None


def _ran(measured: Measurements, baseline: str, dtype: str, size: int) -> str | None:
    """The GPU kernel that a baseline launched, according to the profiler."""
    key = f"{baseline} {size}" if dtype == "fp32" else f"{baseline} {dtype} {size}"
    return (measured.run.get("baseline_kernels") or {}).get(key)
