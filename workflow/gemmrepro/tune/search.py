"""The search for the best candidate of a tunable, by successive halving, on a GPU.

What spills or does not fit the GPU is left out. The rest is timed: all of them briefly at the first size, the best
third at every size, the best five in rounds on fresh data; always warm, in turn with the baseline, on operands for
which the result was judged right just before. What fails the numerical gate's large cases (guard bands and repeated
launches included) is left out too, before the second step: that takes longer than a brief look at the time. The score
is the geometric mean over the sizes of baseline time over kernel time.

A candidate may break or hang the GPU's context; so they are measured in a process that is replaced when that happens,
and the one at fault is left out. Verdicts and samples go into a journal, a small file each (`sweep.Journal`).
"""

from __future__ import annotations

import math
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmrepro import operands, stats, timing
from gemmrepro.core import journal as core_journal
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.journal import Journal, fresh_seeds
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import baselines, device
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.workspace import Workspace
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Tunable
from gemmrepro.tune.candidates import Limits, Listing, say

PROTOCOL = 1
"""Raised when the meaning of a sample or of a verdict changes; the journal of before then counts for nothing."""

FINALISTS = 5

HANG_SECONDS = 60.0
"""No single step of a candidate takes this long; one that does will not end."""

UNFINISHED = core_journal.UNFINISHED

REPLACE = 76
"""Exit code of a measuring process whose GPU context a candidate broke."""

USAGE = ("registers", "spill_bytes", "shared_bytes")


@dataclass(frozen=True)
class Stage:
    """One step of the search.

    `share` of the ranking before takes part, but no fewer than FINALISTS; `every_size` or only the first is timed.
    Those that take part are `judged` on the numerical gate's large cases first, or not yet.
    """

    name: str
    share: float
    every_size: bool
    rounds: int
    plan: timing.Plan
    judged: bool = True

    def entrants(self, waiting: int) -> int:
        """How many of `waiting` candidates take part."""
        return min(waiting, max(FINALISTS, math.ceil(self.share * waiting)))


STAGES = (
    Stage("coarse", 1.0, False, 1, timing.Plan(interval=0.01, seconds=0.04, least=3, most=20), judged=False),
    Stage("close", 1 / 3, True, 1, timing.Plan(interval=0.005, seconds=0.25, least=5, most=50)),
    Stage("final", 0.0, True, 5, timing.Plan(interval=0.002, seconds=0.5, least=10, most=200)),
)


@dataclass(frozen=True)
class Point:
    """What one stage found at one size: times in µs, their ratio with its interval, and the sensors' summary."""

    time_us: float
    baseline_us: float
    ratio: stats.Interval
    sensors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """The last stage that a candidate took part in, and its points by size."""

    stage: str
    points: Mapping[int, Point]

    @property
    def score(self) -> float:
        """Geometric mean of the ratios: above 1 it is faster than the baseline."""
        return math.exp(math.fsum(math.log(point.ratio.value) for point in self.points.values()) / len(self.points))


Measure = Callable[[Stage, Sequence[str], Sequence[int]], Mapping[str, Mapping[int, Point]]]


def in_rounds(rounds: int) -> tuple[Stage, ...]:
    """The stages, with another number of rounds in the last one."""
    return (*STAGES[:-1], replace(STAGES[-1], rounds=rounds))


def halve(
    names: Iterable[str], sizes: Sequence[int], measure: Measure, stages: Sequence[Stage] = STAGES
) -> dict[str, Standing]:
    """Search by successive halving.

    Args:
        measure: times candidates in a stage at some sizes; leaves out those that it finds wrong.

    Returns:
        Where each candidate ended, the best first.
    """
    standings: dict[str, Standing] = {}
    waiting = list(names)
    for number, stage in enumerate(stages):
        entering = waiting[: stage.entrants(len(waiting))]
        found = measure(stage, entering, sizes if stage.every_size else sizes[:1]) if entering else {}
        standings |= {name: Standing(stage.name, points) for name, points in found.items()}
        wrong = set(entering) - set(found)
        standings = {name: standing for name, standing in standings.items() if name not in wrong}
        order = [one.name for one in stages[: number + 1]]
        standings = dict(
            sorted(standings.items(), key=lambda item: (-order.index(item[1].stage), -item[1].score, item[0]))
        )
        waiting = [name for name, standing in standings.items() if standing.stage == stage.name]
    return standings


class Unfinished(Exception):
    """The time budget ended."""


class Broken(Exception):
    """A candidate left the GPU's context unusable."""


