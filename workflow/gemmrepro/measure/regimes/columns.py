"""The columns of the tables of the regimes. See `gemmrepro.measure.columns` for how they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.measure.columns import About, Row, header
from gemmrepro.measure.regimes.rules import REGIMES
from gemmrepro.operations import LAYOUTS


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


ROW_COLUMNS, SAMPLE_COLUMNS, READING_COLUMNS = header(RegimeRow), header(RegimeSample), header(RegimeReading)

SET = ("dtype", "dtype_out", "layout", "m", "n", "k", "regime")
"""The columns that name a set in a regime."""

POINT = ("kernel", "toolkit", *SET)
"""The columns that name a row."""
