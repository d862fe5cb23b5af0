"""A sweep's journal: the check of each subject, and the rounds of each point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gemmrepro import timing
from gemmrepro.core.journal import Journal
from gemmrepro.errors import NEEDS
from gemmrepro.measure.plan import PROTOCOL, Point, Settings


@dataclass(frozen=True)
class Check:
    """The judgement of one execution, made before its subject is timed.

    Attributes:
        passed: whether it, and the second judgement if there was one, found nothing wrong.
        err_scaled_max: max |C - C*| / (|A||B|) in units of the output type's roundoff, where the gate computes it.
        err_fro: relative error in the Frobenius norm, where the gate computes it.
        estimate_us: the time of a launch.
        algorithm: the library's algorithm that a trial chose (`gemmrepro.gpu.cublas`); None if it has no choice.
        confirmed: whether a kernel was judged again on other inputs after it was timed (`gemmrepro.measure.workspace`).
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

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Check:
        """From a journal entry."""
        return cls(
            passed=document["passed"],
            message=document["message"],
            err_scaled_max=document.get("err_scaled_max"),
            err_fro=document.get("err_fro"),
            estimate_us=document["estimate_us"],
            algorithm=document.get("way"),
            confirmed=document.get("confirmed", False),
            confirmed_us=document.get("confirmed_us", 0.0),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The journal entry."""
        cells = asdict(self)
        algorithm = cells.pop("algorithm")
        return cells if algorithm is None else {**cells, "way": algorithm}


@dataclass(frozen=True)
class Round:
    """One round of one point. Times in µs; the i-th entries of both lists were sampled back to back."""

    times: list[float]
    baseline: list[float]
    sensors: list[dict[str, Any]]
    mode: str

    @classmethod
    def of(cls, burst: timing.Burst) -> Round:
        """From a burst; times are rounded to 0.1 ns."""
        times, baseline = ([round(value, 4) for value in values] for values in (burst.times, burst.baseline))
        return cls(times, baseline, burst.sensors, burst.mode)


class Records:
    """A sweep's journal by point. An entry counts only for the same run, GPU, driver, baseline and settings."""

    def __init__(
        self,
        journal: Journal,
        machine: Mapping[str, str],
        settings: Settings,
        versions: Mapping[str, str],
        build_key: Callable[[Point], str],
        run_key: Callable[[Point], str | None],
        free: int = 0,
    ) -> None:
        """
        Args:
            machine: the GPU and its driver.
            versions: of the baselines' libraries, by baseline.
            build_key: of a point's binary, or the library's version.
            run_key: of a point's run; None for a library.
            free: bytes of GPU memory that are free: what lacked memory is tried again where that differs.
        """
        self.journal, self.machine = journal, dict(machine)
        self.build_key, self.run_key = build_key, run_key
        self._timing, self._versions, self._free = settings.sampling, versions, free

    def _identity(self, point: Point) -> dict[str, Any]:
        return {
            **self.machine,
            "build_key": self.build_key(point),
            "run_key": self.run_key(point),
            "baseline": self._versions.get(point.baseline or "", ""),
            "timing": self._timing,
        }

    def _check_identity(self, point: Point, lacking: bool = False) -> dict[str, Any]:
        keys = {"build_key": self.build_key(point), "run_key": self.run_key(point)}
        return {**self.machine, **keys, "protocol": PROTOCOL, **({"free": self._free} if lacking else {})}

    def check(self, point: Point) -> Check | None:
        """The check of `point`'s subject, if there is one."""
        for lacking in (False, True):
            document = self.journal.get(point.entry("check"), self._check_identity(point, lacking))
            if document is not None:
                return Check.of(document)
        return None

    def keep_check(self, point: Point, check: Check) -> None:
        """Store the check of `point`'s subject."""
        identity = self._check_identity(point, check.message.startswith(NEEDS))
        self.journal.put(point.entry("check"), identity, check.document)

    def passed(self, point: Point) -> bool:
        """Whether `point` may be timed: its check passed, or was not made yet."""
        check = self.check(point)
        return check is None or check.passed

    def round(self, point: Point, number: int) -> Round | None:
        """Round `number` of `point`, if there is one."""
        document = self.journal.get(point.entry(point.cache, f"r{number}"), self._identity(point))
        return None if document is None else Round(**document)

    def keep_round(self, point: Point, number: int, measured: Round) -> None:
        """Store round `number` of `point`."""
        self.journal.put(point.entry(point.cache, f"r{number}"), self._identity(point), asdict(measured))
