"""The blocks that the regimes measure of a family, their order, and the journal of what was measured.

Kernels and libraries of one problem and shape form a set. A pass visits all of a set once, each alone; the next pass
backwards (A B C C B A), so a drift that is linear in time is the same for all once a pair of passes is complete.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from gemmrepro import timing
from gemmrepro.core.journal import Progress
from gemmrepro.core.names import LIBRARY
from gemmrepro.gpu.device import Session
from gemmrepro.measure.plan import Point
from gemmrepro.measure.prepare import Sweep
from gemmrepro.measure.regimes import REGIMES, SUSTAINED, Block, Chunk, Device, Load, Reading, burst, heat, sustained
from gemmrepro.measure.rounds import Rounds, Workspace, groups, libraries_of, passed
from gemmrepro.operations import Problem, Shape


@dataclass(frozen=True)
class RegimeSettings:
    """The configuration's section `regimes` as it concerns one family; `document` is the whole section.

    Attributes:
        toolkits: a kernel is measured with the first of these that compiles it.
        seconds: a sustained block is timed for this long.
        pairs: of passes, by regime.
        kernels: the only ones to measure, by id; None: all that are timed.
        minutes: after which no pair of passes begins; None: no limit.
    """

    document: Mapping[str, Any]
    toolkits: tuple[str, ...]
    seconds: float
    pairs: Mapping[str, int]
    sizes: tuple[int, ...]
    kernels: tuple[str, ...] | None
    minutes: float | None

    @classmethod
    def of(cls, document: Mapping[str, Any], family: str) -> RegimeSettings:
        kernels = document["kernels"].get(family)
        return cls(
            document=document,
            toolkits=tuple(document["toolkits"]),
            seconds=document["seconds"],
            pairs={regime: document["pairs"][regime] for regime in REGIMES},
            sizes=tuple(document["sizes"].get(family, ())),
            kernels=None if kernels is None else tuple(kernels),
            minutes=document["minutes"].get(family),
        )


PROTOCOL = 2
"""Increment it when a rule or the meaning of a sample changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Set:
    """Subjects that are visited in turn: libraries first, then kernels in the order of their rungs."""

    problem: Problem
    shape: Shape
    subjects: tuple[Point, ...]

    def __str__(self) -> str:
        return f"{self.problem.dtype_in} {self.problem.layout} {self.shape}"


@dataclass(frozen=True)
class Pair:
    """Two passes over a set in one regime, forwards and backwards: what is measured, and kept, as a whole."""

    number: int
    regime: str
    members: Set

    @property
    def name(self) -> str:
        """Its entry in the journal."""
        problem, parts = self.members.problem, (str(self.members.shape), self.regime, f"p{self.number}")
        return ".".join((problem.op, problem.dtype_in, problem.dtype_out, problem.layout.replace(",", "-"), *parts))

    @property
    def order(self) -> list[int]:
        """The places of its subjects, forwards and backwards."""
        places = list(range(len(self.members.subjects)))
        return [*places, *places[::-1]]


def sets(points: Sequence[Point], toolkits: Sequence[str]) -> list[Set]:
    """The sets of a family's points; of a kernel's points there the one with the first of `toolkits` counts."""
    found = []
    for group in groups(point for point in points if point.toolkit != LIBRARY):
        chosen: dict[str, Point] = {}
        for toolkit in reversed(toolkits):
            chosen |= {point.kernel: point for point in group if point.toolkit == toolkit}
        kernels = [chosen[name] for name in dict.fromkeys(point.kernel for point in group) if name in chosen]
        found.append(Set(group[0].problem, group[0].shape, (*libraries_of(group), *kernels)))
    return found


def pairs(members: Sequence[Set], counts: Mapping[str, int]) -> list[Pair]:
    """Every pair of passes, in the order in which they are measured; `counts` are by regime.
    Each regime visits all sets before any again, so a time limit leaves the fewest gaps."""
    return [
        Pair(number, regime, each)
        for number in range(max(counts.values(), default=0))
        for regime, count in counts.items()
        if number < count
        for each in members
    ]


@dataclass(frozen=True)
class _Queued:
    first: Any
    last: Any
    launches: int


