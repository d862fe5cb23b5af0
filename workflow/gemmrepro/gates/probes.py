"""The numerical gate of the probes of the memory hierarchy: does each do exactly the work that is timed?

A chain of dependent multiply-adds must end at the right number, a walk along links at the right link, and the words
that a stream reads must add up. Sums and recurrences are of integers modulo 2^32, hence exact. Clocks are not judged,
only that they advanced.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gemmrepro.core.draws import address_of, draw_words, link_to
from gemmrepro.core.dtypes import bits
from gemmrepro.gates.compare import Verdict
from gemmrepro.gates.gate import Case, Gate, Judged
from gemmrepro.gates.guarded import POISON_BITS, SOURCE_GUARD_BITS, Guarded
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import PROBE_RESULTS, RECURRENCE, STREAM_CHUNK, Problem, Shape
from gemmrepro.registry import Kernel

WALKS = ((2, 2, 1), (64, 2, 5), (512, 32, 3), (8192, 2, 40), (8192, 64, 40))
"""Words, words between links, and hops in multiples of what the kernel takes."""

STREAMS = ((1, 1), (3, 2), (17, 5), (300, 3))
"""Chunks and passes."""


def advance(x: int, steps: int) -> int:
    """x after `steps` of the recurrence x -> a x + c modulo 2^32."""
    for _ in range(steps):
        x = (x * RECURRENCE[0] + RECURRENCE[1]) % 2**32
    return x


def destination(order: np.ndarray, hops: int) -> int:
    """The place that a walk along the cycle `order`, from its element 0 on, reaches after `hops`."""
    start = int(np.flatnonzero(order == 0)[0])
    return int(order[(start + hops) % order.size])


class _Probe(Gate):
    """A kernel whose results are integers."""

    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        for seed in seeds:
            for shape, inputs, problems in self.of_seed(session, kernel, launch, seed):
                verdict = Verdict(not problems, None if problems else 0.0, None, "; ".join(problems))
                yield Judged(Case(shape, 1.0, 0.0, inputs, seed), verdict, 0.0)

    @abstractmethod
    def of_seed(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        """Launch every case of one seed; yields its shape, its inputs in words, and what is wrong."""

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """A chain's clocks must have advanced; only experiments time these kernels, and the cases judge the rest."""
        moved = operands.output.size != PROBE_RESULTS or int(operands.output[1]) > 0
        return Verdict(moved, None, None, "" if moved else "the clock did not advance")


def _launched(
    session: device.Session, launch: Launcher, problem: Problem, shape: Shape, source: Guarded | None, size: int
) -> tuple[np.ndarray, list[str]]:
    """The output of one launch, and what it overwrote."""
    out = Guarded(np.full(size, POISON_BITS[4], np.uint32).view(np.int32))
    before = source.array.get() if source else None
    launch(Operands(problem, shape, (source.array,) if source else (), out.array))
    session.sync()
    problems = []
    if broken := out.broken() + (source.broken() if source else 0):
        problems.append(f"{broken} elements outside the arrays were overwritten")
    if source and (source.array.get() != before).any():
        problems.append("the input was overwritten")
    return out.array.get(), problems


def _end(got: np.ndarray, expected: int, what: str) -> list[str]:
    """What is wrong with a chain's results: where it ended, and its clocks."""
    ended = int(bits(got)[0])
    problems = [] if ended == expected else [f"the {what} ended at {ended}, expected {expected}"]
    return problems + ([] if got[1] > 0 and got[2] >= 0 else [f"its clocks say {got[1]} cycles and {got[2]} ns"])


class Recurrence(_Probe):
    """A chain of dependent integer multiply-adds, exact."""

    def of_seed(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        step = kernel.accepts.multiple_of.get("k", 1)
        for start, times in ((1, 1), (12345 + seed % 1000, 7), (2**31 - 1, 40)):
            shape = Shape(1, start, step * times)
            got, problems = _launched(session, launch, kernel.problem, shape, None, PROBE_RESULTS)
            yield shape, "a start", _end(got, advance(start, shape.k), "chain") + problems


class Walk(_Probe):
    """A walk along links, which ends at the right one."""

    def of_seed(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        step = kernel.accepts.multiple_of.get("k", 1)
        for words, spacing, times in WALKS:
            shape = Shape(1, words, step * times)
            source = Guarded(np.zeros(words, np.int32), SOURCE_GUARD_BITS)
            order = np.random.default_rng([seed, words, spacing]).permutation(words // spacing) * spacing
            host = np.zeros(words, np.int32)
            link_to(host, 4 * order, 4 * np.roll(order, -1) + address_of(source.array) - address_of(host), np)
            source.array.set(host)
            got, problems = _launched(session, launch, kernel.problem, shape, source, PROBE_RESULTS)
            # The walk begins a hop before the clock starts.
            problems = _end(got, destination(order, shape.k + 1), "walk") + problems
            yield shape, f"links {4 * spacing} bytes apart", problems


class Stream(_Probe):
    """Sums of everything that is read, exact modulo 2^32."""

    def of_seed(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        for chunks, passes in STREAMS:
            shape = Shape(1, chunks * STREAM_CHUNK, passes)
            words = draw_words(shape.n, seed + chunks, np)
            got, problems = _launched(
                session, launch, kernel.problem, shape, Guarded(words, SOURCE_GUARD_BITS), chunks * passes
            )
            written = bits(got) != POISON_BITS[4]  # a kernel may leave one sum a chunk, of all passes
            total = int(bits(got)[written].sum(dtype=np.uint64)) % 2**32
            expected = passes * int(bits(words).sum(dtype=np.uint64)) % 2**32
            if total != expected:
                problems.insert(0, f"the words read add up to {total}, expected {expected}")
            yield shape, "random words", problems
