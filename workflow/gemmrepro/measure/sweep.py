"""Measure one family: every kernel, toolkit, size and cache state, paired with its baseline, in rounds over time.

    python -m gemmrepro sweep --family ladder --config results/config.json --build results/build \\
        --gates results/gates --journal results/sweep/ladder --out results/measure/ladder

With ``--regimes`` its kernels run alone, sustained and in bursts (`gemmrepro.measure.regimes`), with a journal and an
output of their own; what is finished there is a pair of passes over a set (`gemmrepro.measure.passes`).

Each round is a process of its own and visits every point once, in random order, with fresh random inputs in freshly
allocated memory. The rounds' medians therefore vary as they would over time and between runs (see gemmrepro.stats). A
killed sweep continues from its journal, a small file per finished round of a point, which counts only for the same run
key, GPU, driver, baseline and timing settings.

GEMM is timed as C = AB (alpha = 1, beta = 0). The baseline is also a point, measured against itself: its ratio must be
1, and the width of its interval is the noise floor of every other ratio.
"""

import dataclasses
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping

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
from gemmrepro.measure.rounds import Rounds, passed
from gemmrepro.measure.rows import write_no_regimes
from gemmrepro.registry import Kernel

say = sayer("sweep")


def _round_process(arguments: Namespace, number: int, free: int) -> subprocess.Popen[str]:
    """Start a process for one round. It imports its libraries, and then waits for the seconds that it may take."""
    command = [sys.executable, "-m", "gemmrepro", "sweep", "--round", str(number), "--free", str(free)]
    for name in ("family", "config", "build", "gates", "journal", "out"):
        command += [f"--{name}", str(getattr(arguments, name))]
    if arguments.kernels:
        command += ["--kernels", arguments.kernels]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True)


def _told_to_start() -> float | None:
    """Wait in a round's process; the deadline on the clock of time.monotonic, or None.
    Raises SystemExit if the parent has cancelled the round."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    return time.monotonic() + float(line) if line.strip() else None


def run_rounds(sweep: Sweep, arguments: Namespace, deadline: float | None) -> int:
    """Measure every round that the journal lacks; returns the exit code of the last one that ran.
    Each round's process imports its libraries while the round before it is measured."""
    todo = sweep.todo()
    if len(todo) < sweep.total:
        say(f"{sweep.total - len(todo)} of {sweep.total} rounds of points are in the journal already")
    numbers = dict.fromkeys(number for number, _ in todo)
    processes = (_round_process(arguments, number, sweep.free) for number in numbers)
    current = next(processes, None)
    while current is not None:
        following = next(processes, None)
        current.communicate("\n" if deadline is None else f"{max(0.0, deadline - time.monotonic()):.1f}\n")
        if current.returncode:
            if following is not None:
                following.communicate("")
            return current.returncode
        current = following
    return 0


def one_round(arguments: Namespace, settings: Settings, chosen: Mapping[str, Kernel]) -> int:
    """Measure a round, in its own process; UNFINISHED if its time ended before."""
    end_with_parent()
    device.import_cuda()
    deadline = _told_to_start()
    session = device.open_gpu()
    free = session.free_bytes() if arguments.free is None else arguments.free
    sweep = prepare(session, chosen, settings, arguments.build, arguments.gates, arguments.journal, say, free)
    return 0 if Rounds(sweep, say).run(arguments.round, deadline) else UNFINISHED


def in_turn(arguments: Namespace, settings: Settings, chosen: Mapping[str, Kernel], deadline: float | None) -> int:
    """Time kernels in turn with their baselines; the exit code of the last round, UNFINISHED if the budget ended."""
    session = device.open_gpu(card_of(arguments.journal))
    with device.exclusive(session):
        began = time.monotonic()
        sweep = prepare(session, chosen, settings, arguments.build, arguments.gates, arguments.journal, say)
        code = run_rounds(sweep, arguments, deadline)
        if not code:
            results.write(sweep, arguments.out)
            results.write_counters(sweep, arguments.out, say)
    if not code:
        say(f"{arguments.family}: done in {time.monotonic() - began:.0f} s")
    return code


def alone(arguments: Namespace, settings: Settings, wanted: RegimeSettings, deadline: float | None) -> int:
    """Time kernels sustained and in bursts; UNFINISHED if the budget ended before all passes."""
    settings = dataclasses.replace(
        settings, toolkits=wanted.toolkits, caches=("warm",), sizes=wanted.sizes, counters=()
    )
    chosen = timed_kernels(arguments.family, arguments.kernels or ",".join(wanted.kernels or ()) or None)
    end_with_parent()
    session = device.open_gpu(card_of(arguments.journal))
    with device.exclusive(session):
        began = time.monotonic()
        sweep = prepare(session, chosen, settings, arguments.build, arguments.gates, arguments.journal, say)
        passes = Passes(sweep, wanted, sets(sweep.points, wanted.toolkits), GpuDevice(session), say)
        # The budget counts from the start, the configured minutes from when there was a GPU.
        ends = [end for end in (deadline, began + 60 * wanted.minutes if wanted.minutes else None) if end is not None]
        if not passes.run(min(ends, default=None)) and passed(deadline):
            return UNFINISHED
        count = results.write_regimes(sweep, passes, arguments.out)
    say(f"{arguments.family}: {count} rows in {time.monotonic() - began:.0f} s")
    return 0


def main(arguments: Namespace) -> int:
    """Measure a family; 75 where the budget ended first."""
    start, family = time.monotonic(), arguments.family
    if arguments.round is not None and arguments.budget is not None:
        raise UserError(
            "--budget does not apply to --round; write the seconds that the round may take to its standard input, as "
            f"in: echo {arguments.budget:g} | python -m gemmrepro sweep --round {arguments.round} ..."
        )
    registry.family(family)
    config = read_json(arguments.config, "the configuration", "let the workflow write it, or see its schema")
    settings, timed = Settings.of(config["sweep"], family), any(each.timing.timed for each in registry.kernels(family))
    deadline = None if arguments.budget is None else start + arguments.budget
    if arguments.regimes:
        wanted = RegimeSettings.of(config["regimes"], family)
        if not (wanted.sizes and timed):
            write_no_regimes(arguments.out)
            say(f"{family}: the configuration has no sizes for it")
            return 0
        code = alone(arguments, settings, wanted, deadline)
    elif not timed:
        write_nothing(arguments.out)
        say(f"{family}: only experiments run its kernels")
        return 0
    else:
        chosen = timed_kernels(family, arguments.kernels)
        if arguments.round is not None:
            return one_round(arguments, settings, chosen)
        code = in_turn(arguments, settings, chosen, deadline)
    if code == UNFINISHED:
        say(f"stopped after {time.monotonic() - start:.0f} s with points left; run the same command again to continue")
    return code
