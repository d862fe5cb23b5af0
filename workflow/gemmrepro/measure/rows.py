"""Reads what a sweep, the regimes or a recording left of a family, for the stages after it.

A family that was not measured reads as empty tables, never as an error: the report must say so, not fail.
"""

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gemmrepro import stats, timing
from gemmrepro.core.architectures import parsed
from gemmrepro.core.files import csv_text, parquet, read_json, write_atomic, write_json
from gemmrepro.core.names import LIBRARY, TOOLKITS
from gemmrepro.errors import UserError, at_line
from gemmrepro.measure.columns import (
    COUNTER_ROW,
    READING_COLUMNS,
    REGIME_COLUMNS,
    REGIME_POINT,
    REGIME_ROW,
    REGIME_SAMPLE_COLUMNS,
    ROW,
    SAMPLE_COLUMNS,
    Table,
    kinds,
    number,
)
from gemmrepro.measure.regimes import READINGS, REGIMES, RUN, SAMPLES, SUMMARY, SUSTAINED, Reading

Rounds = Sequence[Any]
"""Samples in µs, one sequence or array a round."""


def time_cells(times: Rounds) -> dict[str, Any]:
    """The cells of `ROW` on the time itself: median and interval in µs, numbers of samples and of rounds."""
    tick = stats.resolution(np.concatenate(times))
    level = stats.rounds_interval(times, tick=tick, repeatability=stats.REPEATABILITY)
    return {
        "median_us": level.value,
        "ci_low_us": level.low,
        "ci_high_us": level.high,
        "samples": sum(map(len, times)),
        "rounds": len(times),
    }


def ratio_cells(times: Rounds, baseline: Rounds) -> dict[str, Any]:
    """The cells of `ROW` on the comparison with the baseline, whose samples are paired with `times`."""
    ticks = stats.resolution(np.concatenate(baseline)), stats.resolution(np.concatenate(times))
    return _compared(baseline, stats.ratio_interval(baseline, times, ticks=ticks))


def _compared(baseline: Rounds, ratio: stats.Interval) -> dict[str, Any]:
    return {
        "baseline_median_us": stats.rounds_interval(baseline).value,
        "ratio": ratio.value,
        "ratio_ci_low": ratio.low,
        "ratio_ci_high": ratio.high,
    }


NOT_COMPARED: dict[str, Any] = dict.fromkeys(("baseline_median_us", "ratio", "ratio_ci_low", "ratio_ci_high"))
"""The cells of `ratio_cells` of a row without a baseline."""


def rate_cells(median_us: float, flops: float | None, moved: float | None) -> dict[str, Any]:
    """The cells of `ROW` on rates: TFLOP/s of `flops`, GB/s of `moved` bytes per launch; None where there are none."""
    return {"tflops": flops / median_us * 1e-6 if flops else None, "gbps": moved / median_us * 1e-3 if moved else None}


LEAST_STEPS = 3
"""The fewest steps of the energy counter in a block from which its power is computed."""


@dataclass(frozen=True)
class Taken:
    """A block of a subject, as samples and readings have it; times in µs."""

    ready: bool
    times: list[float]
    readings: list[Reading]


def counted_power(readings: Sequence[Reading]) -> float | None:
    """The power of a block in W, from the energy counter; None with too few steps of it.
    The counter advances in steps. What was used between the first and the last one that was seen, over the time between
    them, does not depend on where in a step the block began."""
    steps = [
        after
        for before, after in itertools.pairwise(readings)
        if before.energy_j is not None and after.energy_j is not None and after.energy_j != before.energy_j
    ]
    if len(steps) < LEAST_STEPS:
        return None
    first, last = steps[0], steps[-1]
    return ((last.energy_j or 0.0) - (first.energy_j or 0.0)) / (last.at_s - first.at_s)


def joules(blocks: Sequence[Taken]) -> float | None:
    """Energy of one launch in J: power times time, the median of the blocks that have both."""
    powers = [(counted_power(block.readings), statistics.median(block.times)) for block in blocks]
    energies = [power * time * 1e-6 for power, time in powers if power is not None]
    return statistics.median(energies) if energies else None


def regime_cells(regime: str, blocks: Sequence[Taken], baseline: Sequence[Taken] | None) -> dict[str, Any]:
    """The cells of `REGIME_ROW` that follow from a subject's blocks, and those of its baseline in the same passes.
    Medians of a pass are compared: within a block nothing of the other side was measured. A burst is over before the
    energy counter advances, so it has no joules."""
    times = [block.times for block in blocks]
    compared = NOT_COMPARED
    if baseline is not None:
        others = [block.times for block in baseline]
        ratios = [[statistics.median(b) / statistics.median(a)] for a, b in zip(times, others, strict=True)]
        compared = _compared(others, stats.rounds_interval(ratios))
    return {
        **time_cells(times),
        **timing.summarize_sensors([vars(reading) for block in blocks for reading in block.readings]),
        "ready": sum(block.ready for block in blocks),
        "joules": joules(blocks) if regime == SUSTAINED else None,
        **compared,
    }


