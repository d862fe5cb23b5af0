"""Candidates of a tunable, compiled, and the search for the best of them on a GPU, by successive halving.

Compiling needs no GPU: each leaves ``<digest>.json`` and, if the compiler takes it, ``<digest>.fatbin``;
``candidates.json`` says what compiled them. The same toolkit compiles the same sources once.

Candidates that spill or do not fit the GPU are left out. The rest are timed as in a sweep, warm and in turn with their
baseline: all briefly at the first size, the best third at every size, the best five in rounds on fresh data. The score
is the geometric mean over the sizes of baseline time over kernel time. The numerical gate's large cases follow a brief
timing, as the gate takes longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro import timing
from gemmrepro.build.compile import compile_one, wanted_archs
from gemmrepro.build.key import build_key, compiler
from gemmrepro.build.listings import allocated_registers
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.architectures import pick_arch
from gemmrepro.core.files import csv_text, read_json, write_atomic, write_json
from gemmrepro.core.journal import Journal, fresh_seeds, sayer
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import baselines, device
from gemmrepro.gpu.loaded import Binary, Loaded
from gemmrepro.measure.plan import Point, Settings
from gemmrepro.measure.prepare import Check, Round, prepare
from gemmrepro.measure.results import gather, summary_row, wrong
from gemmrepro.measure.rounds import Rounds, Workspace
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Tunable

LISTING = "candidates.json"

FOOTPRINT = ("registers", "spill_bytes", "shared_bytes")
"""Resources of a candidate's launch, as `Compiled` and the table of candidates have it."""


@dataclass(frozen=True)
class Candidate:
    """One combination of constants; `digest` names it in files."""

    params: Mapping[str, int]
    kernel: Kernel

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(dict(self.params), sort_keys=True).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.params.items())


def candidates(tunable: Tunable) -> list[Candidate]:
    """Every candidate of `tunable`. Raises UserError if its space allows none."""
    combinations = [Candidate(params, tunable.make(params)) for params in tunable.candidates()]
    if not combinations:
        raise UserError(f"the space of {tunable.id} allows no combination; correct it in the family's family.py.")
    return combinations


@dataclass(frozen=True)
class Compiled:
    """The result of compiling one candidate: the compiler's first error, or registers and bytes spilled by a thread,
    and static shared memory of a block."""

    build_key: str
    target: str
    error: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Limits:
    """The most that one block may use on a GPU."""

    shared_bytes: int
    registers: int
    threads: int

    @classmethod
    def here(cls) -> Limits:
        """Those of this machine's GPU."""
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        return cls(properties["sharedMemPerBlockOptin"], properties["regsPerBlock"], properties["maxThreadsPerBlock"])


@dataclass(frozen=True)
class Listing:
    """The compile step's results for all candidates of a tunable, by digest.
    `packages` are the versions that enter the build keys; the measuring machine need not have them installed."""

    folder: Path
    tunable: Tunable
    toolkit: str
    toolkit_version: str
    target: str
    packages: Mapping[str, str] | None
    candidates: Mapping[str, Candidate]
    compiled: Mapping[str, Compiled]

    @classmethod
    def read(cls, folder: Path, tunable: Tunable) -> Listing:
        """Read what the compile step left in `folder`, and check it against today's registry and sources.
        Raises UserError if it is missing or corrupt, or belongs to another tunable, an older space or older sources."""
        again = f"run the compile step again: python -m gemmrepro tune-compile --kernel {tunable.id}"
        path = folder / LISTING
        found = {candidate.digest: candidate for candidate in candidates(tunable)}
        content = read_json(path, "the list of candidates", again)
        if content["kernel"] != tunable.id:
            raise UserError(f"{path} lists candidates of {content['kernel']}, not of {tunable.id}.")
        records = {digest: read_json(folder / f"{digest}.json", "a candidate's record", again) for digest in found}
        try:
            compiled = {digest: Compiled(**record) for digest, record in records.items()}
        except TypeError as error:
            raise UserError(f"a candidate's record beside {path} is corrupt ({error}); {again}.") from None
        version, packages = content["toolkit_version"], content["packages"]
        if any(compiled[name].build_key != build_key(each.kernel, version, packages) for name, each in found.items()):
            raise UserError(f"{path} belongs to other sources of {tunable.id}; {again}.")
        return cls(folder, tunable, content["toolkit"], version, content["target"], packages, found, compiled)

    def binary(self, digest: str) -> Path:
        return self.folder / f"{digest}.fatbin"

    def unfit(self, digest: str, shapes: Sequence[Shape], limits: Limits) -> str | None:
        """Why a candidate cannot run, or not without spills, on a GPU with these limits; None if it can."""
        compiled, kernel = self.compiled[digest], self.candidates[digest].kernel
        if compiled.error or compiled.registers is None or compiled.shared_bytes is None:
            return f"does not compile: {compiled.error}"
        if compiled.spill_bytes:
            return f"spills {compiled.spill_bytes} bytes"
        for shape in shapes:
            try:
                kernel.check(shape)
            except UserError as error:
                return str(error)
        launch = kernel.launch(shapes[0])
        threads = math.prod(launch.block)
        takes = {
            "threads": (threads, limits.threads),
            "bytes of shared memory": (compiled.shared_bytes + launch.shared_bytes, limits.shared_bytes),
            "registers": (allocated_registers(compiled.registers, threads), limits.registers),
        }
        over = (
            f"{taken} {what} per block are over the GPU's {most}"
            for what, (taken, most) in takes.items()
            if taken > most
        )
        return next(over, None)


