"""The columns of the tables that a sweep and the regimes leave, declared once as the fields of dataclasses.

A field's type says what a cell holds (``int | None``: a whole number, or empty where it does not apply), its `About`
what that means and which values are allowed. From these follow a table's header, the types it is read with, how a
recording is checked, and the JSON schema of a row. A column that all rows must have is one more field.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.measure.regimes import REGIMES
from gemmrepro.operations import LAYOUTS

Kind = Literal["text", "integer", "number"]

TEXT = r"^[ -;=?-~]+$(?!\n)"
"""What text holds where nothing else is said: printable ASCII without the brackets of HTML."""

_SPELLED = {
    "integer": re.compile(r"0|-?[1-9][0-9]*"),
    "number": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?"),
}
_MOST_DIGITS = 32


def number(cell: str, kind: str) -> int | float | None:
    """The number that a cell of a CSV spells; None if it spells none.

    Every reader of tables asks this: Python's own idea of a number takes ``1_75.5``, blanks, digits of any script and
    "nan". A number is finite, and a whole one has one spelling: "04096" is none.
    """
    if len(cell) > _MOST_DIGITS or not _SPELLED[kind].fullmatch(cell):
        return None
    if kind == "integer":
        return int(cell)
    value = float(cell)
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class About:
    """What a column means, its unit, and which values it takes.

    Attributes:
        pattern: a regular expression that text must match (default: TEXT).
        among: the only texts allowed.
        least: the smallest number allowed.
        above: a number that every one must exceed.
    """

    meaning: str
    unit: str = ""
    pattern: str | None = None
    among: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None


@dataclass(frozen=True)
class Column:
    """One column of a table; `optional` where its cells may be empty."""

    name: str
    kind: Kind
    optional: bool
    about: About

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of a cell, an empty one being null."""
        about = self.about
        if about.among:
            return {"enum": [*about.among]}
        kind = {"text": "string"}.get(self.kind, self.kind)
        rules: dict[str, Any] = {"type": [kind, "null"] if self.optional else kind}
        if self.kind == "text":
            rules["pattern"] = about.pattern or TEXT
        if about.least is not None:
            rules["minimum"] = about.least
        if about.above is not None:
            rules["exclusiveMinimum"] = about.above
        words = f"{about.meaning} ({about.unit})" if about.unit else about.meaning
        return {**rules, "description": words}

    def typed(self, cell: str) -> str | int | float | None:
        """The value of a cell: None if it is empty, the text itself if it should be a number but is not."""
        if cell == "" or self.kind == "text":
            return cell or None
        value = number(cell, self.kind)
        return cell if value is None else value

    def allows(self, cell: str) -> bool:
        """Whether a cell of a CSV is valid in this column, by the same rules as `schema`."""
        value = self.typed(cell)
        if value is None:
            return self.optional
        about = self.about
        if isinstance(value, str):
            fits = value in about.among if about.among else re.search(about.pattern or TEXT, value)
            return self.kind == "text" and bool(fits)
        return (about.least is None or value >= about.least) and (about.above is None or value > about.above)


_KINDS: tuple[tuple[type, Kind], ...] = ((str, "text"), (float, "number"), (int, "integer"))
"""Kind of column by Python type; ``int | float`` is a number."""


def _column(name: str, hint: Any) -> Column:
    assert get_origin(hint) is Annotated, f"{name} has no About"
    annotation, about = get_args(hint)
    options = set(get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,))
    kind = next(kind for option, kind in _KINDS if option in options)
    return Column(name, kind, type(None) in options, about)


@cache
def columns(table: type) -> tuple[Column, ...]:
    """The columns of a table declared here (`Row`, `CounterRow`, `Sample`), in order."""
    hints = get_type_hints(table, include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(table))


def header(table: type) -> list[str]:
    """The names of the columns of `table`, in order."""
    return [column.name for column in columns(table)]


def kinds(table: type) -> dict[str, Kind]:
    """The kinds of the columns of `table`, by name."""
    return {column.name: column.kind for column in columns(table)}


