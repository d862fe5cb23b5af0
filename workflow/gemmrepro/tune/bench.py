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
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
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
from gemmrepro.registry import Kernel
from gemmrepro.tune.candidates import FOOTPRINT, Broken, Limits, Listing, Unfinished, marker, say, suspect

PROTOCOL = 1
"""Increment it when the meaning of a sample or a verdict changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Samples:
    """One round of one candidate at one size: times of kernel and baseline in µs, pair by pair, and sensor readings."""

    times: list[float]
    baseline: list[float]
    sensors: list[dict[str, Any]]


class Findings:
    """Verdicts and samples of one tunable on one machine, in a journal.

    An entry counts only for the machine, binary and baseline that it was made with.
    """

    def __init__(self, folder: Path, machine: Mapping[str, str], listing: Listing, baseline_version: str) -> None:
        self._machine, self._listing, self._baseline_version = dict(machine), listing, baseline_version
        self._journal = Journal(folder, self._machine, say)

    @property
    def folder(self) -> Path:
        return self._journal.folder

    def verdict(self, name: str) -> str | None:
        """What is wrong with a candidate; '' if it is correct, None if it was not judged yet."""
        entry = self._journal.get(f"{name}.verdict", self._identity(name))
        return None if entry is None else entry["message"]

    def accept(self, name: str) -> None:
        """Record that a candidate is correct."""
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": ""})

    def reject(self, name: str, message: str) -> None:
        """Record what is wrong with a candidate, and report it."""
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": message})
        say(f"left out: {self._listing.candidates[name]}: {message}")

    def add(self, stage: Stage, name: str, size: int, number: int, samples: Samples) -> None:
        """Record round `number` of a stage."""
        self._journal.put(*self._round(stage, name, size, number), asdict(samples))

    def samples(self, stage: Stage, name: str, size: int, number: int) -> Samples | None:
        """Round `number` of a stage; None if it was not timed yet."""
        entry = self._journal.get(*self._round(stage, name, size, number))
        return None if entry is None else Samples(**entry)

    def point(self, stage: Stage, name: str, size: int) -> Point:
        """All rounds of a stage together; each must have been timed."""
        timed = (self.samples(stage, name, size, number) for number in range(stage.rounds))
        rounds = [samples for samples in timed if samples]
        times, baseline = [samples.times for samples in rounds], [samples.baseline for samples in rounds]
        return Point(
            stats.rounds_interval(times).value,
            stats.rounds_interval(baseline).value,
            stats.ratio_interval(baseline, times),
            timing.summarize_sensors([reading for samples in rounds for reading in samples.sensors]),
        )

    def _identity(self, name: str) -> dict[str, Any]:
        return {**self._machine, "build_key": self._listing.compiled[name].build_key, "protocol": PROTOCOL}

    def _round(self, stage: Stage, name: str, size: int, number: int) -> tuple[str, dict[str, Any]]:
        """Name and identity of the entry of one round."""
        plan = [stage.plan.interval, stage.plan.seconds, stage.plan.least, stage.plan.most]
        identity = {**self._identity(name), "baseline": self._baseline_version, "plan": plan}
        return f"{name}.{stage.name}.{size}.r{number}", identity


FINALISTS = 5


@dataclass(frozen=True)
class Stage:
    """One step of the search.

    Attributes:
        share: fraction of the previous ranking that takes part; at least `finalists` candidates do.
        every_size: whether every size or only the first is timed.
        judged: whether candidates must pass the numerical gate's large cases first.
    """

    name: str
    share: float
    every_size: bool
    rounds: int
    plan: timing.Plan
    judged: bool = True
    finalists: int = FINALISTS

    def entrants(self, waiting: int) -> int:
        """How many of `waiting` candidates take part."""
        return min(waiting, max(self.finalists, math.ceil(self.share * waiting)))


STAGES = (
    Stage("coarse", 1.0, False, 1, timing.Plan(interval=0.01, seconds=0.04, least=3, most=20), judged=False),
    Stage("close", 1 / 3, True, 1, timing.Plan(interval=0.005, seconds=0.25, least=5, most=50)),
    Stage("final", 0.0, True, 5, timing.Plan(interval=0.002, seconds=0.5, least=10, most=200)),
)


def stages_with(rounds: int) -> tuple[Stage, ...]:
    """The stages, with another number of rounds in the last one."""
    return (*STAGES[:-1], replace(STAGES[-1], rounds=rounds))


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


def successive_halving(
    candidates: Iterable[str], sizes: Sequence[int], measure: Measure, stages: Sequence[Stage] = STAGES
) -> dict[str, Standing]:
    """The standing of each candidate, best first, after successive halving over `stages`."""
    standings: dict[str, Standing] = {}
    waiting = list(candidates)
    for number, stage in enumerate(stages):
        entrants = waiting[: stage.entrants(len(waiting))]
        measured = measure(stage, entrants, sizes if stage.every_size else sizes[:1]) if entrants else {}
        standings |= {name: Standing(stage.name, points) for name, points in measured.items()}
        wrong = set(entrants) - set(measured)
        standings = {name: standing for name, standing in standings.items() if name not in wrong}
        order = [finished.name for finished in stages[: number + 1]]
        standings = dict(
            sorted(standings.items(), key=lambda item: (-order.index(item[1].stage), -item[1].score, item[0]))
        )
        waiting = [name for name, standing in standings.items() if standing.stage == stage.name]
    return standings


class Bench:
    """The candidates of one tunable on one open GPU.

    Attributes:
        findings: what is known about them; kept in a journal.
    """

    def __init__(self, session: device.Session, listing: Listing, journal: Path, deadline: float | None = None) -> None:
        """Open the journal, and leave out the candidate that broke the process before this one.

        Args:
            deadline: when to stop, on the clock of `time.monotonic`.

        Raises:
            UserError: the candidates were compiled for another GPU, or there is no baseline to compare them with.
        """
        sample = next(iter(listing.candidates.values())).kernel
        self.session, self.listing, self.deadline = session, listing, deadline
        baseline_id = _baseline_of(sample)
        _check_runs_here(listing, session)
        self.baseline = baselines.baseline(baseline_id)
        self.baseline_version = self.baseline.version(session)
        self.findings = Findings(journal, session.gpu.machine, listing, self.baseline_version)
        self._problem = sample.problem
        self._loaded: dict[str, Loaded] = {}
        name, _, reason = suspect(journal).partition(" ")
        if reason and name in listing.candidates:
            self.findings.reject(name, reason)
        marker(journal).unlink(missing_ok=True)

    def judge(self, names: Sequence[str]) -> list[str]:
        """The candidates of `names` that pass the numerical gate's large cases, with fresh seeds."""
        gate, seeds, start = Gates().of(self._problem.op), fresh_seeds(1), time.monotonic()
        for name in names:
            if self.findings.verdict(name) is None and self.attempt(name, partial(self._judge, name, gate, seeds)):
                self.findings.accept(name)
        correct = [name for name in names if self.findings.verdict(name) == ""]
        say(f"{len(correct)} of these {len(names)} are correct; judged in {time.monotonic() - start:.0f} s")
        return correct

    def measure(self, stage: Stage, names: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, Point]]:
        """See `Measure`."""
        if stage.judged:
            names = self.judge(names)
        start = time.monotonic()
        for number in range(stage.rounds):
            for size in sizes:
                if untimed := self._untimed(stage, names, size, number):
                    self._time(stage, number, size, untimed)
        points = {
            name: {size: self.findings.point(stage, name, size) for size in sizes}
            for name in names
            if not self.findings.verdict(name)
        }
        best = max((Standing(stage.name, by_size).score for by_size in points.values()), default=math.nan)
        say(f"{stage.name}: {len(points)} timed in {time.monotonic() - start:.0f} s; the best is at {best:.4f}")
        return points

    def attempt(self, name: str, work: Callable[[], str]) -> bool:
        """Run `work` on a candidate, which may fail in any way. Returns whether it succeeded.

        Args:
            work: returns an error message, or '' on success.

        Raises:
            Unfinished: the time budget has ended.
            Broken: the GPU cannot be used by this process any more; the candidate is left out.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Unfinished
        at_work = marker(self.findings.folder)
        write_atomic(at_work, name)
        try:
            message = work()
        except OSError:  # a full disk is not the candidate's fault
            at_work.unlink()
            raise
        except Exception as error:
            message = str(error) or type(error).__name__
        if message:
            self.findings.reject(name, message)
            try:
                self.session.sync()
            except UserError:
                raise Broken from None
        at_work.unlink()
        return not message

    @cached_property
    def _timer(self) -> timing.Timer:
        return timing.Timer(self.session)

    def _load(self, name: str) -> Loaded:
        if name not in self._loaded:
            path = self.listing.binary(name)
            if not path.is_file():
                raise UserError(f"{path} is missing; run the compile step again.")
            kernel = self.listing.candidates[name].kernel
            self._loaded[name] = Loaded.from_file(self.session, kernel, path, self.listing.toolkit)
        return self._loaded[name]

    def _judge(self, name: str, gate: Gate, seeds: Sequence[int]) -> str:
        """Judge a candidate on the large cases; returns what is wrong with it, or ''."""
        loaded = self._load(name)

        def launch(operands: Operands) -> None:
            loaded.bind(operands)()

        for judged in gate.large_cases(self.session, loaded.kernel, launch, seeds):
            if not judged.verdict.passed:
                return f"wrong at {judged.case.shape}: {judged.verdict.message}"
        return ""

    def _untimed(self, stage: Stage, names: Sequence[str], size: int, number: int) -> list[str]:
        """The candidates of `names` that are not timed yet in round `number` and not known to be wrong."""
        return [
            name
            for name in names
            if not self.findings.verdict(name) and self.findings.samples(stage, name, size, number) is None
        ]

    def _time(self, stage: Stage, number: int, size: int, names: list[str]) -> None:
        """Time `names` once at one size, in a new random order, on new random operands."""
        # All candidates of a tunable compute the same problem, and share operands.
        workspace = Workspace(self.session, self._problem, Shape.cube(size), fresh_seeds(1)[0])
        call = self.baseline.bind(self.session, workspace.operands(None))
        check = workspace.check(call, self._timer)
        if not check.passed:
            raise UserError(f"{self.baseline.id} is wrong at {size} ({check.message}); nothing is compared with it.")
        for name in random.sample(names, len(names)):
            self.attempt(name, partial(self._time_one, name, stage, (number, size), workspace, call, check.estimate_us))

    def _time_one(
        self,
        name: str,
        stage: Stage,
        place: tuple[int, int],
        workspace: Workspace,
        baseline: Callable[[], None],
        baseline_us: float,
    ) -> str:
        """Time a candidate in a round at a size, beside the baseline's call; returns what is wrong with it, or ''."""
        number, size = place
        loaded = self._load(name)
        call = loaded.bind(workspace.operands(loaded.kernel))
        check = workspace.check(call, self._timer)
        if not check.passed:
            return f"wrong at {size}: {check.message}"
        estimates = (check.estimate_us, baseline_us)
        graphs = timing.wants_graphs(*estimates)
        burst = self._timer.burst([call], [baseline], "warm", stage.plan, estimates, graphs)
        times, beside = ([round(time, 4) for time in side] for side in (burst.times, burst.baseline))
        self.findings.add(stage, name, size, number, Samples(times, beside, burst.sensors))
        return ""