def compile_all(tunable: Tunable, toolkit_name: str, arch: str, folder: Path, jobs: int) -> Listing:
    """Compile every candidate for `arch` ("90"), `jobs` at a time, and write ``candidates.json`` into `folder`.
    Raises UserError if the toolkit or a source is missing, `arch` is unknown, or no candidate compiles."""
    toolkit = find_toolkit(toolkit_name)
    combinations = candidates(tunable)
    sample, start = combinations[0].kernel, time.monotonic()
    target = wanted_archs(sample, toolkit, [arch])[-1]
    by_digest, compiled = {each.digest: each for each in combinations}, dict[str, Compiled]()
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = {
            pool.submit(compile_candidate, candidate, toolkit, target, folder): digest
            for digest, candidate in by_digest.items()
        }
        for number, future in enumerate(as_completed(futures), 1):
            compiled[futures[future]] = future.result()
            if number % 50 == 0:
                say(f"{tunable.id}: {number} of {len(futures)} compiled")
    finally:
        pool.shutdown(cancel_futures=True)
    errors = [result.error for result in compiled.values() if result.error is not None]
    say(
        f"{tunable.id}: {len(combinations) - len(errors)} of {len(combinations)} candidates compiled with "
        f"{toolkit.name} {toolkit.version} for sm_{target} in {time.monotonic() - start:.0f} s"
    )
    if len(errors) == len(combinations):
        raise UserError(f"no candidate of {tunable.id} compiles; the compiler says: {errors[0]}")
    packages, version = compiler(sample).packages(sample), toolkit.version
    about = {"kernel": tunable.id, "toolkit": toolkit.name, "toolkit_version": version, "target": target}
    write_json(folder / LISTING, about | {"packages": packages})
    return Listing(folder, tunable, toolkit.name, version, target, packages, by_digest, compiled)


def compile_candidate(candidate: Candidate, toolkit: Toolkit, target: str, folder: Path) -> Compiled:
    """Compile one candidate for `target` into `folder`, unless this very build of it lies there already.
    Raises UserError if the source does not define the record's entry point."""
    kernel = candidate.kernel
    binary, record = folder / f"{candidate.digest}.fatbin", folder / f"{candidate.digest}.json"
    compiled = Compiled(build_key(kernel, toolkit.version), target)
    with contextlib.suppress(OSError, ValueError, TypeError):  # there is none, or it is corrupt
        earlier = Compiled(**json.loads(record.read_text()))
        same = (earlier.build_key, earlier.target) == (compiled.build_key, target)
        if same and (earlier.error is not None or binary.is_file()):
            return earlier
    try:
        fatbin, usage = compile_one(kernel, toolkit, target)
    except UserError as refused:
        compiled = replace(compiled, error=first_error(str(refused)))
    else:
        if usage is None:
            raise UserError(
                f"{kernel.source_path.name} defines no '{kernel.code.entry}' for sm_{target}; check that it is "
                f'extern "C" __global__ and that the tunable names it.'
            )
        compiled = replace(compiled, **{name: getattr(usage, name) for name in FOOTPRINT})
        write_atomic(binary, fatbin)
    write_json(record, asdict(compiled))
    return compiled


