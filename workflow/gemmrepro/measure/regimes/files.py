"""The four files of a family's regimes: rows, samples, readings, and the circumstances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.tables import csv_text, parquet
from gemmrepro.measure.regimes.columns import POINT, READING_COLUMNS, ROW_COLUMNS, SAMPLE_COLUMNS
from gemmrepro.measure.regimes.derived import Taken
from gemmrepro.measure.regimes.places import READINGS, RUN, SAMPLES, SUMMARY
from gemmrepro.measure.regimes.rules import Reading

Point = tuple[str, ...]
"""The cells of POINT as text."""


def write(
    out: Path, rows: list[dict[str, Any]], samples: pd.DataFrame, readings: pd.DataFrame, run: Mapping[str, Any]
) -> None:
    """Write the four files into `out`."""
    write_atomic(out / SUMMARY, csv_text(rows, ROW_COLUMNS))
    write_atomic(out / SAMPLES, parquet(samples))
    write_atomic(out / READINGS, parquet(readings))
    write_json(out / RUN, run)


def write_nothing(out: Path) -> None:
    """Write the four files of a family that was not measured; they hold no rows."""
    samples, readings = pd.DataFrame(columns=SAMPLE_COLUMNS), pd.DataFrame(columns=READING_COLUMNS)
    write(out, [], samples, readings, {"source": "none"})


@dataclass(frozen=True)
class Subject:
    """What was measured of one subject in one regime, in the order of its blocks.

    Attributes:
        build_keys: of its samples.
        numbers: the places of its blocks among all of its set.
    """

    build_keys: frozenset[str]
    numbers: list[int]
    blocks: list[Taken]


def by_point(samples: pd.DataFrame, readings: pd.DataFrame) -> dict[Point, Subject]:
    """Samples and readings, as the files hold them, by row.

    Raises:
        ValueError: readings are of no block, or samples of a block contradict each other; says which.
    """
    sensed = {_key(name): _readings(part) for name, part in readings.groupby([*POINT, "block"], sort=False)}
    found: dict[Point, Subject] = {}
    for name, part in samples.groupby(list(POINT), sort=False):
        point, numbers, blocks = _key(name), [], []
        for number, block in part.groupby("block"):
            if block["ready"].nunique() != 1 or list(block["index"]) != list(range(len(block))):
                raise ValueError(f"the samples of block {number} of {' '.join(point)} contradict each other")
            numbers.append(int(str(number)))
            ready, times = bool(block["ready"].iloc[0]), [float(time) for time in block["time_us"]]
            blocks.append(Taken(ready, times, sensed.pop((*point, str(number)), [])))
        found[point] = Subject(frozenset(part["build_key"]), numbers, blocks)
    if sensed:
        raise ValueError(f"the readings of {' '.join(next(iter(sensed)))} are of no sample")
    return found


def _key(cells: Any) -> Point:
    return tuple(str(cell) for cell in cells)


def _readings(part: pd.DataFrame) -> list[Reading]:
    names = ("at_s", "clock_mhz", "power_w", "temp_c", "throttle", "energy_j")
    columns = ([None if pd.isna(cell) else cell for cell in part[name]] for name in names)
    return [
        Reading(
            at_s=float(at),
            clock_mhz=_number(clock),
            power_w=_number(power),
            temp_c=_number(heat),
            throttle=None if throttle is None else int(throttle),
            energy_j=_number(energy),
        )
        for at, clock, power, heat, throttle, energy in zip(*columns, strict=True)
    ]


def _number(cell: Any) -> float | None:
    return None if cell is None else float(cell)


def rounded(value: float | None, digits: int) -> float:
    """A reading for a table; NaN for None."""
    return math.nan if value is None else round(float(value), digits)