def _baseline_of(kernel: Kernel) -> str:
    if not kernel.problem.operation.matrix_product or kernel.timing.baseline is None:
        raise UserError(f"{kernel.id} is no GEMM with a baseline, and tuning scores a candidate against one.")
    return kernel.timing.baseline


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


def search(bench: Bench, sizes: Sequence[int], out: Path, table: Path, stages: Sequence[Stage] = STAGES) -> None:
    """Find the best candidate; writes the table of all of them as CSV, and then the result as JSON.

    Raises:
        UserError: no candidate could be timed.
    """
    listing, shapes, limits = bench.listing, [Shape.cube(size) for size in sizes], Limits.here()
    tunable = listing.tunable
    left_out = {name: reason for name in listing.candidates if (reason := listing.unfit(name, shapes, limits))}
    fitting = [name for name in listing.candidates if name not in left_out]
    say(f"{tunable.id}: {len(fitting)} of {len(listing.candidates)} candidates compile without spills and fit the GPU")
    standings = successive_halving(fitting, sizes, bench.measure, stages)
    left_out |= {name: message for name in fitting if (message := bench.findings.verdict(name))}
    write_atomic(table, table_text(listing, standings, left_out))
    if not standings:
        raise UserError(f"no candidate of {tunable.id} could be timed; {table} says why for each.")
    finalists = [name for name, standing in standings.items() if standing.stage == stages[-1].name]
    ranking = [finalist(listing, name, standings[name]) for name in finalists]
    counts = {
        "candidates": len(listing.candidates),
        "compiled": sum(compiled.error is None for compiled in listing.compiled.values()),
        "fitting": len(fitting),
        "right": sum(bench.findings.verdict(name) == "" for name in fitting),
        "timed": len(standings),
    }
    write_json(out, {**_circumstances(bench), "count": counts, "winner": ranking[0], "others": ranking[1:]})
    ratios = ", ".join(f"{point['ratio']} at {size}" for size, point in ranking[0]["sizes"].items())
    say(f"{tunable.id}: the best is {listing.candidates[finalists[0]]}: {ratios} of {bench.baseline_version}")