def first_error(log: str) -> str:
    """The compiler's first error in `log`, on one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "no message")[:300]


say = sayer("tune")

HANG_SECONDS = 60.0
"""A step of a candidate that takes longer has hung."""

REPLACE = 76
"""Exit code of a measuring process whose GPU context a candidate may have broken."""


class Broken(Exception):
    """A candidate may have left the GPU's context unusable."""


def marker(journal: Path) -> Path:
    """The file that names the candidate at work, and, once that has failed, how."""
    return journal / "at-work"


def suspect(journal: Path) -> str:
    """The marker's text; nothing without one."""
    try:
        return marker(journal).read_text()
    except OSError:
        return ""


def supervise(command: Sequence[str], journal: Path) -> int:
    """Run `command`, again whenever a candidate ends the process; returns its last exit code."""
    marker(journal).unlink(missing_ok=True)  # left by an interrupted run
    while True:
        code = subprocess.run(command, check=False).returncode
        name, _, reason = suspect(journal).partition(" ")
        if code in (0, -signal.SIGINT, -signal.SIGTERM) or not name or (reason and code != REPLACE):
            return code
        if not reason:
            hung = f"it did not end within {HANG_SECONDS:.0f} s"
            how = hung if code == -signal.SIGALRM else f"its process ended with code {code}"
            write_atomic(marker(journal), f"{name} {how}")
        say("a candidate ended its process; going on in a new one")


FINALISTS = 5
"""The fewest candidates that take part in a step, if there are as many."""


@dataclass(frozen=True)
class Stage:
    """One step of the search: `share` of the previous ranking takes part, FINALISTS candidates at least."""

    name: str
    share: float
    every_size: bool
    rounds: int
    plan: timing.Plan
    judged: bool = True
    """Whether candidates must pass the numerical gate's large cases first."""

    def entrants(self, waiting: int) -> int:
        return min(waiting, max(FINALISTS, math.ceil(self.share * waiting)))

    def settings(self, family: str, toolkit: str, sizes: Sequence[int]) -> Settings:
        document = {"toolkits": [toolkit], "caches": ["warm"], "rounds": self.rounds, "sizes": {family: list(sizes)}}
        plan = {"interval": self.plan.interval, "seconds_per_round": self.plan.seconds}
        return Settings.of({**document, **plan, "samples_per_round": [self.plan.least, self.plan.most]}, family)


STAGES = (
    Stage("coarse", 1.0, False, 1, timing.Plan(interval=0.01, seconds=0.04, least=3, most=20), judged=False),
    Stage("close", 1 / 3, True, 1, timing.Plan(interval=0.005, seconds=0.25, least=5, most=50)),
    Stage("final", 0.0, True, 5, timing.Plan(interval=0.002, seconds=0.5, least=10, most=200)),
)


@dataclass(frozen=True)
class Standing:
    """The last stage that a candidate took part in, and its rows by size."""

    stage: str
    rows: Mapping[int, Mapping[str, Any]]

    @property
    def score(self) -> float:
        """Geometric mean of the ratios: above 1 it is faster than the baseline."""
        return math.exp(math.fsum(math.log(row["ratio"]) for row in self.rows.values()) / len(self.rows))


Rows = dict[str, dict[int, Mapping[str, Any]]]
"""Summary rows (`measure.columns.ROW`) by candidate and size."""


def successive_halving(
    candidates: Iterable[str], sizes: Sequence[int], measure: Callable[[Stage, Sequence[str], Sequence[int]], Rows]
) -> dict[str, Standing]:
    """The standing of each candidate, best first; `measure` times some in a stage, and leaves out those found wrong."""
    standings: dict[str, Standing] = {}
    waiting = list(candidates)
    for stage in STAGES:
        entrants = waiting[: stage.entrants(len(waiting))]
        measured = measure(stage, entrants, sizes if stage.every_size else sizes[:1]) if entrants else {}
        reached = {name: Standing(stage.name, rows) for name, rows in measured.items()}
        waiting = sorted(reached, key=lambda name: (-reached[name].score, name))
        behind = {name: standing for name, standing in standings.items() if name not in entrants}
        standings = {name: reached[name] for name in waiting} | behind
    return standings