@cache
def schema(table: type) -> dict[str, Any]:
    """The JSON schema of a row of `table`: every column is required, and no other is allowed."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One {(table.__doc__ or '').splitlines()[0].rstrip('.')}",
        "type": "object",
        "additionalProperties": False,
        "required": header(table),
        "properties": {column.name: column.schema for column in columns(table)},
    }


def first_wrong(table: type, rows: Sequence[Mapping[str, str]]) -> int | None:
    """The index of the first row with an invalid cell; None if all cells are valid.

    Each distinct cell of a column is checked once.
    """
    wrong: list[int] = []
    for column in columns(table):
        cells = [row[column.name] for row in rows]
        bad = {cell for cell in set(cells) if not column.allows(cell)}
        if bad:
            wrong.append(next(index for index, cell in enumerate(cells) if cell in bad))
    return min(wrong, default=None)


def typed(table: type, cells: Mapping[str, str]) -> dict[str, Any]:
    """A row's cells by column: numbers parsed, empty cells as None; text that should be a number stays text."""
    return {column.name: column.typed(cells[column.name]) for column in columns(table)}


_NAME = r"^[a-z0-9_]+$"
_TOOLKIT = r"^(cuda[0-9]+|library)$"
_RUN_KEY = About("what ran: binary, launches, arguments, workspace; empty for a library", pattern="^[0-9a-f]{16}$")
_DTYPE = About("type of the operands", among=tuple(DTYPES))
_STATUS = About("whether it is of today's run", among=("current", "stale"))
_KERNEL = About("the kernel's id, or the baseline's", pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
_M, _N, _K = (About(f"{name} of the problem", least=1) for name in "mnk")


@dataclass(frozen=True, kw_only=True)
class Row:
    """row of summary.csv: a kernel, or a baseline, at one size, by one toolkit, in one cache state."""

    kernel: Annotated[str, _KERNEL]
    family: Annotated[str, About("the family whose sweep it is of", pattern=_NAME)]
    rung: Annotated[str, About("the kernel's rung, or the baseline's name for readers")]
    dtype: Annotated[str, _DTYPE]
    m: Annotated[int, _M]
    n: Annotated[int, _N]
    k: Annotated[int, _K]
    d: Annotated[int | None, About("slices or moduli, where a kernel has them")] = None
    cache: Annotated[str, About("state of the cache before a launch", among=("cold", "warm"))]
    toolkit: Annotated[str, About("toolkit that compiled it; library for a baseline", pattern=_TOOLKIT)]
    arch: Annotated[str, About("machine code that ran", pattern=r"^sm_[0-9]+[af]?$")]
    median_us: Annotated[float, About("median of the rounds' medians", "µs", above=0)]
    ci_low_us: Annotated[float, About("lower end of its 95% interval", "µs", least=0)]
    ci_high_us: Annotated[float, About("upper end of its 95% interval", "µs", above=0)]
    samples: Annotated[int, About("times that were taken", least=1)]
    rounds: Annotated[int, About("rounds in which they were taken", least=1)]
    tflops: Annotated[float | None, About("floating-point operations over time", "TFLOP/s", above=0)] = None
    gbps: Annotated[
        float | None,
        About("compulsory bytes (each input read, each output written once) over time", "GB/s", above=0),
    ] = None
    baseline: Annotated[str | None, About("what it is compared with", pattern=_KERNEL.pattern)] = None
    baseline_median_us: Annotated[float | None, About("the baseline's time, paired with it", "µs", above=0)] = None
    ratio: Annotated[float | None, About("baseline time over kernel time", above=0)] = None
    ratio_ci_low: Annotated[float | None, About("lower end of its 95% interval", least=0)] = None
    ratio_ci_high: Annotated[float | None, About("upper end of its 95% interval", above=0)] = None
    err_scaled_max: Annotated[
        float | None, About("max |C - C*| / (|A||B|)", "unit roundoffs of the output type", least=0)
    ] = None
    err_fro: Annotated[float | None, About("relative error in the Frobenius norm", least=0)] = None
    clock_mhz: Annotated[float | None, About("median SM clock while it ran", "MHz", above=0)] = None
    power_w: Annotated[float | None, About("median power while it ran", "W", least=0)] = None
    temp_c: Annotated[float | None, About("highest temperature while it ran", "°C")] = None
    throttle: Annotated[
        str | None,
        About("throttle reasons seen while it ran, joined by +; none", pattern=r"^[a-z0-9_+]+$"),
    ] = None
    build_key: Annotated[str, About("the binary's build key, or the library's version")]
    run_key: Annotated[str | None, _RUN_KEY] = None
    status: Annotated[str, _STATUS] = "current"


@dataclass(frozen=True, kw_only=True)
class CounterRow:
    """row of counters.csv: one hardware counter of one run of a kernel."""

    kernel: Annotated[str, _KERNEL]
    toolkit: Annotated[str, About("toolkit that compiled it", pattern=_TOOLKIT)]
    m: Annotated[int, _M]
    n: Annotated[int, _N]
    k: Annotated[int, _K]
    metric: Annotated[str, About("the profiler's name of the counter")]
    value: Annotated[int | float, About("its value")]
    unit: Annotated[str | None, About("the profiler's unit of it")] = None
    build_key: Annotated[str, About("the binary's build key")]
    run_key: Annotated[str | None, _RUN_KEY] = None
    status: Annotated[str, _STATUS] = "current"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """row of samples.parquet: one time, paired with the baseline's."""

    kernel: Annotated[str, _KERNEL]
    toolkit: Annotated[str, About("toolkit that compiled it; library for a baseline", pattern=_TOOLKIT)]
    dtype: Annotated[str, _DTYPE]
    m: Annotated[int, _M]
    n: Annotated[int, _N]
    k: Annotated[int, _K]
    d: Annotated[int | None, About("slices or moduli, where a kernel has them")] = None
    cache: Annotated[str, About("state of the cache before a launch", among=("cold", "warm"))]
    round: Annotated[int, About("round in which it was taken, from 0", least=0)]
    index: Annotated[int, About("its place in the round, from 0", least=0)]
    time_us: Annotated[float, About("time of one launch", "µs", above=0)]
    baseline_us: Annotated[float | None, About("time of the baseline's launch, paired with it", "µs", above=0)] = None
    build_key: Annotated[str, About("the binary's build key, or the library's version")]


SUMMARY_COLUMNS = header(Row)
COUNTER_COLUMNS = header(CounterRow)
SAMPLE_COLUMNS = header(Sample)


@dataclass(frozen=True, kw_only=True)
class RegimeRow(Row):
    """row of a regime's summary.csv: a kernel, or a baseline, alone at one size.

    It has the columns of a sweep's rows. `rounds` counts blocks; `ratio` compares the medians of blocks in the same
    pass; the cache is warm.
    """

    dtype_out: Annotated[str, About("type of the output", among=tuple(DTYPES))]
    layout: Annotated[str, About("layouts of A, B and C", among=LAYOUTS)]
    regime: Annotated[str, About("how it was used", among=REGIMES)]
    joules: Annotated[float | None, About("energy of a launch, the idle GPU's share included", "J", above=0)] = None
    ready: Annotated[int, About("blocks that began as the regime's rule asks: steady, or rested", least=0)]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """what samples and readings say of their block."""

    kernel: Annotated[str, About("the kernel's id, or the baseline's")]
    toolkit: Annotated[str, About("toolkit that compiled it; library for a baseline")]
    dtype: Annotated[str, About("type of the operands")]
    dtype_out: Annotated[str, About("type of the output")]
    layout: Annotated[str, About("layouts of A, B and C")]
    m: Annotated[int, About("m of the problem")]
    n: Annotated[int, About("n of the problem")]
    k: Annotated[int, About("k of the problem")]
    regime: Annotated[str, About("how it was used")]
    block: Annotated[int, About("the block's place among all blocks of its set and regime, from 0")]


@dataclass(frozen=True, kw_only=True)
class RegimeSample(Subject):
    """row of a regime's samples.parquet: launches that were timed together."""

    ready: Annotated[int, About("1 if its block began steady, or rested; else 0")]
    index: Annotated[int, About("its place in the block, from 0")]
    launches: Annotated[int, About("launches that were timed together")]
    time_us: Annotated[float, About("time of one launch", "µs")]
    build_key: Annotated[str, About("the binary's build key, or the library's version")]


@dataclass(frozen=True, kw_only=True)
class RegimeReading(Subject):
    """row of a regime's readings.parquet: the GPU's sensors at one moment of a block."""

    index: Annotated[int, About("its place in the block, from 0")]
    at_s: Annotated[float, About("time since the block's first reading", "s")]
    clock_mhz: Annotated[float | None, About("SM clock", "MHz")] = None
    power_w: Annotated[float | None, About("momentary power", "W")] = None
    temp_c: Annotated[float | None, About("temperature", "°C")] = None
    throttle: Annotated[int | None, About("NVML's mask of throttle reasons")] = None
    energy_j: Annotated[float | None, About("the energy counter, less its value at the first reading", "J")] = None


REGIME_COLUMNS, REGIME_SAMPLE_COLUMNS, READING_COLUMNS = map(header, (RegimeRow, RegimeSample, RegimeReading))

SET = ("dtype", "dtype_out", "layout", "m", "n", "k", "regime")
"""The columns that name a set in a regime."""

REGIME_POINT = ("kernel", "toolkit", *SET)
"""The columns that name a row."""
