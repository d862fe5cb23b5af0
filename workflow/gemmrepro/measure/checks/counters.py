"""Whether hardware counters can be: units, duplicates, and what the counters of one launch say of each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro.core.names import LIBRARY, METRICS
from gemmrepro.measure.checks.refusal import refused

Rows = Sequence[Mapping[str, str]]

UNITS = {
    "dram__bytes.sum": "byte",
    "dram__bytes_read.sum": "byte",
    "dram__bytes.sum.per_second": "byte/s",
    "gpu__time_duration.sum": "ns",
    "lts__t_bytes.sum": "byte",
    "sm__cycles_elapsed.max": "cycle",
}
"""Units of the counters from which something is computed."""

MOST_PERCENT = 101.0
"""A share of a peak ends here; up to 100.05 has been read."""

CLOCK = 1.1
"""How far cycles over time may exceed the highest clock: the two counters start apart (1.06 in launches of 5 µs)."""

_LAUNCH = ("kernel", "toolkit", "m", "n", "k")


def check_counters(counted: Rows, rows: Rows, run: Mapping[str, Any], path: Path) -> None:
    """Check the rows of counters.csv, and hold the current ones against the rows of the same binaries.

    Raises:
        UserError: names the first line that cannot be.
    """
    launches: dict[tuple[str, ...], dict[str, tuple[int, float]]] = {}
    keys = {(row["kernel"], row["toolkit"]): row["build_key"] for row in rows}
    for number, row in enumerate(counted, 2):
        place, metric, value = f"line {number}", row["metric"], float(row["value"])
        launch = tuple(row[column] for column in _LAUNCH)
        if not (math.isfinite(value) and value >= 0):
            raise refused(path, place, f"{metric} is {row['value']}, and counts are finite and not negative")
        if metric not in METRICS:
            raise refused(path, place, f"there is no counter {metric}")
        if metric in UNITS and row["unit"] != UNITS[metric]:
            raise refused(path, place, f"{metric} is in '{row['unit']}' instead of '{UNITS[metric]}'")
        if row["unit"] == "%" and value > MOST_PERCENT:
            raise refused(path, place, f"{metric} is {value:g} %")
        if row["toolkit"] == LIBRARY:
            raise refused(path, place, "counters are of kernels, never of libraries")
        if metric in launches.setdefault(launch, {}):
            raise refused(path, place, f"it repeats {metric} of {' '.join(launch)}")
        launches[launch][metric] = number, value
        key = keys.get((row["kernel"], row["toolkit"]), row["build_key"])
        if row["status"] != "stale" and row["build_key"] != key:
            raise refused(path, place, f"its build key is {row['build_key']}, and that of the times {key}")
    for launch, values in launches.items():
        _check_launch(launch, values, run, path)


def _check_launch(
    launch: tuple[str, ...], values: Mapping[str, tuple[int, float]], run: Mapping[str, Any], path: Path
) -> None:
    """The counters of one launch against each other: rate = bytes / time, cycles / time = clock."""
    _, duration = values.get("gpu__time_duration.sum", (0, 0.0))
    number, moved = values.get("dram__bytes.sum", (0, 0.0))
    _, rate = values.get("dram__bytes.sum.per_second", (0, 0.0))
    if duration and moved and rate and not math.isclose(moved / duration * 1e9, rate, rel_tol=1e-3):
        why = f"{moved:g} bytes in {duration:g} ns are no {rate:g} bytes per second"
        raise refused(path, f"line {number}", f"{' '.join(launch)}: {why}")
    number, cycles = values.get("sm__cycles_elapsed.max", (0, 0.0))
    fastest = run["gpu"]["clock_max_mhz"]
    if duration and cycles and fastest and cycles / duration * 1e3 > CLOCK * fastest:
        why = f"{cycles:g} cycles in {duration:g} ns are a clock above {fastest} MHz"
        raise refused(path, f"line {number}", f"{' '.join(launch)}: {why}")