class Bench:
    """The candidates of one tunable on one open GPU, with a journal for verdicts and one for the samples of a stage."""

    def __init__(self, session: device.Session, listing: Listing, journal: Path) -> None:
        """Open the journal, and leave out the candidate that broke the process before this one.
        Raises UserError if the candidates were compiled for another GPU, or have no baseline."""
        sample = next(iter(listing.candidates.values())).kernel
        self.session, self.listing = session, listing
        if not sample.problem.operation.matrix_product or sample.timing.baseline is None:
            raise UserError(f"{sample.id} is no GEMM with a baseline, and tuning scores a candidate against one.")
        _check_runs_here(listing, session)
        self.family, self.op = sample.family, sample.compute.op
        self.baseline = baselines.baseline(sample.timing.baseline)
        self._journal = Journal(journal, session.gpu.machine, say)
        self._load = cache(self._loaded)
        name, _, reason = suspect(journal).partition(" ")
        if reason and name in listing.candidates:
            self._reject(name, reason)
        marker(journal).unlink(missing_ok=True)

    def verdict(self, name: str) -> str | None:
        """The fault of a candidate; '' if it is correct, None if it was not judged yet."""
        entry = self._journal.get(f"{name}.verdict", self._identity(name))
        return None if entry is None else entry["message"]

    def _reject(self, name: str, message: str) -> None:
        self._journal.put(f"{name}.verdict", self._identity(name), {"message": message})
        say(f"left out: {self.listing.candidates[name]}: {message}")

    def _identity(self, name: str) -> dict[str, Any]:
        return {**self.session.gpu.machine, "build_key": self.listing.compiled[name].build_key}

    @contextlib.contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """Mark a candidate as being at work; a hang ends the process.
        Raises Broken, with how, if it failed, which may have broken the GPU's context."""
        at_work = marker(self._journal.folder)
        write_atomic(at_work, name)
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            yield
        except OSError:  # a full disk is not the candidate's fault
            at_work.unlink()
            raise
        except Exception as error:
            write_atomic(at_work, f"{name} {str(error) or type(error).__name__}")
            raise Broken from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        at_work.unlink()

    def judge(self, names: Sequence[str]) -> list[str]:
        """The candidates of `names` that pass the numerical gate's large cases, with fresh seeds. Raises Broken."""
        gate, seeds, start = Gates().of(self.op), fresh_seeds(1), time.monotonic()
        for name in names:
            if self.verdict(name) is not None:
                continue
            loaded = self._load(name)

            def launch(operands: Operands, loaded: Loaded = loaded) -> None:
                loaded.bind(operands)()

            with self.at_work(name):
                cases = gate.large_cases(self.session, loaded.kernel, launch, seeds)
                failed = next((judged for judged in cases if not judged.verdict.passed), None)
            if failed:
                self._reject(name, f"wrong at {failed.case.shape}: {failed.verdict.message}")
            else:
                self._journal.put(f"{name}.verdict", self._identity(name), {"message": ""})
        correct = [name for name in names if self.verdict(name) == ""]
        say(f"{len(correct)} of these {len(names)} are correct; judged in {time.monotonic() - start:.0f} s")
        return correct

    def measure(self, stage: Stage, names: Sequence[str], sizes: Sequence[int]) -> Rows:
        """Time candidates in a stage; those that turn out wrong are left out. Raises Broken."""
        names = self.judge(names) if stage.judged else [name for name in names if not self.verdict(name)]
        if not names:
            return {}
        toolkit, folder, start = self.listing.toolkit, self._journal.folder, time.monotonic()
        loaded = {(f"{self.family}.{name}", toolkit): self._load(name) for name in names}
        kernels = {kernel_id: replace(binary.kernel, id=kernel_id) for (kernel_id, _), binary in loaded.items()}
        settings, free = stage.settings(self.family, toolkit, sizes), self.session.free_bytes()
        sweep = prepare(self.session, kernels, settings, folder, folder, folder / stage.name, say, free, loaded)
        self.session.trials.limit(math.inf)  # a short step, too, chooses the algorithm for all steps
        rounds = _Rounds(sweep, say, self)
        for number in range(stage.rounds):
            rounds.run(number, None)
        for entry in (*sweep.skipped, *wrong(sweep)):
            if entry.toolkit == LIBRARY:
                raise UserError(f"{entry.kernel} is {entry.reason}; nothing is compared with it.")
            self._reject(entry.kernel.partition(".")[2], entry.reason)
        rows: Rows = {}
        for measured in gather(sweep):
            if measured.point.toolkit != LIBRARY:
                by_size = rows.setdefault(measured.point.kernel.partition(".")[2], {})
                by_size[measured.point.shape.n] = summary_row(sweep, measured)
        rows = {name: rows[name] for name in names if not self.verdict(name)}
        best = max((Standing(stage.name, by_size).score for by_size in rows.values()), default=math.nan)
        say(f"{stage.name}: {len(rows)} timed in {time.monotonic() - start:.0f} s; the best is at {best:.4f}")
        return rows

    def _loaded(self, name: str) -> Loaded:
        path, kernel = self.listing.binary(name), self.listing.candidates[name].kernel
        if not path.is_file():
            raise UserError(f"{path} is missing; run the compile step again.")
        key, arch = self.listing.compiled[name].build_key, self.session.gpu.arch
        with self.at_work(name):
            return Loaded(self.session, Binary(kernel, self.listing.toolkit, key, arch, path))


