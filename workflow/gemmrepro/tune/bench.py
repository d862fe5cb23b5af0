"""The search for the best candidate of a tunable on a GPU, by successive halving.

Candidates that spill or do not fit the GPU are left out. The rest are timed: all of them briefly at the first size, the
best third at every size, the best five in rounds on fresh data. The score is the geometric mean over the sizes of
baseline time over kernel time.

Timing is warm, alternates with the baseline, and uses operands on which the result has just been checked. Candidates go
through the numerical gate's large cases (guard bands and repeated launches included) only after a brief timing, because
the gate takes longer.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from gemmrepro import operands, stats, timing
from gemmrepro.core.architectures import pick_arch
from gemmrepro.core.files import csv_text, write_atomic, write_json
from gemmrepro.core.journal import Journal, fresh_seeds
from gemmrepro.errors import UserError
from gemmrepro.gates.gate import Gate
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import baselines, device
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.workspace import Workspace
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.tune.candidates import FOOTPRINT, Broken, Limits, Listing, marker, say, suspect

PROTOCOL = 1
"""Increment it when the meaning of a sample or a verdict changes: older journal entries then no longer count."""

FINALISTS = 5
"""The fewest candidates that take part in a step, if there are as many."""


@dataclass(frozen=True)
class Stage:
    """One step of the search.

    Attributes:
        share: fraction of the previous ranking that takes part; at least FINALISTS candidates do.
        every_size: whether every size or only the first is timed.
        judged: whether candidates must pass the numerical gate's large cases first.
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
    """What one stage measured at one size: times in µs, the ratio baseline time / kernel time, the sensors' summary."""

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
"""Times candidates in a stage at some sizes; leaves out those that turn out wrong."""


def successive_halving(candidates: Iterable[str], sizes: Sequence[int], measure: Measure) -> dict[str, Standing]:
    """The standing of each candidate, best first, after successive halving over STAGES."""
    standings: dict[str, Standing] = {}
    waiting = list(candidates)
    for stage in STAGES:
        entrants = waiting[: stage.entrants(len(waiting))]
        measured = measure(stage, entrants, sizes if stage.every_size else sizes[:1]) if entrants else {}
        reached = {name: Standing(stage.name, points) for name, points in measured.items()}
        waiting = sorted(reached, key=lambda name: (-reached[name].score, name))
        behind = {name: standing for name, standing in standings.items() if name not in entrants}
        standings = {name: reached[name] for name in waiting} | behind
    return standings