class Bench:
    """One tunable on one open GPU: judges and times its candidates, and keeps what it found in a journal."""

    def __init__(
        self,
        session: device.Session,
        tunable: Tunable,
        listing: Listing,
        journal: Path,
        deadline: float | None = None,
    ) -> None:
        """Open the journal, and leave out the candidate that broke the process before this one.

        Raises:
            UserError: the candidates were compiled for another GPU, or there is no baseline to compare them with.
        """
        self.session, self.listing, self.deadline = session, listing, deadline
        sample = next(iter(listing.field.values())).kernel
        if not sample.problem.operation.matrix_product or sample.baseline is None:
            raise UserError(f"{tunable.id} is no GEMM with a baseline, and tuning scores a candidate against one.")
        if device.pick_arch([f"sm_{listing.target}"], session.gpu.compute_capability) is None:
            raise UserError(
                f"the candidates of {tunable.id} were compiled for sm_{listing.target} and this is the "
                f"{session.gpu.name} ({session.gpu.arch}); compile them with --arch {session.gpu.arch[3:]}."
            )
        if int(listing.toolkit_version.split(".")[0]) > session.gpu.driver_cuda[0]:
            raise UserError(
                f"driver {session.gpu.driver} is too old for what CUDA {listing.toolkit_version} compiled; update it, "
                "or compile the candidates with an older toolkit."
            )
        self.baseline = baselines.baseline(sample.baseline)
        self.baseline_version = self.baseline.version(session)
        self.problem = sample.problem
        self.machine = {"gpu": session.gpu.name, "driver": session.gpu.driver}
        self.journal = Journal(journal, self.machine, say)
        self._timer: timing.Timer | None = None
        self._loaded: dict[str, Loaded] = {}
        name, _, reason = suspect(journal).partition(" ")
        if reason and name in listing.field:
            self._reject(name, reason)
        marker(journal).unlink(missing_ok=True)

    # What is known of a candidate

    def _identity(self, name: str) -> dict[str, Any]:
        return {**self.machine, "build_key": self.listing.rows[name]["build_key"], "protocol": PROTOCOL}

    def verdict(self, name: str) -> str | None:
        """What is wrong with a candidate's numbers; empty if nothing is; None if it was not judged yet."""
        found = self.journal.get(f"{name}.verdict", self._identity(name))
        return None if found is None else found["message"]

    def _reject(self, name: str, message: str) -> None:
        self.journal.put(f"{name}.verdict", self._identity(name), {"message": message})
        say(f"left out: {self.listing.field[name]}: {message}")

    def _entry(self, stage: Stage, name: str, size: int, number: int) -> tuple[str, dict[str, Any]]:
        plan = [stage.plan.interval, stage.plan.seconds, stage.plan.least, stage.plan.most]
        return f"{name}.{stage.name}.{size}.r{number}", {
            **self._identity(name),
            "baseline": self.baseline_version,
            "plan": plan,
        }

    def _finished(self, stage: Stage, name: str, size: int, number: int) -> dict[str, Any] | None:
        return self.journal.get(*self._entry(stage, name, size, number))

    # Work on the GPU

    def _attempt(self, name: str, work: Callable[[], str]) -> bool:
        """Do something with a candidate that may go wrong in any way. Returns whether it went well.

        `work` returns what is wrong, or nothing.

        Raises:
            Unfinished: the time budget has ended.
            Broken: the GPU cannot be used by this process any more; the candidate is left out.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Unfinished
        write_atomic(marker(self.journal.folder), name)
        try:
            message = work()
        except OSError:  # a full disk is not the candidate's fault
            marker(self.journal.folder).unlink()
            raise
        except Exception as error:
            message = str(error) or type(error).__name__
        if message:
            self._reject(name, message)
            try:
                self.session.sync()
            except UserError:
                raise Broken from None
        marker(self.journal.folder).unlink()
        return not message

    def _load(self, name: str) -> Loaded:
        if name not in self._loaded:
            kernel, path = self.listing.field[name].kernel, self.listing.folder / f"{name}.fatbin"
            if not path.is_file():
                raise UserError(f"{path} is missing; run the compile step again.")
            self._loaded[name] = Loaded.from_file(self.session, kernel, path, self.listing.toolkit)
        return self._loaded[name]

    def judge(self, names: Sequence[str]) -> list[str]:
        """Which of `names` are right on the numerical gate's large cases, with fresh seeds."""
        seeds, gate = fresh_seeds(1), Gates().of(self.problem.op)

        def run(name: str) -> str:
            loaded = self._load(name)

            def launch(operands: Operands) -> None:
                loaded.bind(operands)()

            for judged in gate.large_cases(self.session, loaded.kernel, launch, seeds):
                if not judged.verdict.passed:
                    return f"wrong at {judged.case.shape}: {judged.verdict.message}"
            return ""

        start = time.monotonic()
        for name in names:
            if self.verdict(name) is None and self._attempt(name, lambda name=name: run(name)):
                self.journal.put(f"{name}.verdict", self._identity(name), {"message": ""})
        right = [name for name in names if self.verdict(name) == ""]
        say(f"{len(right)} of these {len(names)} compute right; judged in {time.monotonic() - start:.0f} s")
        return right

    def measure(self, stage: Stage, names: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, Point]]:
        """See `Measure`."""
        if stage.judged:
            names = self.judge(names)
        start = time.monotonic()
        for number in range(stage.rounds):
            for size in sizes:
                todo = [
                    name
                    for name in names
                    if not self.verdict(name) and self._finished(stage, name, size, number) is None
                ]
                if todo:
                    self._round(stage, number, size, todo)
        found = {
            name: {size: self._point(stage, name, size) for size in sizes} for name in names if not self.verdict(name)
        }
        best = max((Standing(stage.name, points).score for points in found.values()), default=math.nan)
        say(f"{stage.name}: {len(found)} timed in {time.monotonic() - start:.0f} s; the best is at {best:.4f}")
        return found

    def _round(self, stage: Stage, number: int, size: int, names: list[str]) -> None:
        """Time `names` once at one size, in an order drawn anew, on operands drawn anew."""
        if self._timer is None:
            self._timer = timing.Timer(self.session)
        timer = self._timer
        # One of each: all candidates of a tunable compute the same problem.
        workspace = Workspace(self.session, self.problem, Shape.cube(size), fresh_seeds(1)[0])
        against = self.baseline.bind(self.session, workspace.operands(None))
        base = workspace.check(against, timer)
        if not base["passed"]:
            raise UserError(f"{self.baseline.id} is wrong at {size} ({base['message']}); nothing is compared with it.")
        random.shuffle(names)

        def run(name: str) -> str:
            loaded = self._load(name)
            call = loaded.bind(workspace.operands(loaded.kernel))
            check = workspace.check(call, timer)
            if not check["passed"]:
                return f"wrong at {size}: {check['message']}"
            estimates = (check["estimate_us"], base["estimate_us"])
            graphs = timing.wants_graphs(*estimates)
            burst = timer.burst([call], [against], "warm", stage.plan, estimates, graphs)
            entry, identity = self._entry(stage, name, size, number)
            payload = {
                "times": [round(value, 4) for value in burst.times],
                "baseline": [round(value, 4) for value in burst.baseline],
                "sensors": burst.sensors,
            }
            self.journal.put(entry, identity, payload)
            return ""

        for name in names:
            self._attempt(name, lambda name=name: run(name))

    def _point(self, stage: Stage, name: str, size: int) -> Point:
        rounds = [self._finished(stage, name, size, number) for number in range(stage.rounds)]
        times, under = ([record[key] for record in rounds if record] for key in ("times", "baseline"))
        return Point(
            stats.rounds_interval(times).value,
            stats.rounds_interval(under).value,
            stats.ratio_interval(under, times),
            timing.summarize_sensors([reading for record in rounds if record for reading in record["sensors"]]),
        )


