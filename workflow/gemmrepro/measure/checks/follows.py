"""Whether a summary follows from its samples: every median, interval, ratio, count and rate is computed again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmrepro import operands
from gemmrepro.measure import derived
from gemmrepro.measure.checks.refusal import POINT, named, refused
from gemmrepro.measure.checks.samples import PointSamples
from gemmrepro.measure.subjects import kernels_behind
from gemmrepro.operations import Shape

TOLERANCE = 1e-5
"""How far a cell may be from what is computed again, relative: cells have six digits, hence err by 5e-6 at most."""

RATES = 2 * TOLERANCE
"""The same for a rate, which is computed from the median's six digits."""

UNITS = {
    "median_us": "µs",
    "ci_low_us": "µs",
    "ci_high_us": "µs",
    "baseline_median_us": "µs",
    "tflops": "TFLOP/s",
    "gbps": "GB/s",
    "clock_mhz": "MHz",
    "power_w": "W",
    "temp_c": "°C",
    "joules": "J",
}


def check_samples_of(
    rows: Sequence[Mapping[str, str]], samples: Mapping[tuple[str, ...], PointSamples], path: Path
) -> None:
    """Check that rows and samples are of the same points, and that every row says of its samples what they are.

    Raises:
        UserError: names the first row that does not follow, and what its samples give.
    """
    points = [tuple(row[column] for column in POINT) for row in rows]
    for number, (row, point) in enumerate(zip(rows, points, strict=True), 2):
        if point not in samples:
            raise refused(path, f"line {number}", f"{named(row)} has no samples")
        _check_row(row, samples[point], path, f"line {number}")
    if lost := samples.keys() - set(points):
        first = " ".join(filter(None, min(lost)))
        raise refused(path, "", f"it has no row of {first}, of which there are samples")


def _check_row(row: Mapping[str, str], samples: PointSamples, path: Path, place: str) -> None:
    if samples.build_key != row["build_key"]:
        raise refused(path, place, f"its build key is {row['build_key']}, and that of its samples {samples.build_key}")
    if bool(row["baseline"]) != (samples.baseline is not None):
        other = "has a baseline, and its samples have none" if row["baseline"] else "has none of its samples' baseline"
        raise refused(path, place, f"{named(row)} {other}")
    cells = derived.time_cells(samples.times)
    if samples.baseline is not None:
        cells |= derived.ratio_cells(samples.times, samples.baseline)
    else:
        cells |= derived.NOT_COMPARED
    for column, value in cells.items():
        if not close(row[column], value):
            raise refused(path, place, f"{column} of {named(row)} {mismatch(column, row[column], value)}")


def close(cell: str, value: float | None, tolerance: float = TOLERANCE) -> bool:
    """Whether a cell is what was computed, to its digits."""
    if value is None or cell == "":
        return value is None and cell == ""
    return math.isclose(float(cell), value, rel_tol=tolerance, abs_tol=1e-12)


def mismatch(column: str, cell: str, value: float | None) -> str:
    """What is wrong with a cell whose samples give `value`."""
    unit = f" {UNITS[column]}" if column in UNITS else ""
    if value is None:
        return f"is {cell}{unit}, and its samples give none"
    return f"is {cell or 'empty'}{unit if cell else ''}, and its samples give {value:.6g}{unit}"


def check_rates(family: str, rows: Iterable[Mapping[str, str]], path: Path) -> None:
    """Check the rates of all current rows: the work of a launch over its median.

    Stale rows are left out: the work of what they ran need not be that of what is declared today.

    Raises:
        UserError: names the first row whose rate does not follow.
    """
    for number, row in enumerate(rows, 2):
        if row["status"] == "stale":
            continue
        shape, median = Shape(int(row["m"]), int(row["n"]), int(row["k"])), float(row["median_us"])
        possible = [derived.rate_cells(median, *operands.work(kernel, shape)) for kernel in kernels_behind(family, row)]
        wrong = [[name for name in cells if not close(row[name], cells[name], RATES)] for cells in possible]
        if all(wrong):
            column = wrong[0][0]
            why = mismatch(column, row[column], possible[0][column]).replace("its samples give", "the work gives")
            raise refused(path, f"line {number}", f"{column} of {named(row)} {why} in {row['median_us']} µs")
