"""A family's main table: its levels at one size, next to the published figures and the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.names import LIBRARY, SIZE
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, select
from gemmrepro.paper.claims import PublishedView
from gemmrepro.paper.rows import RowView, row_view
from gemmrepro.paper.text import anchor
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import dtypes, level_name

CACHES = ("warm", "cold")


@dataclass(frozen=True)
class LevelView:
    """A level: its figures in print, and a cell for each toolkit and cache state."""

    name: str
    anchor: str
    dtype: str
    published_rate: PublishedView | None
    published_ratio: PublishedView | None
    cells: tuple[RowView | None, ...]

    @property
    def measured(self) -> bool:
        """Whether any of its cells has a row."""
        return any(self.cells)


@dataclass(frozen=True)
class BaselineView:
    """A baseline in a type, with a cell for each toolkit and cache state; `ran` is the GPU kernel it launched."""

    id: str
    dtype: str
    cells: tuple[RowView | None, ...]
    ran: str | None


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


def table_view(family: registry.Family, measured: Measurements) -> TableView:
    """The table of a family, at the article's size if it was measured, else at the largest that was."""
    compared = ladders.compared(family.name)
    cubic = cubes(measured.summary)
    sizes = sorted({int(n) for n in cubic["n"]}) if compared else []
    size = SIZE if SIZE in sizes or not sizes else sizes[-1]
    rows = select(cubic if compared else measured.summary, n=size)
    caches = tuple(cache for cache in CACHES if (rows["cache"] == cache).any())
    toolkits = tuple(toolkit for toolkit in names.TOOLKITS if (rows["toolkit"] == toolkit).any())
    published = [
        row for row in published_rows() if family.article and row["article"] == family.article and row["n"] == SIZE
    ]

    def cells(kernel: str | None, dtype: str, toolkit: str | None = None) -> tuple[RowView | None, ...]:
        of_kernel = select(rows, kernel=kernel, dtype=dtype)
        return tuple(
            _cell(select(of_kernel, toolkit=toolkit or column, cache=cache)) for column in toolkits for cache in caches
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
        )

    return TableView(
        types=tuple(dtypes(family.name)),
        size=size,
        has_size=SIZE in sizes,
        caches=caches,
        toolkits=toolkits,
        levels=tuple(map(level, compared)),
        baselines=tuple(
            BaselineView(baseline, dtype, cells(baseline, dtype, LIBRARY), _ran(measured, baseline, dtype, size))
            for baseline, dtype in _baselines(compared)
        ),
    )


def _baselines(compared: Iterable[registry.Kernel]) -> Iterator[tuple[str, str]]:
    yield from dict.fromkeys(
        (kernel.timing.baseline, kernel.compute.dtype_in) for kernel in compared if kernel.timing.baseline
    )


def _cell(rows: pd.DataFrame) -> RowView | None:
    return row_view(rows.iloc[-1]) if len(rows) else None


def _ran(measured: Measurements, baseline: str, dtype: str, size: int) -> str | None:
    """The GPU kernel that a baseline launched, according to the profiler."""
    key = f"{baseline} {size}" if dtype == "fp32" else f"{baseline} {dtype} {size}"
    return (measured.run.get("baseline_kernels") or {}).get(key)