@dataclass(frozen=True)
class Measurements:
    """One family's measurements, with the columns of `ROW` and of `COUNTER_ROW`; `run` is run.json or {}."""

    family: str
    summary: pd.DataFrame
    counters: pd.DataFrame
    run: Mapping[str, Any] = field(default_factory=dict)
    samples_path: Path | None = None

    @property
    def source(self) -> str:
        """``live``, ``recorded`` or ``none``."""
        return str(self.run.get("source") or "recorded") if len(self.summary) else "none"

    @property
    def gpu(self) -> str | None:
        return (self.run.get("gpu") or {}).get("name")

    @property
    def arch(self) -> str | None:
        """The architecture that ran, ``sm_90``, or None."""
        archs = [arch for arch in self.summary["arch"] if arch]
        if archs:
            return archs[0]
        capability = str((self.run.get("gpu") or {}).get("compute_capability") or "")
        digits = re.findall(r"\d+", capability)
        return "sm_" + "".join(digits) if digits else None

    @cached_property
    def toolkit(self) -> str | None:
        """The toolkit that represents it: the one with current rows of the most kernels, else with any rows.
        Ties go to the first in TOOLKITS. None if there are no rows."""
        for rows in (self.summary[is_current(self.summary)], self.summary):
            kernels = {toolkit: rows.loc[rows["toolkit"] == toolkit, "kernel"].nunique() for toolkit in TOOLKITS}
            if any(kernels.values()):
                return max(TOOLKITS, key=lambda toolkit: kernels[toolkit])
        return None

    @cached_property
    def cache(self) -> str:
        """The state of the L2 cache that represents it: warm, unless its kernels were timed with a cold one alone."""
        timed = self.summary.loc[self.summary["toolkit"] != LIBRARY, "cache"]
        return "cold" if set(timed) == {"cold"} else "warm"

    def samples(self) -> pd.DataFrame:
        """Every sample (SAMPLE_COLUMNS); empty without samples.parquet. Raises UserError if the file is corrupt."""
        if self.samples_path is None:
            return pd.DataFrame(columns=list(SAMPLE_COLUMNS))
        try:
            return pd.read_parquet(self.samples_path)
        except Exception as error:
            raise UserError(
                f"{self.samples_path} is not readable Parquet ({error}); remeasure, or restore the recorded file."
            ) from None


RESTORED = "remeasure, or restore the recorded file"


def read_cells(path: Path, remedy: str) -> pd.DataFrame:
    """A CSV's cells as text. Raises UserError, with the remedy, if it is none."""
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a readable CSV ({error}); {remedy}.") from None


def with_types(rows: pd.DataFrame, kinds: Mapping[str, str], path: Path, remedy: str) -> pd.DataFrame:
    """`rows` of text with types by column: text as str ('' when empty), whole numbers as Int64, others as float.
    Raises UserError, with the line, if a cell of numbers holds none."""
    for name, kind in kinds.items():
        cells = rows[name]
        if kind == "text":
            rows[name] = cells.astype(object)
            continue
        typed = {cell: number(cell, kind) for cell in cells.unique()}
        if wrong := [cell for cell, value in typed.items() if cell and value is None]:
            line = list(cells).index(wrong[0]) + 2
            raise at_line(path, line, f"{name} is '{wrong[0]}', which is not a number; {remedy}.")
        rows[name] = pd.to_numeric(cells.map(typed)).astype("Int64" if kind == "integer" else float)
    return rows


def read_table(path: Path, table: Table) -> pd.DataFrame:
    """A CSV with at least the columns of `table`; empty if there is no file. Raises UserError if it is none."""
    by_name = kinds(table)
    rows = read_cells(path, RESTORED) if path.is_file() else pd.DataFrame(columns=[*by_name])
    if missing := [name for name in by_name if name not in rows.columns]:
        raise UserError(f"{path} has no column {', '.join(missing)}; it was written by another version: {RESTORED}.")
    return with_types(rows[[*by_name]].copy(), by_name, path, RESTORED)


def load(measure_dir: Path | str, family: str) -> Measurements:
    """Read ``<measure_dir>/<family>``. Raises UserError if a file is there but is not what it should be."""
    folder = Path(measure_dir) / family
    samples = folder / SAMPLES
    return Measurements(
        family=family,
        summary=read_table(folder / SUMMARY, ROW),
        counters=read_table(folder / "counters.csv", COUNTER_ROW),
        run=_read_run(folder),
        samples_path=samples if samples.is_file() else None,
    )


def _read_run(folder: Path) -> dict[str, Any]:
    return read_json(folder / RUN, "the run manifest", RESTORED) if (folder / RUN).is_file() else {}


def capability_of(measured: Iterable[Measurements]) -> tuple[int, int] | None:
    """The compute capability of the GPU that all families were measured on; None if that is not one."""
    found = {str(capability) for of in measured if (capability := (of.run.get("gpu") or {}).get("compute_capability"))}
    return parsed(found.pop()) if len(found) == 1 else None


def is_current(table: pd.DataFrame) -> pd.Series:
    """Mask of the rows that may support a claim: all but the stale ones."""
    return table["status"] != "stale"