def marker(journal: Path) -> Path:
    """The file that names the candidate at work."""
    return journal / "at-work"


def suspect(journal: Path) -> str:
    """Who was at work when a process ended, and, where the supervisor knows it, why it ended; else nothing."""
    try:
        return marker(journal).read_text()
    except OSError:
        return ""


def supervise(command: Sequence[str], journal: Path, hang_seconds: float = HANG_SECONDS) -> int:
    """Run `command`, anew as often as a candidate breaks or hangs the process; returns its last exit code.

    The process that follows finds in the marker which candidate that was, and why.
    """
    while True:
        if " " not in suspect(journal):
            marker(journal).unlink(missing_ok=True)  # left by a run that somebody ended
        known = suspect(journal)
        process = subprocess.Popen(command)
        reason = ""
        while process.poll() is None:
            time.sleep(0.1)
            try:
                busy = time.time() - marker(journal).stat().st_mtime
            except OSError:
                continue
            if busy > hang_seconds and not reason and suspect(journal) != known:
                reason = f"it did not end within {hang_seconds:.0f} s"
                process.kill()
        code = process.returncode
        name = suspect(journal)
        if code != REPLACE:
            if code in (0, UNFINISHED, -signal.SIGINT, -signal.SIGTERM) or not name or name == known:
                return code
            write_atomic(marker(journal), f"{name} {reason or f'its process ended with code {code}'}")
        say("a candidate made the GPU unusable for its process; going on in a new one")


