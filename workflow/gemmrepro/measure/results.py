"""Writes what was measured in turn or in the regimes: tables, samples and run.json, all from the journal."""

import datetime
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import operands, timing
from gemmrepro.build.record import read_build
from gemmrepro.core.files import csv_text, parquet, write_atomic, write_json
from gemmrepro.core.machine import git_commit, libraries
from gemmrepro.core.names import LIBRARY, METRICS
from gemmrepro.errors import NEEDS
from gemmrepro.gpu import baselines, ranges
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.gpu.ranges import CuptiError, RangeProfiler, Reading
from gemmrepro.measure.columns import (
    COUNTER_COLUMNS,
    READING_COLUMNS,
    REGIME_SAMPLE_COLUMNS,
    SAMPLE_COLUMNS,
    SUMMARY_COLUMNS,
)
from gemmrepro.measure.passes import Passes, Set
from gemmrepro.measure.plan import Point, Skipped
from gemmrepro.measure.prepare import Check, Round, Sweep
from gemmrepro.measure.recording import COUNTERS, RUN, SAMPLES, SUMMARY
from gemmrepro.measure.regimes import Block
from gemmrepro.measure.rows import RegimePoint, Subject, by_point, rate_cells, ratio_cells, regime_cells, time_cells
from gemmrepro.measure.rows import write_regimes as write_files
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Problem, Shape, shape_of
from gemmrepro.registry import Kernel
from gemmrepro.registry.keys import run_key
from gemmrepro.timing import Timer


@dataclass(frozen=True)
class Measured:
    """A point with its rounds in the journal, by number; at least one."""

    point: Point
    rounds: dict[int, Round]

    @property
    def times(self) -> list[list[float]]:
        """Its samples in µs, by round."""
        return [measured.times for measured in self.rounds.values()]

    @property
    def baseline(self) -> list[list[float]]:
        """The baseline's samples in µs, by round, paired with `times`."""
        return [measured.baseline for measured in self.rounds.values()]


def gather(sweep: Sweep) -> list[Measured]:
    """Every point that has rounds in the journal, and whose subject was judged wrong neither before nor after them."""
    gathered = []
    for point in filter(sweep.passed, sweep.points):
        numbered = ((number, sweep.round(point, number)) for number in range(sweep.settings.rounds))
        rounds = {number: measured for number, measured in numbered if measured is not None}
        if rounds:
            gathered.append(Measured(point, rounds))
    return gathered


def point_cells(sweep: Sweep, point: Point) -> dict[str, Any]:
    """The cells of `ROW` and `SAMPLE` that name what ran on which problem."""
    kernel = sweep.kernels.get(point.kernel)
    return {
        "kernel": point.kernel,
        "toolkit": point.toolkit,
        "dtype": point.problem.dtype_in,
        **asdict(point.shape),
        "d": kernel.compute.d if kernel else None,
        "build_key": sweep.build_key(point),
    }


def subject_cells(sweep: Sweep, point: Point, median_us: float) -> dict[str, Any]:
    """The cells of `ROW` that follow from a point's subject, and its rates; whatever the cache state or the regime."""
    kernel = sweep.kernels.get(point.kernel)
    check = sweep.check(point) or Check(passed=True)
    return {
        **point_cells(sweep, point),
        "family": sweep.family,
        "rung": kernel.rung if kernel else baselines.baseline(point.kernel).rung,
        "arch": sweep.loaded[kernel.id, point.toolkit].arch if kernel else sweep.session.gpu.arch,
        "err_scaled_max": check.err_scaled_max,
        "err_fro": check.err_fro,
        "run_key": sweep.run_key(point),
        "status": "current",
        **rate_cells(median_us, *operands.work(kernel or compared_with(sweep, point), point.shape)),
    }


def summary_row(sweep: Sweep, measured: Measured) -> dict[str, Any]:
    """The summary row of a point, with the columns of `ROW`."""
    point = measured.point
    cells = time_cells(measured.times)
    return {
        **subject_cells(sweep, point, cells["median_us"]),
        "cache": point.cache,
        "baseline": point.baseline or None,
        **cells,
        **timing.summarize_sensors([reading for single in measured.rounds.values() for reading in single.sensors]),
        **(ratio_cells(measured.times, measured.baseline) if point.baseline else {}),
    }


