"""The tables that a sweep and the regimes leave: their columns by name, each with its meaning and what a cell may hold.

From these follow a table's header, the types it is read with, and how a recording is checked.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.core.names import METRICS
from gemmrepro.measure.regimes import REGIMES
from gemmrepro.operations import LAYOUTS

Kind = Literal["text", "integer", "number"]

TEXT = r"^[ -;=?-~]+$(?!\n)"
"""Text where nothing else is said: printable ASCII without the brackets of HTML."""

_SPELLED = {
    "integer": re.compile(r"0|-?[1-9][0-9]*"),
    "number": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?"),
}
_MOST_DIGITS = 32


def number(cell: str, kind: str) -> int | float | None:
    """The number that a cell of a CSV spells, finite and, if whole, in one spelling; None if it spells none.
    Python's own idea of a number takes ``1_75.5``, blanks, digits of any script and "nan"."""
    if len(cell) > _MOST_DIGITS or not _SPELLED[kind].fullmatch(cell):
        return None
    if kind == "integer":
        return int(cell)
    value = float(cell)
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Column:
    """One column of a table: its meaning, its unit, whether a cell may be empty (where it does not apply).
    Of text a pattern or the only words allowed; of numbers the smallest, or one that all must exceed."""

    meaning: str
    kind: Kind = "text"
    unit: str = ""
    optional: bool = False
    pattern: str = TEXT
    among: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None

    def complaint(self, cell: str) -> str:
        """The fault of a cell of a CSV, as a clause; "" without one."""
        if cell == "":
            return "" if self.optional else "it is empty"
        if self.kind == "text":
            if self.among and cell not in self.among:
                return f"'{cell}' is not one of {', '.join(self.among)}"
            return "" if self.among or re.search(self.pattern, cell) else f"'{cell}' does not match '{self.pattern}'"
        value = number(cell, self.kind)
        if value is None:
            return f"'{cell}' is not of type '{self.kind}'"
        if self.least is not None and value < self.least:
            return f"{cell} is below {self.least:g}"
        return f"{cell} is not above {self.above:g}" if self.above is not None and value <= self.above else ""


Table = Mapping[str, Column]
"""Columns by name, in order."""


def kinds(table: Table) -> dict[str, Kind]:
    return {name: column.kind for name, column in table.items()}


def _number(meaning: str, unit: str = "", *, above: float | None = None, least: float | None = None) -> Column:
    """A column of numbers that may be empty."""
    return Column(meaning, "number", unit, optional=True, above=above, least=least)


def _count(meaning: str, least: int = 1) -> Column:
    return Column(meaning, "integer", least=least)


