"""Prepares a sweep of one family on one open GPU: binaries loaded, points planned; and keeps its journal by point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry, timing
from gemmrepro.build.record import read_build
from gemmrepro.core.journal import Journal
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import NEEDS, UserError
from gemmrepro.gpu import baselines
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Binary, Loaded
from gemmrepro.measure.plan import PROTOCOL, Point, Room, Settings, Skipped, not_timeable, plan_points
from gemmrepro.registry import Kernel, keys
from gemmrepro.registry.requirements import requirement


@dataclass(frozen=True)
class Check:
    """The judgement of one execution, made before its subject is timed.

    Attributes:
        passed: whether it, and the second judgement if there was one, found nothing wrong.
        err_scaled_max, err_fro: as `gates.gate.Verdict`, where the gate computes them.
        estimate_us: the time of a launch.
        algorithm: the library's algorithm that a trial chose (`gemmrepro.gpu.cublas`); None if it has no choice.
        confirmed: whether a kernel was judged again on other inputs after it was timed (`gemmrepro.measure.rounds`).
        confirmed_us: the shortest median with which it was.
    """

    passed: bool
    message: str = ""
    err_scaled_max: float | None = None
    err_fro: float | None = None
    estimate_us: float = 0.0
    algorithm: int | None = None
    confirmed: bool = False
    confirmed_us: float = 0.0


@dataclass(frozen=True)
class Round:
    """One round of one point. Times in µs; the i-th entries of both lists were sampled back to back."""

    times: list[float]
    baseline: list[float]
    sensors: list[dict[str, Any]]
    mode: str

    @classmethod
    def of(cls, burst: timing.Burst) -> Round:
        """Its samples, rounded to 0.1 ns."""
        times, baseline = ([round(value, 4) for value in values] for values in (burst.times, burst.baseline))
        return cls(times, baseline, burst.sensors, burst.mode)


@dataclass(frozen=True)
class Sweep:
    """A sweep that is ready to start or to resume, and its journal by point.
    An entry of the journal counts only for the same run, GPU, driver, baseline and settings. `versions`: of the
    baselines' libraries. `free`: GPU memory in bytes that was free before; what lacked memory is tried again where it
    differs."""

    session: Session
    family: str
    settings: Settings
    build: Path
    kernels: Mapping[str, Kernel]
    loaded: Mapping[tuple[str, str], Loaded]
    points: tuple[Point, ...]
    skipped: tuple[Skipped, ...]
    versions: Mapping[str, str]
    journal: Journal
    free: int = 0

    @property
    def machine(self) -> dict[str, str]:
        """The GPU and its driver, as the journal's entries name them."""
        return self.session.gpu.machine

    def build_key(self, point: Point) -> str:
        """The build key of a point's binary; of a library its version."""
        library = point.toolkit == LIBRARY
        return self.versions[point.kernel] if library else self.loaded[point.subject[:2]].build_key

    def run_key(self, point: Point) -> str | None:
        """The key of a point's run; None for a library."""
        if point.toolkit == LIBRARY:
            return None
        return keys.run_key(self.kernels[point.kernel], self.build_key(point), point.shape)

    def _identity(self, point: Point) -> dict[str, Any]:
        return {
            **self.machine,
            "build_key": self.build_key(point),
            "run_key": self.run_key(point),
            "baseline": self.versions.get(point.baseline or "", ""),
            "timing": self.settings.sampling,
        }

    def _check_identity(self, point: Point, lacking: bool = False) -> dict[str, Any]:
        own = {"build_key": self.build_key(point), "run_key": self.run_key(point)}
        return {**self.machine, **own, "protocol": PROTOCOL, **({"free": self.free} if lacking else {})}

    def check(self, point: Point) -> Check | None:
        for lacking in (False, True):
            document = self.journal.get(point.entry("check"), self._check_identity(point, lacking))
            if document is not None:
                return Check(**document)
        return None

    def keep_check(self, point: Point, check: Check) -> None:
        identity = self._check_identity(point, check.message.startswith(NEEDS))
        self.journal.put(point.entry("check"), identity, asdict(check))

    def passed(self, point: Point) -> bool:
        """Whether `point` may be timed: its check passed, or was not made yet."""
        check = self.check(point)
        return check is None or check.passed

    def round(self, point: Point, number: int) -> Round | None:
        """Round `number` of `point`, if there is one."""
        document = self.journal.get(point.entry(point.cache, f"r{number}"), self._identity(point))
        return None if document is None else Round(**document)

    def keep_round(self, point: Point, number: int, measured: Round) -> None:
        self.journal.put(point.entry(point.cache, f"r{number}"), self._identity(point), asdict(measured))

    @property
    def total(self) -> int:
        """Number of rounds of points that the whole sweep measures."""
        return len(self.points) * self.settings.rounds

    def todo(self) -> list[tuple[int, Point]]:
        """(round, point) that the journal lacks, without subjects whose check failed."""
        return [
            (number, point)
            for number in range(self.settings.rounds)
            for point in self.points
            if self.round(point, number) is None and self.passed(point)
        ]


