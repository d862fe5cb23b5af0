"""Reads the hardware counters of runs with Nsight Compute (ncu).

ncu replays each launch once per pass, with caches flushed before each, and leaves the clocks alone. A run of several
launches, a library's included, is read as one: bytes, instructions, cycles and times are summed, percentages and rates
are means weighted by the launches' times, and a property of a launch (``launch__``) is that of the longest. If ncu is
missing or may not read the counters (a permission of the driver), there are no rows, and a reason.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmrepro import registry
from gemmrepro.build import record
from gemmrepro.core.names import METRICS
from gemmrepro.core.paths import ROOT
from gemmrepro.measure.columns import CounterRow
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import run_key

TIME = "gpu__time_duration.sum"

MARK = "gemmrepro_end_of_run"
"""The empty kernel launched after each run, which marks its end."""

Target = tuple[str, str, Shape]
"""Kernel id, toolkit, shape."""

_DENIED = re.compile(r"ERR_NVGPUCTRPERM|permission|LibraryNotLoaded|not supported|No kernels were profiled", re.I)
_UNKNOWN = re.compile(r"Failed to find metric[s]?\s+(?:regex:)?['\"]?([\w.]+)", re.I)


def parse(text: str) -> list[tuple[str, str, float, str]]:
    """ncu's CSV as [(launch id, metric, value, unit)]; text before the table is ignored.

    Raises:
        ValueError: there is no table in it.
    """
    rows = []
    for row in _rows(text):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
        rows.append((row["ID"], row["Metric Name"], value, row["Metric Unit"] or ""))
    return rows


def _rows(text: str) -> list[dict[str, str]]:
    """The rows of ncu's table, without the lines after it."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith('"ID",')]
    if not starts:
        raise ValueError("no table in the profiler's output")
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines[starts[0] :]))) if row.get("Metric Name")]


@dataclass(frozen=True)
class Reading:
    """What ncu read of one launch: its kernel's name, and (value, unit) by metric."""

    name: str
    values: Mapping[str, tuple[float, str]]


def launches(text: str) -> list[Reading]:
    """ncu's CSV launch by launch, in order.

    Raises:
        ValueError: there is no table in it.
    """
    values: dict[str, dict[str, tuple[float, str]]] = {}
    for launch, metric, value, unit in parse(text):
        values.setdefault(launch, {})[metric] = (value, unit)
    names = {row["ID"]: row["Kernel Name"] for row in _rows(text)}
    return [Reading(names[launch], values.get(launch, {})) for launch in names]


def combined(run: Sequence[Reading]) -> Reading:
    """The launches of one run as one reading (see the module)."""
    longest = max(run, key=lambda reading: reading.values.get(TIME, (0.0, ""))[0])
    values: dict[str, tuple[float, str]] = {}
    for metric in dict.fromkeys(metric for reading in run for metric in reading.values):
        # Launches for which the profiler could not read this metric do not count.
        read = [reading for reading in run if metric in reading.values]
        unit = read[0].values[metric][1]
        if metric.startswith("launch__"):
            if metric in longest.values:
                values[metric] = longest.values[metric]
        elif metric.endswith((".sum", "_elapsed.max")):
            values[metric] = (math.fsum(reading.values[metric][0] for reading in read), unit)
        else:
            weights = [reading.values.get(TIME, (1.0, ""))[0] for reading in read]
            total = math.fsum(weights)
            mean = math.fsum(weight * reading.values[metric][0] for weight, reading in zip(weights, read, strict=True))
            values[metric] = (mean / total, unit)
    return Reading(longest.name, values)


def _profile(
    ncu: str, targets: Sequence[Target], build: Path, *options: str, runs: bool = False
) -> tuple[list[Reading], str]:
    """(the readings of `targets` launch by launch, why there are none)."""
    metrics = list(METRICS)
    while True:
        command = [ncu, "--csv", "--clock-control", "none", "--print-units", "base", "--metrics", ",".join(metrics)]
        command += ["--kernel-name-base", "function", *options]
        command += [sys.executable, "-m", "gemmrepro.measure.counters", "--build", str(Path(build).resolve())]
        command += ["--runs"] if runs else []
        command += ["--launch", *(f"{kernel}:{toolkit}:{shape}" for kernel, toolkit, shape in targets)]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "workflow")
        output = answer.stdout + answer.stderr
        unknown = _UNKNOWN.search(output)
        # A metric that this chip or this ncu does not know is left out; the others still count.
        if unknown and unknown[1] in metrics:
            metrics.remove(unknown[1])
            continue
        break
    try:
        return launches(answer.stdout), ""
    except ValueError:
        lines = [line.removeprefix("==ERROR== ") for line in output.splitlines() if _DENIED.search(line)]
        lines = lines or [line for line in output.splitlines() if line.strip()][-1:]
        return [], f"ncu could not read them: {lines[0] if lines else f'exit code {answer.returncode}'}"


def _single(ncu: str, targets: Sequence[Target], build: Path) -> tuple[list[Reading], str]:
    """One reading per target, each of a single launch."""
    entries = "|".join(sorted({registry.kernel(kernel).at(shape).code.entry for kernel, _, shape in targets}))
    readings, reason = _profile(ncu, targets, build, "--kernel-name", f"regex:^({entries})$")
    if not reason and len(readings) != len(targets):
        return [], f"ncu profiled {len(readings)} launches of {len(targets)}"
    return readings, reason


def _several(ncu: str, targets: Sequence[Target], build: Path) -> tuple[list[Reading], str]:
    """One reading per target, over all launches of its run, which its marker ends."""
    readings, reason = _profile(ncu, targets, build, "--profile-from-start", "off", runs=True)
    if reason:
        return [], reason
    runs: list[list[Reading]] = [[]]
    for reading in readings:
        if reading.name == MARK:
            runs.append([])
        else:
            runs[-1].append(reading)
    if len(runs) != len(targets) + 1 or runs[-1] or not all(runs[:-1]):
        return [], f"ncu profiled {len(runs) - 1} runs of {len(targets)}"
    return [combined(run) for run in runs[:-1]], ""


def collect(targets: Sequence[Target], build: Path) -> tuple[list[CounterRow], str]:
    """Read METRICS of one run of each target.

    Returns:
        (rows of counters.csv, why some or all targets have none or '').
    """
    if not targets:
        return [], ""
    ncu = shutil.which("ncu")
    if ncu is None:
        return [], "ncu is not on PATH (Nsight Compute)"
    steps = [bool(registry.kernel(kernel).at(shape).steps_at(shape)) for kernel, _, shape in targets]
    rows: list[CounterRow] = []
    reasons: dict[str, None] = {}
    for read, several in ((_single, False), (_several, True)):
        chosen = [target for target, has_steps in zip(targets, steps, strict=True) if has_steps == several]
        if not chosen:
            continue
        readings, reason = read(ncu, chosen, build)
        if reason:
            reasons[reason] = None
            continue
        for (kernel, toolkit, shape), reading in zip(chosen, readings, strict=True):
            measured = registry.kernel(kernel)
            key = record.read_build(measured, build, toolkit).build_key
            rows += [
                CounterRow(
                    kernel=kernel,
                    toolkit=toolkit,
                    m=shape.m,
                    n=shape.n,
                    k=shape.k,
                    metric=metric,
                    value=int(value) if value.is_integer() else value,
                    unit=unit,
                    build_key=key,
                    run_key=run_key(measured, key, shape),
                )
                for metric, (value, unit) in reading.values.items()
            ]
    return rows, "; ".join(reasons)