def compared_with(sweep: Sweep, point: Point) -> Kernel:
    """A kernel that is compared with this baseline on this problem."""
    wanted = (point.kernel, point.problem)
    return next(kernel for kernel in sweep.kernels.values() if (kernel.timing.baseline, kernel.problem) == wanted)


def samples_frame(sweep: Sweep, results: Sequence[Measured]) -> pd.DataFrame:
    """Every sample, with the columns of `SAMPLE`."""
    frames = []
    for result in results:
        cells = {**point_cells(sweep, result.point), "cache": result.point.cache}
        for number, measured in result.rounds.items():
            times = {"time_us": measured.times, "baseline_us": measured.baseline or math.nan}
            frames.append(pd.DataFrame({**cells, "round": number, "index": range(len(measured.times)), **times}))
    if not frames:
        return pd.DataFrame(columns=SAMPLE_COLUMNS)
    return pd.concat(frames, ignore_index=True).astype({"d": "Int64"})[SAMPLE_COLUMNS]


def wrong(sweep: Sweep) -> list[Skipped]:
    """The subjects without rows because they were judged wrong, before or after they were timed."""
    checks = {point.subject: sweep.check(point) for point in sweep.points}
    return [
        Skipped(kernel, toolkit, f"{'' if check.message.startswith(NEEDS) else 'wrong at '}{shape}: {check.message}")
        for (kernel, toolkit, _, shape), check in checks.items()
        if check is not None and not check.passed
    ]


def circumstances(
    sweep: Sweep, binaries: Iterable[tuple[str, str]], config: Mapping[str, Any], skipped: Iterable[Skipped]
) -> dict[str, Any]:
    """Facts of run.json on any measurement on this GPU; `binaries` (kernel, toolkit) are those that were launched."""
    return {
        "source": "live",
        "gpu": sweep.session.gpu.describe(),
        "libraries": libraries(sweep.versions),
        "toolkits": {
            toolkit: read_build(sweep.kernels[kernel], sweep.build, toolkit).toolkit_version
            for kernel, toolkit in binaries
        },
        "git_commit": git_commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "config": config,
        "baseline_algorithms": {
            baselines.place(name, problem, shape): baselines.algorithm_name(sweep.session, name, problem, shape, chosen)
            for (name, problem, shape), chosen in _chosen(sweep).items()
            if chosen is not None
        },
        "skipped": [asdict(entry) for entry in skipped],
    }


def _chosen(sweep: Sweep) -> dict[tuple[str, Problem, Shape], int | None]:
    """The libraries' calls, each with the number of the algorithm that its trial chose; None if it has no choice."""
    checks = {
        (point.kernel, point.problem, point.shape): sweep.check(point)
        for point in sweep.points
        if point.toolkit == LIBRARY
    }
    return {call: check.algorithm if check else None for call, check in checks.items()}


def baseline_kernels(sweep: Sweep) -> dict[str, str]:
    """Names of the GPU kernels behind the baselines, from the journal or by asking the profiler once."""
    wanted = [(*call, chosen) for call, chosen in _chosen(sweep).items()]
    named = [[name, str(problem), shape.n, chosen] for name, problem, shape, chosen in wanted]
    identity = {**sweep.machine, "versions": dict(sweep.versions), "wanted": named}
    names = sweep.journal.get("baseline-kernels", identity)
    if names is None:
        names = dict(baselines.gpu_kernel_names(wanted))
        sweep.journal.put("baseline-kernels", identity, names)
    return names


def write(sweep: Sweep, out: Path) -> None:
    """Write summary.csv, samples.parquet and run.json into `out`."""
    results = gather(sweep)
    rows = [summary_row(sweep, result) for result in results]
    write_atomic(out / SUMMARY, csv_text(rows, SUMMARY_COLUMNS))
    write_atomic(out / SAMPLES, parquet(samples_frame(sweep, results)))
    modes: dict[str, list[str]] = {}
    for result in results:
        modes.setdefault(next(iter(result.rounds.values())).mode, []).append(str(result.point))
    config = {**sweep.settings.document, "caches": list(sweep.settings.caches)}
    run = circumstances(sweep, sweep.loaded, config, (*sweep.skipped, *wrong(sweep)))
    write_json(out / RUN, {**run, "baseline_kernels": baseline_kernels(sweep), "timing_modes": modes})