class _Rounds(Rounds):
    """Rounds in which the candidate at work is marked; what wins is judged by its gate like any kernel."""

    def __init__(self, sweep: Any, say: Callable[[str], None], bench: Bench) -> None:
        super().__init__(sweep, say)
        self._bench = bench

    def _marked(self, point: Point) -> contextlib.AbstractContextManager[None]:
        if point.toolkit == LIBRARY:
            return contextlib.nullcontext()
        return self._bench.at_work(point.kernel.partition(".")[2])

    def ensure_checked(self, point: Point, workspace: Workspace, timer: timing.Timer) -> Check:
        with self._marked(point):
            return super().ensure_checked(point, workspace, timer)

    def _measure(
        self, point: Point, workspace: Workspace, timer: timing.Timer, estimates: tuple[float, float | None]
    ) -> Round:
        with self._marked(point):
            return super()._measure(point, workspace, timer, estimates)

    def confirm(self, *_: Any) -> None:
        pass


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


DIGITS = {"tflops": 2, "median_us": 2, "baseline_median_us": 2, "ratio": 4, "ratio_ci_low": 4, "ratio_ci_high": 4}
"""Columns of the winner's rows in the result, and their digits."""


def search(bench: Bench, sizes: Sequence[int], out: Path) -> None:
    """Find the best candidate; writes the table of all of them as CSV beside `out`, and then the result as JSON.
    Raises UserError if no candidate could be timed, Broken if one may have broken the GPU's context."""
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
    name, standing = next(iter(standings.items()))
    version, winner = bench.baseline.version(bench.session), listing.candidates[name]
    sizes_of_winner = {
        str(size): {column: round(row[column], digits) for column, digits in DIGITS.items()}
        for size, row in standing.rows.items()
    }
    result = {
        "kernel": tunable.id,
        "gpu": {"name": gpu.name, "slug": gpu.slug},
        "driver": gpu.driver,
        **{name: getattr(listing, name) for name in ("toolkit", "toolkit_version", "target")},
        "baseline": {"id": bench.baseline.id, "version": version},
        "count": {"candidates": len(listing.candidates), "timed": len(standings)},
        "winner": {"params": dict(winner.params), "score": round(standing.score, 4), "sizes": sizes_of_winner},
    }
    write_json(out, result)
    ratios = ", ".join(f"{cells['ratio']} at {size}" for size, cells in sizes_of_winner.items())
    say(f"{tunable.id}: the best is {winner}: {ratios} of {version}")


def _table(listing: Listing, standings: Mapping[str, Standing], left_out: Mapping[str, str]) -> str:
    """One row per candidate as CSV: the best first, then those left out."""
    sizes = sorted({size for standing in standings.values() for size in standing.rows})
    rows = []
    for name in dict.fromkeys([*standings, *listing.candidates]):
        compiled, standing = listing.compiled[name], standings.get(name)
        row: dict[str, Any] = {
            **listing.candidates[name].params,
            "build_key": compiled.build_key,
            "left_out": left_out.get(name),
        }
        row |= {each: getattr(compiled, each) for each in FOOTPRINT}
        if standing:
            row |= {"stage": standing.stage, "score": standing.score}
            for size, cells in standing.rows.items():
                row |= {f"us_{size}": cells["median_us"], f"ratio_{size}": cells["ratio"]}
        rows.append(row)
    measured = [column for size in sizes for column in (f"us_{size}", f"ratio_{size}")]
    return csv_text(rows, [*listing.tunable.space, *FOOTPRINT, "stage", "score", *measured, "left_out", "build_key"])