def select(rows: pd.DataFrame, **cells: Any) -> pd.DataFrame:
    """The rows that have these values in these columns; an empty cell equals nothing."""
    if not cells:
        return rows
    # One mask for all columns: taking rows costs far more than comparing.
    masks = [(rows[column] == value).to_numpy(dtype=bool, na_value=False) for column, value in cells.items()]
    return rows[np.logical_and.reduce(masks)]


def cubes(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[((rows["m"] == rows["n"]) & (rows["n"] == rows["k"])).fillna(False).astype(bool)]


def row_key(row: Mapping[str, Any]) -> str:
    """The name of a summary row: kernel, toolkit, type, shape, cache state, and the regime where it is not in turn."""
    use = f"/{row['regime']}" if "regime" in row else ""
    return f"{row['kernel']}/{row['toolkit']}/{row['dtype']}/{row['m']}x{row['n']}x{row['k']}/{row['cache']}{use}"


def counter_key(row: Mapping[str, Any]) -> str:
    """The name of a row of counters.csv."""
    return f"{row['kernel']}/{row['toolkit']}/{row['m']}x{row['n']}x{row['k']}/{row['metric']}"


ENOUGH = 6
"""The fewest samples whose interval is drawn: of fewer, a 95% interval is wider than their range, or unknown."""

BEYOND = 1.02
"""Factor by which the end of an interval may exceed the measured ceiling."""


def counted(row: pd.Series) -> bool:
    """Whether a row says that its interval comes from enough samples, or from enough seeds of its operands."""
    counts = [float(row[name]) for name in ("samples", "seeds") if name in row and pd.notna(row[name])]
    return bool(counts) and min(counts) >= ENOUGH


@dataclass(frozen=True)
class Regimes:
    """One family's rows in the regimes, with the columns of `REGIME_ROW`; `run` is run.json or empty."""

    family: str
    summary: pd.DataFrame
    run: dict[str, Any] = field(default_factory=dict)

    def by_regime(self) -> dict[str, pd.DataFrame]:
        """The rows of every regime that has some."""
        return {name: rows.reset_index(drop=True) for name in REGIMES if len(rows := select(self.summary, regime=name))}


def load_regimes(folder: Path | str | None, family: str) -> Regimes:
    """Read ``<folder>/<family>``; a family that is not there, or no folder, has no rows. Raises as `load`."""
    place = Path(folder or "/nonexistent") / family
    return Regimes(family, read_table(place / SUMMARY, REGIME_ROW), _read_run(place))


def write_regimes(
    out: Path, rows: list[dict[str, Any]], samples: pd.DataFrame, readings: pd.DataFrame, run: Mapping[str, Any]
) -> None:
    write_atomic(out / SUMMARY, csv_text(rows, REGIME_COLUMNS))
    write_atomic(out / SAMPLES, parquet(samples))
    write_atomic(out / READINGS, parquet(readings))
    write_json(out / RUN, run)


def write_no_regimes(out: Path) -> None:
    """Write the four files of a family that was not measured in the regimes; they hold no rows."""
    samples, readings = pd.DataFrame(columns=REGIME_SAMPLE_COLUMNS), pd.DataFrame(columns=READING_COLUMNS)
    write_regimes(out, [], samples, readings, {"source": "none"})


RegimePoint = tuple[str, ...]
"""The cells of REGIME_POINT as text."""


@dataclass(frozen=True)
class Subject:
    """One subject's blocks in one regime, their places among all of its set, and the build keys of its samples."""

    build_keys: frozenset[str]
    numbers: list[int]
    blocks: list[Taken]


def by_point(samples: pd.DataFrame, readings: pd.DataFrame) -> dict[RegimePoint, Subject]:
    """Samples and readings of regimes, as the files hold them, by row.
    Raises ValueError if readings are of no block, or samples of a block contradict each other."""
    # A column of masks with gaps is one of floats in Parquet.
    cells = readings[[field.name for field in fields(Reading)]].astype({"throttle": "Int64"}).astype(object)
    blocks_of = zip(*(map(str, readings[name]) for name in (*REGIME_POINT, "block")), strict=True)
    sensed = defaultdict[tuple[str, ...], list[Reading]](list)
    for block_of, row in zip(blocks_of, cells.where(cells.notna(), None).to_numpy(), strict=True):
        sensed[block_of].append(Reading(*row))
    subjects: dict[RegimePoint, Subject] = {}
    for name, part in samples.groupby(list(REGIME_POINT), sort=False):
        point, numbers, blocks = tuple(map(str, name)), [], []
        for place, block in part.groupby("block"):
            if block["ready"].nunique() != 1 or list(block["index"]) != list(range(len(block))):
                raise ValueError(f"the samples of block {place} of {' '.join(point)} contradict each other")
            numbers.append(int(str(place)))
            ready, times = bool(block["ready"].iloc[0]), [float(time) for time in block["time_us"]]
            blocks.append(Taken(ready, times, sensed.pop((*point, str(place)), [])))
        subjects[point] = Subject(frozenset(part["build_key"]), numbers, blocks)
    if sensed:
        raise ValueError(f"the readings of {' '.join(next(iter(sensed)))} are of no sample")
    return subjects
