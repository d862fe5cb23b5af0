"""Measure one family in the regimes of `gemmrepro.measure.regimes`: sustained, and in bursts.

    python -m gemmrepro.measure.sweep_regimes --family hopper --config results/config.json --build results/build \\
        --gates results/gates --journal results/sweep/regimes/hopper --out results/regimes/hopper

A subject is timed only if its result is right, as in the sweep. A finished pair of passes over a set is kept in the
journal; a killed run continues behind it.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import read_json
from gemmrepro.core.journal import UNFINISHED, card_of, end_with_parent, sayer
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import run_stage
from gemmrepro.gpu import device, lock
from gemmrepro.measure.columns import READING_COLUMNS, REGIME_SAMPLE_COLUMNS, RegimeRow
from gemmrepro.measure.derived import regime_cells
from gemmrepro.measure.passes import GpuDevice, Passes, RegimeSettings, Set, sets
from gemmrepro.measure.plan import Point, Settings, Skipped
from gemmrepro.measure.prepare import Sweep, prepare, timed_kernels
from gemmrepro.measure.regimes import Block
from gemmrepro.measure.results import baseline_kernels, circumstances, subject_cells, wrong
from gemmrepro.measure.rows import RegimePoint, Subject, by_point, write_no_regimes, write_regimes

say = sayer("regimes")

LEFT_OUT = "the time limit ended before all its passes"


def write(sweep: Sweep, passes: Passes, out: Path) -> int:
    """Write the files of the regimes into `out`, all from the journal; returns the number of rows."""
    samples, readings, blocks = [], [], dict[tuple[Set, str], int]()
    skipped = [*sweep.skipped, *wrong(sweep)]
    for pair in passes.wanted:
        visits = passes.visits(pair)
        if visits is None:
            place = f"{pair.members} {pair.regime}, pair {pair.number + 1}"
            skipped.append(Skipped(sweep.family, "", f"{LEFT_OUT}: {place}"))
            continue
        for visit in visits:
            point = pair.members.subjects[visit.subject]
            if not sweep.records.passed(point):
                continue  # what was judged wrong, before or after it was timed, has no rows
            number = blocks.get((pair.members, pair.regime), 0)
            blocks[pair.members, pair.regime] = number + 1
            cells = {**_cells(pair.regime, point), "block": number}
            samples += _samples(cells, visit.block, sweep.records.build_key(point))
            readings += _readings(cells, visit.block)
    frames = pd.DataFrame(samples, columns=REGIME_SAMPLE_COLUMNS), pd.DataFrame(readings, columns=READING_COLUMNS)
    frames[1]["throttle"] = frames[1]["throttle"].astype("Int64")
    measured = by_point(*frames)
    rows = [
        asdict(_row(sweep, members, regime, point, measured))
        for members, regime in blocks
        for point in members.subjects
        if _key(regime, point) in measured
    ]
    launched = {point.subject[:2] for members in passes.members for point in members.subjects}
    binaries = sorted(binary for binary in launched if binary[1] != LIBRARY)
    run = circumstances(sweep, binaries, dict(passes.settings.document), skipped)
    write_regimes(out, rows, *frames, {**run, "baseline_kernels": baseline_kernels(sweep)})
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
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "regime": regime,
    }


def _key(regime: str, point: Point) -> RegimePoint:
    return tuple(map(str, _cells(regime, point).values()))


def _samples(cells: dict[str, Any], block: Block, build_key: str) -> list[dict[str, Any]]:
    """Rows of samples.parquet."""
    return [
        {
            **cells,
            "ready": int(block.ready),
            "index": index,
            "launches": chunk.launches,
            "time_us": chunk.time_us,
            "build_key": build_key,
        }
        for index, chunk in enumerate(block.chunks)
    ]


def _readings(cells: dict[str, Any], block: Block) -> list[dict[str, Any]]:
    """Rows of readings.parquet."""
    first = block.readings[0]

    def rounded(value: float | None) -> float:
        return math.nan if value is None else round(float(value), 3)

    return [
        {
            **cells,
            "index": index,
            "at_s": round(reading.at_s - first.at_s, 6),
            "clock_mhz": rounded(reading.clock_mhz),
            "power_w": rounded(reading.power_w),
            "temp_c": rounded(reading.temp_c),
            "throttle": reading.throttle,
            "energy_j": rounded(None if reading.energy_j is None else reading.energy_j - (first.energy_j or 0.0)),
        }
        for index, reading in enumerate(block.readings)
    ]


def _row(sweep: Sweep, members: Set, regime: str, point: Point, measured: dict[RegimePoint, Subject]) -> RegimeRow:
    kernel, baseline = sweep.kernels.get(point.kernel), None
    if kernel is not None and kernel.timing.baseline:
        library = next(other for other in members.subjects if other.kernel == kernel.timing.baseline)
        compared = measured.get(_key(regime, library))
        baseline = compared.blocks if compared else None
    cells = regime_cells(regime, measured[_key(regime, point)].blocks, baseline)
    return RegimeRow(
        **{**subject_cells(sweep, point, cells["median_us"]), **_cells(regime, point)},
        cache="warm",
        baseline=kernel.timing.baseline if kernel and baseline is not None else None,
        **cells,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.sweep_regimes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--family", required=True)
    parser.add_argument("--config", type=Path, required=True, help="the validated configuration, as JSON")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--gates", type=Path, default=Path("results/gates"))
    parser.add_argument("--journal", type=Path, required=True, help="folder of finished passes; kept between runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, help=f"stop after this many seconds, with exit code {UNFINISHED}")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    start = time.monotonic()
    config = read_json(arguments.config, "the configuration", "let the workflow write it, or see its schema")
    wanted = RegimeSettings.of(config["regimes"], arguments.family)
    kernels = timed_kernels(arguments.family, ",".join(wanted.kernels) if wanted.kernels else None)
    if not wanted.sizes or not kernels:
        write_no_regimes(arguments.out)
        say(f"{arguments.family}: the configuration has no sizes for it")
        return 0
    settings = dataclasses.replace(
        Settings.of(config["sweep"], arguments.family),
        toolkits=wanted.toolkits,
        caches=("warm",),
        sizes=wanted.sizes,
        counters=(),
    )
    end_with_parent()
    session = device.open_gpu(card_of(arguments.journal))
    with lock.exclusive(session):
        began = time.monotonic()
        sweep = prepare(session, kernels, settings, arguments.build, arguments.gates, arguments.journal, say)
        passes = Passes(sweep, wanted, sets(sweep.points, wanted.toolkits), GpuDevice(session), say)
        # The budget counts from the start, the configured minutes from when there was a GPU.
        ends = [start + arguments.budget] if arguments.budget else []
        ends += [began + 60 * wanted.minutes] if wanted.minutes else []
        complete = passes.run(min(ends, default=None))
        if not complete and arguments.budget and time.monotonic() > start + arguments.budget:
            say("the budget ended with passes left; run the same command again to continue")
            return UNFINISHED
        count = write(sweep, passes, arguments.out)
    say(f"{arguments.family}: {count} rows in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    run_stage(main)