class GpuDevice:
    """Launches on the session's stream, timed by CUDA events."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def read(self) -> Reading:
        energy = self._session.energy()
        at = self.now()  # dates the energy, from whose steps a power is computed
        return Reading(at_s=at, energy_j=energy, **self._session.sensors())

    def queue(self, load: Load, calls: int) -> _Queued:
        import cupy

        queued = _Queued(cupy.cuda.Event(), cupy.cuda.Event(), calls * load.launches)
        queued.first.record(self._session.stream)
        for _ in range(calls):
            load.call()
        queued.last.record(self._session.stream)
        return queued

    def finished(self, handle: _Queued) -> bool:
        return bool(handle.last.done)

    def chunk(self, handle: _Queued) -> Chunk:
        import cupy

        if not self.finished(handle):
            handle.last.synchronize()
        elapsed = 1000.0 * cupy.cuda.get_elapsed_time(handle.first, handle.last)
        # As many digits as samples of a sweep have.
        return Chunk(self.now(), handle.launches, round(elapsed / handle.launches, 4))


Say = Callable[[str], None]


@dataclass(frozen=True)
class Visit:
    """A block and whose it is: the place of the subject in its set."""

    subject: int
    block: Block

    @classmethod
    def of(cls, document: Sequence[Any]) -> Visit:
        """From a journal entry."""
        subject, (ready, waited_s, chunks, readings) = document
        block = Block(ready, waited_s, [Chunk(*cells) for cells in chunks], [Reading(*cells) for cells in readings])
        return cls(subject, block)


class Passes:
    """The passes of a family over its sets."""

    def __init__(
        self,
        sweep: Sweep,
        settings: RegimeSettings,
        members: Sequence[Set],
        device: Device,
        say: Say,
        rounds: Rounds | None = None,
    ) -> None:
        """Passes are kept in the journal of `sweep`; `rounds` bind and judge, by default as a sweep does."""
        self.settings, self.members = settings, tuple(members)
        self._sweep, self._device, self._say = sweep, device, say
        self._rounds = rounds or Rounds(sweep, say)
        self._timer: timing.Timer | None = None

    @property
    def wanted(self) -> list[Pair]:
        """Every pair of passes, measured or not."""
        return pairs(self.members, self.settings.pairs)

    def visits(self, pair: Pair) -> list[Visit] | None:
        """The blocks of `pair` in the journal, in the order in which they were measured; None if it has none."""
        document = self._sweep.journal.get(pair.name, self._identity(pair))
        return None if document is None else [Visit.of(each) for each in document["visits"]]

    def _identity(self, pair: Pair) -> dict[str, Any]:
        sweep = self._sweep
        subjects = [
            [point.kernel, point.toolkit, sweep.build_key(point), sweep.run_key(point)]
            for point in pair.members.subjects
        ]
        sampling = {"seconds": self.settings.seconds, "protocol": PROTOCOL}
        return {**sweep.machine, "subjects": subjects, "sampling": sampling}

    def run(self, deadline: float | None) -> bool:
        """Measure what the journal lacks; False if `deadline` passed before all of it was measured."""
        wanted = self.wanted
        todo = [pair for pair in wanted if self.visits(pair) is None]
        total = sum(len(pair.order) for pair in wanted)
        last: str | None = None
        with Progress("regimes", total, total - sum(len(pair.order) for pair in todo)) as progress:
            for pair in todo:
                if passed(deadline):
                    return False
                # After rests and after other work the GPU is not hot.
                visits = self._measure(pair, progress, heated=last == pair.regime == SUSTAINED)
                self._sweep.journal.put(pair.name, self._identity(pair), {"visits": list(map(astuple, visits))})
                last = pair.regime
        return True

    def _measure(self, pair: Pair, progress: Progress, heated: bool) -> list[Visit]:
        members = pair.members
        workspace = self._rounds.workspace(members.subjects)
        if workspace is None:
            for _ in pair.order:
                progress.step()
            return []
        self._timer = self._timer or timing.Timer(self._sweep.session)
        checks = [self._rounds.ensure_checked(point, workspace, self._timer) for point in members.subjects]
        workspace.forget_reference()
        right = [place for place, check in enumerate(checks) if check.passed]
        visits: list[Visit] = []
        if pair.regime == SUSTAINED and not heated and right:
            hot = heat(self._device, self._load(members.subjects[right[0]], workspace, checks[right[0]].estimate_us))
            self._say(f"{members}: the GPU {'is hot' if hot else 'still warms up'}")
        for place in pair.order:
            if place in right:
                began, point = time.monotonic(), members.subjects[place]
                measure = partial(self._block, pair.regime, point, workspace, checks[place].estimate_us)
                block = self._rounds.if_it_fits([point], measure)
                if block is not None:
                    visits.append(Visit(place, block))
                    progress.step(_told(pair, visits[-1], time.monotonic() - began))
                    continue
            progress.step()
        if pair.regime == SUSTAINED:
            medians = {members.subjects[visit.subject]: _median(visit.block) for visit in visits}
            self._rounds.confirm(medians, workspace, self._timer)
        return visits

    def _block(self, regime: str, point: Point, workspace: Workspace, estimate_us: float) -> Block:
        load = self._load(point, workspace, estimate_us)
        return (
            sustained(self._device, load, self.settings.seconds) if regime == SUSTAINED else burst(self._device, load)
        )

    def _load(self, point: Point, workspace: Workspace, estimate_us: float) -> Load:
        """A subject on the operands, which holds a kernel's workspace; short launches as a graph, as in a sweep."""
        assert self._timer is not None
        call = self._rounds.bind(point, workspace)
        kernel = self._sweep.kernels.get(point.kernel)
        if not timing.wants_graphs(estimate_us, None) or (kernel is not None and not kernel.capturable):
            return Load(call, 1, estimate_us)
        launches = timing.graph_launches(estimate_us)
        graph = self._timer.capture([call] * launches)
        stream = self._sweep.session.stream

        def replay(kept: Any = call) -> None:
            graph.launch(stream)

        return Load(replay, launches, estimate_us)


def _told(pair: Pair, visit: Visit, spent: float) -> str:
    """A visit on one line, with the seconds that it took."""
    point, block = pair.members.subjects[visit.subject], visit.block
    state = {True: "steady", False: "not steady"} if pair.regime == SUSTAINED else {True: "rested", False: "warm"}
    return (
        f"{pair.regime:9} {point.kernel} {point.toolkit} {pair.members}: {_median(block):.2f} µs, "
        f"{state[block.ready]} after {block.waited_s:.1f} s, {spent:.1f} s in all"
    )


def _median(block: Block) -> float:
    return statistics.median(chunk.time_us for chunk in block.chunks)