_TOOLKIT = r"^(cuda[0-9]+|library)$"
_KERNEL = {"kernel": Column("the kernel's id, or the baseline's", pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")}
_BY = {"toolkit": Column("toolkit that compiled it; library for a baseline", pattern=_TOOLKIT)}
_DTYPE = {"dtype": Column("type of the operands", among=tuple(DTYPES))}
_SHAPE = {name: Column(f"{name} of the problem", "integer", least=1) for name in "mnk"}
_D = {"d": Column("slices or moduli, where a kernel has them", "integer", optional=True)}
_CACHE = {"cache": Column("state of the cache before a launch", among=("cold", "warm"))}
_BUILD_KEY = {"build_key": Column("the binary's build key, or the library's version")}
_WHAT_RAN = "what ran: binary, launches, arguments, workspace; empty for a library"
_RUN = {
    "run_key": Column(_WHAT_RAN, optional=True, pattern="^[0-9a-f]{16}$"),
    "status": Column("whether it is of today's run", among=("current", "stale")),
}
_LOW, _HIGH = "lower end of its 95% interval", "upper end of its 95% interval"
_THROTTLE = "throttle reasons seen while it ran, joined by +; none"

ROW: Table = {
    **_KERNEL,
    "family": Column("the family whose sweep it is of", pattern=r"^[a-z0-9_]+$"),
    "rung": Column("the kernel's rung, or the baseline's name for readers"),
    **_DTYPE,
    **_SHAPE,
    **_D,
    **_CACHE,
    **_BY,
    "arch": Column("machine code that ran", pattern=r"^sm_[0-9]+[af]?$"),
    "median_us": Column("median of the rounds' medians", "number", "µs", above=0),
    "ci_low_us": Column(_LOW, "number", "µs", least=0),
    "ci_high_us": Column(_HIGH, "number", "µs", above=0),
    "samples": _count("times that were taken"),
    "rounds": _count("rounds in which they were taken"),
    "tflops": _number("floating-point operations over time", "TFLOP/s", above=0),
    "gbps": _number("compulsory bytes (each input read, each output written once) over time", "GB/s", above=0),
    "baseline": Column("what it is compared with", optional=True, pattern=_KERNEL["kernel"].pattern),
    "baseline_median_us": _number("the baseline's time, paired with it", "µs", above=0),
    "ratio": _number("baseline time over kernel time", above=0),
    "ratio_ci_low": _number(_LOW, least=0),
    "ratio_ci_high": _number(_HIGH, above=0),
    "err_scaled_max": _number("max |C - C*| / (|A||B|)", "unit roundoffs of the output type", least=0),
    "err_fro": _number("relative error in the Frobenius norm", least=0),
    "clock_mhz": _number("median SM clock while it ran", "MHz", above=0),
    "power_w": _number("median power while it ran", "W", least=0),
    "temp_c": _number("highest temperature while it ran", "°C"),
    "throttle": Column(_THROTTLE, optional=True, pattern=r"^[a-z0-9_+]+$"),
    **_BUILD_KEY,
    **_RUN,
}
"""summary.csv: a kernel, or a baseline, at one size, by one toolkit, in one cache state."""

COUNTER_ROW: Table = {
    **_KERNEL,
    **_BY,
    **_SHAPE,
    "metric": Column("the profiler's name of the counter", among=tuple(METRICS)),
    "value": Column("its value", "number", least=0),
    "unit": Column("the profiler's unit of it", optional=True),
    **_BUILD_KEY,
    **_RUN,
}
"""counters.csv: one hardware counter of one run of a kernel."""

SAMPLE: Table = {
    **_KERNEL,
    **_BY,
    **_DTYPE,
    **_SHAPE,
    **_D,
    **_CACHE,
    "round": _count("round in which it was taken, from 0", 0),
    "index": _count("its place in the round, from 0", 0),
    "time_us": Column("time of one launch", "number", "µs", above=0),
    "baseline_us": _number("time of the baseline's launch, paired with it", "µs", above=0),
    **_BUILD_KEY,
}
"""samples.parquet: one time, paired with the baseline's."""

_USE = {
    "dtype_out": Column("type of the output", among=tuple(DTYPES)),
    "layout": Column("layouts of A, B and C", among=LAYOUTS),
    "regime": Column("how it was used", among=REGIMES),
}

REGIME_ROW: Table = {
    **ROW,
    **_USE,
    "joules": _number("energy of a launch, the idle GPU's share included", "J", above=0),
    "ready": _count("blocks that began as the regime's rule asks: steady, or rested", 0),
}
"""A regime's summary.csv: a kernel, or a baseline, alone at one size, with a warm cache.
`rounds` counts blocks; `ratio` compares the medians of blocks in the same pass."""

SET = ("dtype", "dtype_out", "layout", "m", "n", "k", "regime")
"""The columns that name a set in a regime."""

REGIME_POINT = ("kernel", "toolkit", *SET)
"""The columns that name a row."""

_BLOCK = {
    **{name: REGIME_ROW[name] for name in REGIME_POINT},
    "block": _count("the block's place among all blocks of its set and regime, from 0", 0),
}

REGIME_SAMPLE: Table = {
    **_BLOCK,
    "ready": _count("1 if its block began steady, or rested; else 0", 0),
    "index": _count("its place in the block, from 0", 0),
    "launches": _count("launches that were timed together"),
    "time_us": Column("time of one launch", "number", "µs"),
    **_BUILD_KEY,
}
"""A regime's samples.parquet: launches that were timed together."""

REGIME_READING: Table = {
    **_BLOCK,
    "index": _count("its place in the block, from 0", 0),
    "at_s": Column("time since the block's first reading", "number", "s"),
    "clock_mhz": _number("SM clock", "MHz"),
    "power_w": _number("momentary power", "W"),
    "temp_c": _number("temperature", "°C"),
    "throttle": Column("NVML's mask of throttle reasons", "integer", optional=True),
    "energy_j": _number("the energy counter, less its value at the first reading", "J"),
}
"""A regime's readings.parquet: the GPU's sensors at one moment of a block."""

SUMMARY_COLUMNS, COUNTER_COLUMNS, SAMPLE_COLUMNS = map(list, (ROW, COUNTER_ROW, SAMPLE))
REGIME_COLUMNS, REGIME_SAMPLE_COLUMNS, READING_COLUMNS = map(list, (REGIME_ROW, REGIME_SAMPLE, REGIME_READING))