def write_counters(sweep: Sweep, out: Path, say: Callable[[str], None]) -> None:
    """Write counters.csv: hardware counters of every binary at the configured sizes that it accepts, read once."""
    runs = [
        (sweep.loaded[binary], shape)
        for binary in sweep.loaded
        for shape in dict.fromkeys(shape_of(sweep.kernels[binary[0]].compute.op, n) for n in sweep.settings.counters)
        if sweep.kernels[binary[0]].takes(shape)
    ]
    named = [
        [loaded.kernel.id, loaded.toolkit, str(shape), run_key(loaded.kernel, loaded.build_key, shape)]
        for loaded, shape in runs
    ]
    identity = {**sweep.machine, "runs": named}
    document = sweep.journal.get("counters", identity)
    if document is None:
        rows, reason = collect(sweep.session, runs)
        document = {"rows": rows}
        if reason:
            say(f"no hardware counters: {reason}")
        else:
            sweep.journal.put("counters", identity, document)
    write_atomic(out / COUNTERS, csv_text(document["rows"], COUNTER_COLUMNS))


# The regimes

Tables = tuple[list[dict[str, Any]], pd.DataFrame, pd.DataFrame, list[Skipped]]
"""Rows of the regimes, the samples and the readings behind them, and what has none."""


def regime_tables(sweep: Sweep, passes: Passes) -> Tables:
    """The measurements in the regimes, all from the journal."""
    samples, readings, blocks = [], [], Counter[tuple[Set, str]]()
    skipped = [*sweep.skipped, *wrong(sweep)]
    for pair in passes.wanted:
        visits = passes.visits(pair)
        if visits is None:
            place = f"{pair.members} {pair.regime}, pair {pair.number + 1}"
            skipped.append(Skipped(sweep.family, "", f"the time limit ended before all its passes: {place}"))
        for visit in visits or ():
            point = pair.members.subjects[visit.subject]
            if not sweep.passed(point):
                continue  # what was judged wrong, before or after it was timed, has no rows
            cells = {**_cells(pair.regime, point), "block": blocks[pair.members, pair.regime]}
            blocks[pair.members, pair.regime] += 1
            of_block = _taken(cells, visit.block, sweep.build_key(point))
            samples += of_block[0]
            readings += of_block[1]
    frames = pd.DataFrame(samples, columns=REGIME_SAMPLE_COLUMNS), pd.DataFrame(readings, columns=READING_COLUMNS)
    frames[1]["throttle"] = frames[1]["throttle"].astype("Int64")
    measured = by_point(*frames)
    rows = [
        _regime_row(sweep, members, regime, point, measured)
        for members, regime in blocks
        for point in members.subjects
        if _key(regime, point) in measured
    ]
    return rows, *frames, skipped


def write_regimes(sweep: Sweep, passes: Passes, out: Path) -> int:
    """Write the files of the regimes into `out`; returns the number of rows."""
    rows, samples, readings, skipped = regime_tables(sweep, passes)
    binaries = {
        point.subject[:2] for members in passes.members for point in members.subjects if point.toolkit != LIBRARY
    }
    run = circumstances(sweep, sorted(binaries), dict(passes.settings.document), skipped)
    write_files(out, rows, samples, readings, {**run, "baseline_kernels": baseline_kernels(sweep)})
    return len(rows)


def _cells(regime: str, point: Point) -> dict[str, Any]:
    """The cells of REGIME_POINT, in its order."""
    problem, shape = point.problem, point.shape
    return {
        "kernel": point.kernel,
        "toolkit": point.toolkit,
        "dtype": problem.dtype_in,
        "dtype_out": problem.dtype_out,
        "layout": problem.layout,
        **asdict(shape),
        "regime": regime,
    }


def _key(regime: str, point: Point) -> RegimePoint:
    return tuple(map(str, _cells(regime, point).values()))