def timed_kernels(family: str, chosen: str | None = None) -> dict[str, Kernel]:
    """The timed kernels of a family by id, or those `chosen`, a comma-separated list of ids.
    Raises UserError if an id is none of a timed kernel of the family."""
    kernels = {kernel.id: kernel for kernel in registry.kernels(family) if kernel.timing.timed}
    if chosen is None:
        return kernels
    for name in chosen.split(","):
        if name not in kernels:
            raise UserError(f"{family} has no timed kernel {name}; it has {', '.join(kernels)}.")
    return {name: kernels[name] for name in chosen.split(",")}


def load_binaries(
    session: Session, kernels: Mapping[str, Kernel], toolkits: tuple[str, ...], build: Path, gates: Path
) -> tuple[dict[tuple[str, str], Loaded], dict[tuple[str, str], str]]:
    """The binaries of `kernels` that may be timed, by kernel and toolkit, and why the others may not.
    Raises UserError if a build record or a gate's verdict is missing or corrupt."""
    loaded: dict[tuple[str, str], Loaded] = {}
    refused: dict[tuple[str, str], str] = {}
    for kernel in kernels.values():
        for toolkit in (name for name in toolkits if name in kernel.platform.toolkits):
            try:
                loaded[kernel.id, toolkit] = load_timeable(session, kernel, toolkit, build, gates)
            except NotTimeable as reason:
                refused[kernel.id, toolkit] = str(reason)
    return loaded, refused


def prepare(
    session: Session,
    kernels: Mapping[str, Kernel],
    settings: Settings,
    build: Path,
    gates: Path,
    journal: Path,
    say: Callable[[str], None],
    free: int | None = None,
    given: Mapping[tuple[str, str], Loaded] | None = None,
) -> Sweep:
    """Load, plan and open the journal; trials of a baseline's algorithms may take no longer than a round.
    `kernels`: those to time, by id, of one family. `free`: free bytes as the parent process found them, which has also
    said what is left out. `given`: what is loaded already. Raises UserError if a record or a verdict is missing or
    corrupt."""
    loaded, refused = (dict(given), {}) if given else load_binaries(session, kernels, settings.toolkits, build, gates)
    room = Room(session.gpu, session.free_bytes() if free is None else free)
    points, skipped = plan_points(
        list(kernels.values()),
        settings.sizes,
        settings.toolkits,
        settings.caches,
        lambda kernel, toolkit: None if (at := (kernel.id, toolkit)) in loaded else refused.get(at, "not loaded"),
        settings.is_timed_at,
        room.beyond,
    )
    used = dict.fromkeys(point.baseline for point in points)
    versions = {name: baselines.baseline(name).version(session) for name in used if name}
    if free is None:
        for entry in skipped:
            say(f"not timed: {entry.kernel} {entry.toolkit}: {entry.reason}")
    session.trials.limit(2 * settings.seconds_per_round)  # a round of a point and its baseline takes this long
    return Sweep(
        session=session,
        family=next(iter(kernels.values())).family,
        settings=settings,
        build=Path(build),
        kernels=kernels,
        loaded=loaded,
        points=tuple(points),
        skipped=tuple(skipped),
        versions=versions,
        journal=Journal(journal, session.gpu.machine, say),
        free=room.free,
    )


class NotTimeable(Exception):
    """A binary is left out of a measurement; the message says why. The others are measured."""


def is_built(kernel: Kernel, toolkit: str, build: Path) -> bool:
    """Whether the build stage made a record of this kernel by this toolkit."""
    return (Path(build) / toolkit / f"{kernel.id}.json").is_file()


def load_timeable(session: Session, kernel: Kernel, toolkit: str, build: Path, gates: Path) -> Loaded:
    """Load a binary that may be measured.
    Raises NotTimeable if the GPU or driver cannot run it or it did not pass its gate, UserError for a corrupt or
    missing record or verdict."""
    # A gate says nothing of a binary that cannot run: that is asked first.
    if needs := requirement(kernel, session.gpu.compute_capability):
        raise NotTimeable(f"needs {needs}")
    if kernel.platform.targets and not is_built(kernel, toolkit, build):
        raise NotTimeable(f"it was not built: build.{toolkit} in the configuration lists none of its targets")
    read_build(kernel, build, toolkit)
    try:
        binary = Binary.built(session.gpu, kernel, build, toolkit)
    except UserError as error:
        raise NotTimeable(str(error)) from None
    if reason := not_timeable(kernel.id, toolkit, binary.build_key, gates):
        raise NotTimeable(reason)
    try:
        return Loaded.built(session, kernel, build, toolkit)
    except UserError as error:
        raise NotTimeable(str(error)) from None
