"""Measure one family: every kernel, toolkit, size and cache state, paired with its baseline, in rounds over time.

    python -m gemmrepro sweep --family ladder --config results/config.json --build results/build \\
        --gates results/gates --journal results/sweep/ladder --out results/measure/ladder

With ``--regimes`` its kernels run alone, in the regimes of `gemmrepro.measure.regimes`: sustained, and in bursts. They
have a journal and an output of their own (results/sweep/regimes/ladder, results/regimes/ladder), and what is finished
there is a pair of passes over a set (`gemmrepro.measure.passes`). The rest is about a sweep without it.

Each round is a process of its own and visits every point once, in random order, with fresh random inputs in freshly
allocated memory. The rounds' medians therefore vary as they would over time and between runs, and a second sweep agrees
with the first within their intervals (see gemmrepro.stats). Each finished round of a point goes into the journal, a
folder with one small file per entry, each written atomically: a killed sweep continues where it stopped. An entry
counts only for the same run (run key), GPU, driver, baseline and timing settings.

GEMM is timed as C = AB (alpha = 1, beta = 0). The baseline is also a point, measured against itself: its ratio must be
1, and the width of its interval is the noise floor of every other ratio.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json
from gemmrepro.core.journal import UNFINISHED, card_of, end_with_parent, sayer
from gemmrepro.errors import UserError
from gemmrepro.gpu import device
from gemmrepro.measure import results
from gemmrepro.measure.passes import GpuDevice, Passes, RegimeSettings, sets
from gemmrepro.measure.plan import Settings
from gemmrepro.measure.prepare import Sweep, prepare, timed_kernels
from gemmrepro.measure.recording import write_nothing
from gemmrepro.measure.rounds import Rounds
from gemmrepro.measure.rows import write_no_regimes

say = sayer("sweep")


class RoundProcess:
    """A process that measures one round. It imports its libraries, then waits to be told to start."""

    def __init__(self, arguments: Namespace, number: int, free: int) -> None:
        command = [sys.executable, "-m", "gemmrepro", "sweep", "--round", str(number), "--free", str(free)]
        for name in ("family", "config", "build", "gates", "journal", "out"):
            command += [f"--{name}", str(getattr(arguments, name))]
        if arguments.kernels:
            command += ["--kernels", arguments.kernels]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def run(self, deadline: float | None) -> int:
        """Measure until the round is complete or `deadline`, on the clock of time.monotonic, passes; the exit code."""
        left = "" if deadline is None else f"{max(0.0, deadline - time.monotonic()):.1f}"
        self._process.communicate(f"{left}\n")
        return self._process.returncode

    def cancel(self) -> None:
        """End it before it has started."""
        self._process.communicate("")


def _told_to_start() -> float | None:
    """Wait in a round's process; the seconds that the round may take, or None.

    Raises:
        SystemExit: the parent has cancelled the round.
    """
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    return float(line) if line.strip() else None


def run_rounds(sweep: Sweep, arguments: Namespace, deadline: float | None) -> int:
    """Measure every round that the journal lacks; returns the exit code of the last one that ran.

    Each round's process imports its libraries while the round before it is measured.
    """
    todo = sweep.todo()
    if len(todo) < sweep.total:
        say(f"{sweep.total - len(todo)} of {sweep.total} rounds of points are in the journal already")
    processes = (RoundProcess(arguments, number, sweep.free) for number in dict.fromkeys(number for number, _ in todo))
    current = next(processes, None)
    while current is not None:
        following = next(processes, None)
        if code := current.run(deadline):
            if following is not None:
                following.cancel()
            return code
        current = following
    return 0


def _folders(arguments: Namespace) -> tuple[Path, Path, Path]:
    return arguments.build, arguments.gates, arguments.journal


def in_turn(arguments: Namespace, config: dict[str, Any], start: float) -> bool:
    """Time kernels in turn with their baselines; False if the budget ended before all rounds.

    Raises:
        SystemExit: a round failed; its exit code.
    """
    settings, chosen = (
        Settings.of(config["sweep"], arguments.family),
        timed_kernels(arguments.family, arguments.kernels),
    )
    deadline = None if arguments.budget is None else start + arguments.budget
    if arguments.round is not None:
        end_with_parent()
        device.import_cuda()
        seconds = _told_to_start()
        deadline = None if seconds is None else time.monotonic() + seconds
        session = device.open_gpu()
        free = session.free_bytes() if arguments.free is None else arguments.free
        sweep = prepare(session, chosen, settings, *_folders(arguments), say, free)
        raise SystemExit(0 if Rounds(sweep, say).run(arguments.round, deadline) else UNFINISHED)
    session = device.open_gpu(card_of(arguments.journal))
    with device.exclusive(session):
        began = time.monotonic()
        sweep = prepare(session, chosen, settings, *_folders(arguments), say)
        code = run_rounds(sweep, arguments, deadline)
        if code not in (0, UNFINISHED):
            raise SystemExit(code)
        if not code or arguments.partial:
            results.write(sweep, arguments.out, not arguments.no_profile)
            results.write_counters(sweep, arguments.out, say)
    if not code:
        say(f"{arguments.family}: done in {time.monotonic() - began:.0f} s")
    return not code


def alone(arguments: Namespace, config: dict[str, Any], wanted: RegimeSettings, start: float) -> bool:
    """Time kernels sustained and in bursts; False if the budget ended before all passes."""
    settings = dataclasses.replace(
        Settings.of(config["sweep"], arguments.family),
        toolkits=wanted.toolkits,
        caches=("warm",),
        sizes=wanted.sizes,
        counters=(),
    )
    chosen = arguments.kernels or (",".join(wanted.kernels) if wanted.kernels else None)
    end_with_parent()
    session = device.open_gpu(card_of(arguments.journal))
    with device.exclusive(session):
        began = time.monotonic()
        sweep = prepare(session, timed_kernels(arguments.family, chosen), settings, *_folders(arguments), say)
        passes = Passes(sweep, wanted, sets(sweep.points, wanted.toolkits), GpuDevice(session), say)
        # The budget counts from the start, the configured minutes from when there was a GPU.
        budget = None if arguments.budget is None else start + arguments.budget
        ends = [end for end in (budget, began + 60 * wanted.minutes if wanted.minutes else None) if end is not None]
        complete = passes.run(min(ends, default=None))
        if not complete and budget is not None and time.monotonic() > budget:
            return False
        count = results.write_regimes(sweep, passes, arguments.out)
    say(f"{arguments.family}: {count} rows in {time.monotonic() - began:.0f} s")
    return True


def main(arguments: Namespace) -> int:
    """Measure a family; 75 where the budget ended first."""
    start = time.monotonic()
    if arguments.round is not None and arguments.budget is not None:
        raise UserError(
            "--budget does not apply to --round; write the seconds that the round may take to its standard input, as "
            f"in: echo {arguments.budget:g} | python -m gemmrepro sweep --round {arguments.round} ..."
        )
    registry.family(arguments.family)
    config = read_json(arguments.config, "the configuration", "let the workflow write it, or see its schema")
    wanted = RegimeSettings.of(config["regimes"], arguments.family) if arguments.regimes else None
    timed = any(kernel.timing.timed for kernel in registry.kernels(arguments.family))
    if wanted is not None and not (wanted.sizes and timed):
        write_no_regimes(arguments.out)
        say(f"{arguments.family}: the configuration has no sizes for it")
        return 0
    if not timed:
        write_nothing(arguments.out)
        say(f"{arguments.family}: only experiments run its kernels")
        return 0
    done = in_turn(arguments, config, start) if wanted is None else alone(arguments, config, wanted, start)
    if not done:
        say(f"stopped after {time.monotonic() - start:.0f} s with points left; run the same command again to continue")
        return UNFINISHED
    return 0