def _taken(cells: dict[str, Any], block: Block, build_key: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of samples.parquet and of readings.parquet of a block."""
    first = block.readings[0]

    def rounded(value: float | None) -> float:
        return math.nan if value is None else round(float(value), 3)

    ready = {"ready": int(block.ready), "build_key": build_key}
    samples = [
        {**cells, **ready, "index": index, "launches": chunk.launches, "time_us": chunk.time_us}
        for index, chunk in enumerate(block.chunks)
    ]
    readings = [
        {
            **cells,
            "index": index,
            "at_s": round(reading.at_s - first.at_s, 6),
            **{name: rounded(getattr(reading, name)) for name in ("clock_mhz", "power_w", "temp_c")},
            "throttle": reading.throttle,
            "energy_j": rounded(None if reading.energy_j is None else reading.energy_j - (first.energy_j or 0.0)),
        }
        for index, reading in enumerate(block.readings)
    ]
    return samples, readings


def _regime_row(
    sweep: Sweep, members: Set, regime: str, point: Point, measured: dict[RegimePoint, Subject]
) -> dict[str, Any]:
    kernel, baseline = sweep.kernels.get(point.kernel), None
    if kernel is not None and kernel.timing.baseline:
        library = next(other for other in members.subjects if other.kernel == kernel.timing.baseline)
        compared = measured.get(_key(regime, library))
        baseline = compared.blocks if compared else None
    cells = regime_cells(regime, measured[_key(regime, point)].blocks, baseline)
    return {
        **subject_cells(sweep, point, cells["median_us"]),
        **_cells(regime, point),
        "cache": "warm",
        "baseline": kernel.timing.baseline if kernel and baseline is not None else None,
        **cells,
    }


TIME = "gpu__time_duration.sum"

LAUNCH = "launch__"
"""Metrics of a launch that are computed, not counted, begin with this."""


def collect(session: Session, runs: Sequence[tuple[Loaded, Shape]]) -> tuple[list[dict[str, Any]], str]:
    """Read METRICS of runs of loaded kernels: rows of counters.csv, and why some or all runs have none, or ""."""
    rows: list[dict[str, Any]] = []
    if not runs:
        return rows, ""
    timer = Timer(session)
    try:
        with RangeProfiler(ranges.load(), [metric for metric in METRICS if not metric.startswith(LAUNCH)]) as profiler:
            for loaded, shape in runs:
                rows += _rows(loaded, shape, {**_counted(profiler, timer, loaded, shape), **launched(loaded, shape)})
    except CuptiError as error:
        return rows, str(error)
    return rows, ""


def _counted(profiler: RangeProfiler, timer: Timer, loaded: Loaded, shape: Shape) -> dict[str, Reading]:
    """The counters of a run of the kernel, on random data. Raises CuptiError."""
    inputs, output = random(loaded.kernel.problem, shape, secrets.randbits(31))
    call = loaded.bind(Operands.of(loaded.kernel, shape, inputs, output))

    def run() -> None:
        call()
        timer.session.sync()

    def flush() -> None:
        timer.flush()
        timer.session.sync()

    run()  # loads the code
    return combined(profiler.read(flush, run))


def combined(launches: Sequence[Mapping[str, Reading]]) -> dict[str, Reading]:
    """The readings of a run's launches as one: sums, or means by time; a launch without a metric does not count."""
    found = {}
    for metric in dict.fromkeys(metric for launch in launches for metric in launch):
        read = [launch for launch in launches if metric in launch]
        values = [launch[metric].value for launch in read]
        if metric.endswith((".sum", "_elapsed.max")):
            value = math.fsum(values)
        else:
            weights = [launch[TIME].value if TIME in launch else 1.0 for launch in read]
            value = math.fsum(map(math.prod, zip(values, weights, strict=True))) / math.fsum(weights)
        found[metric] = Reading(value, read[0][metric].unit)
    return found


def launched(loaded: Loaded, shape: Shape) -> dict[str, Reading]:
    """The metrics of the launch, where a run is one launch whose threads the registry knows."""
    held = loaded.occupancy(shape)
    if held is None:
        return {}
    return {
        "launch__occupancy_limit_registers": Reading(held.by_registers, "block"),
        "launch__occupancy_limit_shared_mem": Reading(held.by_shared_memory, "block"),
        "launch__waves_per_multiprocessor": Reading(held.waves, ""),
    }


def _rows(loaded: Loaded, shape: Shape, readings: Mapping[str, Reading]) -> list[dict[str, Any]]:
    return [
        {
            "kernel": loaded.kernel.id,
            "toolkit": loaded.toolkit,
            **asdict(shape),
            "metric": metric,
            "value": int(reading.value) if float(reading.value).is_integer() else reading.value,
            "unit": reading.unit,
            "build_key": loaded.build_key,
            "run_key": run_key(loaded.kernel, loaded.build_key, shape),
            "status": "current",
        }
        for metric, reading in readings.items()
    ]