class Bench:
    """The candidates of one tunable on one open GPU, with their verdicts and samples in a journal.

    An entry of the journal counts only for the machine, binary and baseline that it was made with.
    """

    def __init__(self, session: device.Session, listing: Listing, journal: Path) -> None:
        """Open the journal, and leave out the candidate that broke the process before this one.

        Raises:
            UserError: the candidates were compiled for another GPU, or there is no baseline to compare them with.
        """
        sample = next(iter(listing.candidates.values())).kernel
        self.session, self.listing = session, listing
        if not sample.problem.operation.matrix_product or sample.timing.baseline is None:
            raise UserError(f"{sample.id} is no GEMM with a baseline, and tuning scores a candidate against one.")
        _check_runs_here(listing, session)
        self.baseline = baselines.baseline(sample.timing.baseline)
        self.baseline_version = self.baseline.version(session)
        self._journal, self._machine = Journal(journal, session.gpu.machine, say), session.gpu.machine
        self._problem = sample.problem
        self._load = cache(self._loaded)
        name, _, reason = suspect(journal).partition(" ")
        if reason and name in listing.candidates:
            self._reject(name, reason)
        marker(journal).unlink(missing_ok=True)

    def verdict(self, name: str) -> str | None:
        """What is wrong with a candidate; '' if it is correct, None if it was not judged yet."""
        entry = self._journal.get(f"{name}.verdict", self._identity(name))
        return None if entry is None else entry["message"]

    def _reject(self, name: str, message: str) -> None:
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": message})
        say(f"left out: {self.listing.candidates[name]}: {message}")

    def _identity(self, name: str) -> dict[str, Any]:
        return {**self._machine, "build_key": self.listing.compiled[name].build_key, "protocol": PROTOCOL}

    def _round(self, stage: Stage, name: str, size: int, number: int) -> tuple[str, dict[str, Any]]:
        """Name and identity of the entry of one round."""
        plan = [stage.plan.interval, stage.plan.seconds, stage.plan.least, stage.plan.most]
        identity = {**self._identity(name), "baseline": self.baseline_version, "plan": plan}
        return f"{name}.{stage.name}.{size}.r{number}", identity

    def _point(self, stage: Stage, name: str, size: int) -> Point:
        """All rounds of a stage together; each must have been timed."""
        found = (self._journal.get(*self._round(stage, name, size, number)) for number in range(stage.rounds))
        rounds = [entry for entry in found if entry]
        times, baseline = [entry["times"] for entry in rounds], [entry["baseline"] for entry in rounds]
        return Point(
            stats.rounds_interval(times).value,
            stats.rounds_interval(baseline).value,
            stats.ratio_interval(baseline, times),
            timing.summarize_sensors([reading for entry in rounds for reading in entry["sensors"]]),
        )

    def judge(self, names: Sequence[str]) -> list[str]:
        """The candidates of `names` that pass the numerical gate's large cases, with fresh seeds."""
        gate, seeds, start = Gates().of(self._problem.op), fresh_seeds(1), time.monotonic()
        for name in names:
            if self.verdict(name) is None and self._attempt(name, partial(self._judge, name, gate, seeds)):
                self._journal.put(f"{name}.verdict", self._identity(name), {"message": ""})
        correct = [name for name in names if self.verdict(name) == ""]
        say(f"{len(correct)} of these {len(names)} are correct; judged in {time.monotonic() - start:.0f} s")
        return correct

    def measure(self, stage: Stage, names: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, Point]]:
        """See `Measure`."""
        if stage.judged:
            names = self.judge(names)
        start = time.monotonic()
        for number in range(stage.rounds):
            for size in sizes:
                self._time(stage, number, size, names)
        points = {
            name: {size: self._point(stage, name, size) for size in sizes} for name in names if not self.verdict(name)
        }
        best = max((Standing(stage.name, by_size).score for by_size in points.values()), default=math.nan)
        say(f"{stage.name}: {len(points)} timed in {time.monotonic() - start:.0f} s; the best is at {best:.4f}")
        return points

    def _attempt(self, name: str, work: Callable[[], str]) -> bool:
        """Run `work` on a candidate, which may fail in any way. Returns whether it succeeded.

        Args:
            work: returns an error message, or '' on success.

        Raises:
            Broken: the GPU cannot be used by this process any more; the candidate is left out.
        """
        at_work = marker(self._journal.folder)
        write_atomic(at_work, name)
        try:
            message = work()
        except OSError:  # a full disk is not the candidate's fault
            at_work.unlink()
            raise
        except Exception as error:
            message = str(error) or type(error).__name__
        if message:
            self._reject(name, message)
            try:
                self.session.sync()
            except UserError:
                raise Broken from None
        at_work.unlink()
        return not message

    @cached_property
    def _timer(self) -> timing.Timer:
        return timing.Timer(self.session)

    def _loaded(self, name: str) -> Loaded:
        path = self.listing.binary(name)
        if not path.is_file():
            raise UserError(f"{path} is missing; run the compile step again.")
        return Loaded.from_file(self.session, self.listing.candidates[name].kernel, path, self.listing.toolkit)

    def _judge(self, name: str, gate: Gate, seeds: Sequence[int]) -> str:
        """Judge a candidate on the large cases; returns what is wrong with it, or ''."""
        loaded = self._load(name)

        def launch(operands: Operands) -> None:
            loaded.bind(operands)()

        for judged in gate.large_cases(self.session, loaded.kernel, launch, seeds):
            if not judged.verdict.passed:
                return f"wrong at {judged.case.shape}: {judged.verdict.message}"
        return ""

    def _time(self, stage: Stage, number: int, size: int, names: Sequence[str]) -> None:
        """Time those of `names` that the journal lacks, at one size, in a new random order, on new random operands."""
        entries = {name: self._round(stage, name, size, number) for name in names if not self.verdict(name)}
        untimed = [name for name, entry in entries.items() if self._journal.get(*entry) is None]
        if not untimed:
            return
        # All candidates of a tunable compute the same problem, and share operands.
        workspace = Workspace(self.session, self._problem, Shape.cube(size), fresh_seeds(1)[0])
        library = self.baseline.bind(self.session, workspace.operands(None))
        check = workspace.check(library, self._timer)
        if not check.passed:
            raise UserError(f"{self.baseline.id} is wrong at {size} ({check.message}); nothing is compared with it.")

        def time_one(name: str) -> str:
            loaded = self._load(name)
            call = loaded.bind(workspace.operands(loaded.kernel))
            own = workspace.check(call, self._timer)
            if not own.passed:
                return f"wrong at {size}: {own.message}"
            estimates = (own.estimate_us, check.estimate_us)
            graphs = timing.wants_graphs(*estimates)
            burst = self._timer.burst([call], [library], "warm", stage.plan, estimates, graphs)
            times, beside = ([round(time, 4) for time in side] for side in (burst.times, burst.baseline))
            self._journal.put(*entries[name], {"times": times, "baseline": beside, "sensors": burst.sensors})
            return ""

        for name in random.sample(untimed, len(untimed)):
            self._attempt(name, partial(time_one, name))


