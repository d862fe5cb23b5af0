"""Measure one family in the regimes of `gemmrepro.measure.regimes`: sustained, and in bursts.

    python -m gemmrepro.measure.regimes.stage --family hopper --config results/config.json --build results/build \\
        --gates results/gates --journal results/sweep/regimes/hopper --out results/regimes/hopper

A subject is timed only if its result is right, as in the sweep. A finished pair of passes over a set is kept in the
journal; a killed run continues behind it.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

from gemmrepro.core.files import read_json
from gemmrepro.core.journal import UNFINISHED, card_of, end_with_parent
from gemmrepro.core.progress import notices
from gemmrepro.errors import run_stage
from gemmrepro.gpu import device, lock
from gemmrepro.measure.plan import Settings
from gemmrepro.measure.prepare import prepare, timed_kernels
from gemmrepro.measure.regimes import files, results
from gemmrepro.measure.regimes.gpu_device import GpuDevice
from gemmrepro.measure.regimes.passes import Passes
from gemmrepro.measure.regimes.plan import RegimeSettings, sets

say = notices("regimes")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.regimes.stage", description=(__doc__ or "").split("\n")[0]
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
        files.write_nothing(arguments.out)
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
        count = results.write(sweep, passes, sweep.skipped, arguments.out)
    say(f"{arguments.family}: {count} rows in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    run_stage(main)
