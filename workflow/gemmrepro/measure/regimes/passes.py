"""Measures what a journal lacks of the regimes of one family, a pair of passes at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmrepro import timing
from gemmrepro.core.progress import Progress
from gemmrepro.measure.plan import Point
from gemmrepro.measure.prepare import Sweep
from gemmrepro.measure.regimes.blocks import Block, Device, Load, burst, heat, sustained
from gemmrepro.measure.regimes.plan import Pair, RegimeSettings, Set, pairs
from gemmrepro.measure.regimes.rules import SUSTAINED, Chunk, Reading
from gemmrepro.measure.rounds import Rounds, passed
from gemmrepro.measure.workspace import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True)
class Visit:
    """A block and whose it is: the place of the subject in its set."""

    subject: int
    block: Block

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Visit:
        """From a journal entry."""
        block = Block(
            ready=document["ready"],
            waited_s=document["waited_s"],
            chunks=[Chunk(*cells) for cells in document["chunks"]],
            readings=[Reading(*cells) for cells in document["readings"]],
        )
        return cls(document["subject"], block)

    @property
    def document(self) -> dict[str, Any]:
        """The journal entry."""
        return {
            "subject": self.subject,
            "ready": self.block.ready,
            "waited_s": self.block.waited_s,
            "chunks": [[chunk.at_s, chunk.launches, chunk.time_us] for chunk in self.block.chunks],
            "readings": [
                [each.at_s, each.clock_mhz, each.power_w, each.temp_c, each.throttle, each.energy_j]
                for each in self.block.readings
            ],
        }


class Passes:
    """The passes of a family over its sets."""

    def __init__(
        self, sweep: Sweep, settings: RegimeSettings, members: Sequence[Set], device: Device, say: Say
    ) -> None:
        """
        Args:
            sweep: prepared with the family's points; its journal also holds the passes.
        """
        self.settings, self.members = settings, tuple(members)
        self._sweep, self._device, self._say = sweep, device, say
        self._rounds = Rounds(sweep, say)
        self._timer: timing.Timer | None = None

    @property
    def wanted(self) -> list[Pair]:
        """Every pair of passes, measured or not."""
        return pairs(self.members, self.settings.pairs)

    def visits(self, pair: Pair) -> list[Visit] | None:
        """The blocks of `pair` in the journal, in the order in which they were measured; None if it has none."""
        document = self._sweep.records.journal.get(pair.name, self._identity(pair))
        return None if document is None else [Visit.of(each) for each in document["visits"]]

    def _identity(self, pair: Pair) -> dict[str, Any]:
        records = self._sweep.records
        subjects = [
            [point.kernel, point.toolkit, records.build_key(point), records.run_key(point)]
            for point in pair.members.subjects
        ]
        return {**records.machine, "subjects": subjects, "sampling": self.settings.sampling}

    def run(self, deadline: float | None) -> bool:
        """Measure what the journal lacks; False if `deadline` passed before all of it was measured."""
        wanted = self.wanted
        todo = [pair for pair in wanted if self.visits(pair) is None]
        total = sum(pair.blocks for pair in wanted)
        last: str | None = None
        with Progress("regimes", total, total - sum(pair.blocks for pair in todo)) as progress:
            for pair in todo:
                if passed(deadline):
                    return False
                # After rests and after other work the GPU is not hot.
                visits = self._measure(pair, progress, heated=last == pair.regime == SUSTAINED)
                found = {"visits": [visit.document for visit in visits]}
                self._sweep.records.journal.put(pair.name, self._identity(pair), found)
                last = pair.regime
        return True

    def _measure(self, pair: Pair, progress: Progress, heated: bool) -> list[Visit]:
        members = pair.members
        workspace = self._rounds.workspace(members.problem, members.shape, members.subjects)
        if workspace is None:
            for _ in range(pair.blocks):
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
        for place in [*members.order(False), *members.order(True)]:
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
        """A block of a subject in a regime."""
        load = self._load(point, workspace, estimate_us)
        return (
            sustained(self._device, load, self.settings.seconds) if regime == SUSTAINED else burst(self._device, load)
        )

    def _load(self, point: Point, workspace: Workspace, estimate_us: float) -> Load:
        """A subject on the operands; short launches as a graph, like those of a sweep.

        What it holds, a kernel's workspace among it, is free again with it.
        """
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
    """A visit on one line; `spent` are the seconds that it took."""
    point, block = pair.members.subjects[visit.subject], visit.block
    state = {True: "steady", False: "not steady"} if pair.regime == SUSTAINED else {True: "rested", False: "warm"}
    return (
        f"{pair.regime:9} {point.kernel} {point.toolkit} {pair.members}: {_median(block):.2f} µs, "
        f"{state[block.ready]} after {block.waited_s:.1f} s, {spent:.1f} s in all"
    )


def _median(block: Block) -> float:
    return statistics.median(chunk.time_us for chunk in block.chunks)