def _check_runs_here(listing: Listing, session: device.Session) -> None:
    """Raises UserError if the candidates were compiled for another GPU or need a newer driver."""
    gpu = session.gpu
    if pick_arch([f"sm_{listing.target}"], gpu.compute_capability) is None:
        raise UserError(
            f"the candidates of {listing.tunable.id} were compiled for sm_{listing.target} and this is the "
            f"{gpu.name} ({gpu.arch}); compile them with --arch {gpu.arch[3:]}."
        )
    if int(listing.toolkit_version.split(".")[0]) > gpu.driver_cuda[0]:
        raise UserError(
            f"driver {gpu.driver} is too old for what CUDA {listing.toolkit_version} compiled; update it, "
            "or compile the candidates with an older toolkit."
        )


def search(bench: Bench, sizes: Sequence[int], out: Path) -> None:
    """Find the best candidate; writes the table of all of them as CSV beside `out`, and then the result as JSON.

    Raises:
        UserError: no candidate could be timed.
    """
    listing, shapes, limits = bench.listing, [Shape.cube(size) for size in sizes], Limits.here()
    tunable, gpu, table = listing.tunable, bench.session.gpu, out.with_suffix(".csv")
    left_out = {name: reason for name in listing.candidates if (reason := listing.unfit(name, shapes, limits))}
    fitting = [name for name in listing.candidates if name not in left_out]
    say(f"{tunable.id}: {len(fitting)} of {len(listing.candidates)} candidates compile without spills and fit the GPU")
    standings = successive_halving(fitting, sizes, bench.measure)
    left_out |= {name: message for name in fitting if (message := bench.verdict(name))}
    write_atomic(table, _table(listing, standings, left_out))
    if not standings:
        raise UserError(f"no candidate of {tunable.id} could be timed; {table} says why for each.")
    finalists = [name for name, standing in standings.items() if standing.stage == STAGES[-1].name]
    winner, *others = (_finalist(listing, name, standings[name]) for name in finalists)
    counts = {
        "candidates": len(listing.candidates),
        "compiled": sum(compiled.error is None for compiled in listing.compiled.values()),
        "fitting": len(fitting),
        "right": sum(bench.verdict(name) == "" for name in fitting),
        "timed": len(standings),
    }
    result = {
        "kernel": tunable.id,
        "gpu": {"name": gpu.name, "slug": gpu.slug},
        "driver": gpu.driver,
        **{name: getattr(listing, name) for name in ("toolkit", "toolkit_version", "target")},
        "baseline": {"id": bench.baseline.id, "version": bench.baseline_version},
    }
    write_json(out, {**result, "count": counts, "winner": winner, "others": others})
    ratios = ", ".join(f"{point['ratio']} at {size}" for size, point in winner["sizes"].items())
    say(f"{tunable.id}: the best is {listing.candidates[finalists[0]]}: {ratios} of {bench.baseline_version}")


def _table(listing: Listing, standings: Mapping[str, Standing], left_out: Mapping[str, str]) -> str:
    """One row per candidate as CSV: the best first, then those left out."""
    sizes = sorted({size for standing in standings.values() for size in standing.points})
    rows = []
    for name in dict.fromkeys([*standings, *listing.candidates]):
        compiled, standing = listing.compiled[name], standings.get(name)
        row: dict[str, Any] = {**compiled.params, "build_key": compiled.build_key, "left_out": left_out.get(name)}
        row |= {each: getattr(compiled, each) for each in FOOTPRINT}
        if standing:
            row |= {"stage": standing.stage, "score": standing.score}
            for size, point in standing.points.items():
                row |= {f"us_{size}": point.time_us, f"ratio_{size}": point.ratio.value}
        rows.append(row)
    measured = [column for size in sizes for column in (f"us_{size}", f"ratio_{size}")]
    return csv_text(rows, [*listing.tunable.space, *FOOTPRINT, "stage", "score", *measured, "left_out", "build_key"])


def _finalist(listing: Listing, name: str, standing: Standing) -> dict[str, Any]:
    """A finalist's entry in the result file; times in µs."""
    kernel = listing.candidates[name].kernel
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
    return {"params": dict(listing.candidates[name].params), "score": round(standing.score, 4), "sizes": sizes}