def table_text(listing: Listing, standings: Mapping[str, Standing], left_out: Mapping[str, str]) -> str:
    """One row per candidate as CSV: the best first, then those left out."""
    sizes = sorted({size for standing in standings.values() for size in standing.points})
    order = [*standings, *(name for name in listing.candidates if name not in standings)]
    rows = [_row(listing, name, standings.get(name)) | {"left_out": left_out.get(name)} for name in order]
    measured = [column for size in sizes for column in (f"us_{size}", f"ratio_{size}")]
    columns = [*listing.tunable.space, *FOOTPRINT, "stage", "score", *measured, "left_out", "build_key"]
    return csv_text(rows, columns)


def finalist(listing: Listing, name: str, standing: Standing) -> dict[str, Any]:
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


def _row(listing: Listing, name: str, standing: Standing | None) -> dict[str, Any]:
    compiled = listing.compiled[name]
    cells: dict[str, Any] = {**listing.candidates[name].params, "build_key": compiled.build_key}
    cells |= {name: getattr(compiled, name) for name in FOOTPRINT}
    if standing:
        cells |= {"stage": standing.stage, "score": standing.score}
        for size, point in standing.points.items():
            cells |= {f"us_{size}": point.time_us, f"ratio_{size}": point.ratio.value}
    return cells


def _circumstances(bench: Bench) -> dict[str, Any]:
    listing, gpu = bench.listing, bench.session.gpu
    return {
        "kernel": listing.tunable.id,
        "gpu": {"name": gpu.name, "slug": gpu.slug},
        "driver": gpu.driver,
        "toolkit": listing.toolkit,
        "toolkit_version": listing.toolkit_version,
        "target": listing.target,
        "baseline": {"id": bench.baseline.id, "version": bench.baseline_version},
    }