def table(tunable: Tunable, listing: Listing, standings: Mapping[str, Standing], left_out: Mapping[str, str]) -> str:
    """One row a candidate as CSV: the best first, then those left out."""
    sizes = sorted({size for standing in standings.values() for size in standing.points})
    rows = []
    for name in [*standings, *(name for name in listing.field if name not in standings)]:
        row, standing = listing.rows[name], standings.get(name)
        cells: dict[str, Any] = {**listing.field[name].params, **{key: row.get(key) for key in USAGE}}
        cells |= {"build_key": row["build_key"], "left_out": left_out.get(name)}
        if standing:
            cells |= {"stage": standing.stage, "score": standing.score}
            for size, point in standing.points.items():
                cells |= {f"us_{size}": point.time_us, f"ratio_{size}": point.ratio.value}
        rows.append(cells)
    measured = [column for size in sizes for column in (f"us_{size}", f"ratio_{size}")]
    columns = [*tunable.space, *USAGE, "stage", "score", *measured, "left_out", "build_key"]
    return csv_text(rows, columns)


def describe(listing: Listing, name: str, standing: Standing) -> dict[str, Any]:
    """What the result file says of a finalist."""
    kernel = listing.field[name].kernel
    sizes = {}
    for size, point in standing.points.items():
        flops, _ = operands.work(kernel, Shape.cube(size))
        sizes[str(size)] = {
            "tflops": round((flops or 0.0) / point.time_us * 1e-6, 2),
            "time_us": round(point.time_us, 2),
            "baseline_us": round(point.baseline_us, 2),
            "ratio": round(point.ratio.value, 4),
            "ratio_low": round(point.ratio.low, 4),
            "ratio_high": round(point.ratio.high, 4),
            **{key: point.sensors.get(key) for key in ("clock_mhz", "power_w")},
        }
    return {"params": dict(listing.field[name].params), "score": round(standing.score, 4), "sizes": sizes}


def search(
    bench: Bench, tunable: Tunable, sizes: Sequence[int], out: Path, csv: Path, stages: Sequence[Stage] = STAGES
) -> None:
    """Find the best candidate; writes the table and then the result.

    Raises:
        UserError: no candidate could be timed.
    """
    listing, shapes, limits = bench.listing, [Shape.cube(size) for size in sizes], Limits.here()
    left_out = {name: reason for name in listing.field if (reason := listing.unfit(name, shapes, limits))}
    fitting = [name for name in listing.field if name not in left_out]
    say(f"{tunable.id}: {len(fitting)} of {len(listing.field)} candidates compile without spills and fit the GPU")
    standings = halve(fitting, sizes, bench.measure, stages)
    left_out |= {name: message for name in fitting if (message := bench.verdict(name))}
    write_atomic(csv, table(tunable, listing, standings, left_out))
    if not standings:
        raise UserError(f"no candidate of {tunable.id} could be timed; {csv} says why of each.")
    finalists = [(name, standing) for name, standing in standings.items() if standing.stage == stages[-1].name]
    right = [name for name in fitting if bench.verdict(name) == ""]
    ranking = [describe(listing, *finalist) for finalist in finalists]
    refused = sum(row["error"] is not None for row in listing.rows.values())
    write_json(
        out,
        {
            "kernel": tunable.id,
            "gpu": {"name": bench.session.gpu.name, "slug": bench.session.gpu.slug},
            "driver": bench.session.gpu.driver,
            "toolkit": listing.toolkit,
            "toolkit_version": listing.toolkit_version,
            "target": listing.target,
            "baseline": {"id": bench.baseline.id, "version": bench.baseline_version},
            "count": {
                "candidates": len(listing.field),
                "compiled": len(listing.field) - refused,
                "fitting": len(fitting),
                "right": len(right),
                "timed": len(standings),
            },
            "winner": ranking[0],
            "others": ranking[1:],
        },
    )
    ratios = ", ".join(f"{point['ratio']} at {size}" for size, point in ranking[0]["sizes"].items())
    say(f"{tunable.id}: the best is {listing.field[finalists[0][0]]}: {ratios} of {bench.baseline_version}")
