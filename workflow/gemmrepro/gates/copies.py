"""The numerical gate of copies, of vector addition and of the probes of the memory hierarchy: all are exact.

A probe must do exactly the work that is timed: a chain of dependent multiply-adds must end at the right number, a walk
along links at the right link, and a stream's words must add up, all modulo 2^32. Clocks only have to advance.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import address_of, bits, draw_words, link_to
from gemmrepro.gates.gate import POISON_BITS, SOURCE_GUARD_BITS, Case, Gate, Guarded, Judged, Verdict, bit_for_bit
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import PROBE_RESULTS, RECURRENCE, STREAM_CHUNK, Problem, Shape
from gemmrepro.registry import Kernel

LENGTHS = (1, 31, 1023, 4096, 100_003, (1 << 20) + 5)
MATRICES = ((1, 1), (3, 17), (129, 9), (200, 16), (1000, 130))
"""Rows and columns, in multiples of `Accepts.multiple_of`."""


def run_exact(
    session: Session,
    launch: Launcher,
    problem: Problem,
    shape: Shape,
    inputs: list[np.ndarray],
    expected: np.ndarray,
    before: np.ndarray | None = None,
) -> Verdict:
    """Launch an operation with an exact result once, and compare output and guard elements bit for bit.
    `before`: the output before the launch, for an operation that reads it; by default poison."""
    arrays = [Guarded(values, SOURCE_GUARD_BITS) for values in inputs]
    poison = np.full(expected.shape, POISON_BITS[expected.itemsize], bits(expected).dtype).view(expected.dtype)
    out = Guarded(poison if before is None else before)
    launch(Operands(problem, shape, tuple(guarded.array for guarded in arrays), out.array))
    session.sync()
    got = out.array.get()
    wrong = bits(got) != bits(expected)
    problems = []
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        problems.append(
            f"{int(wrong.sum())} of {got.size} elements are wrong; the first is [{index}] = {got.flat[index]:.9g}, "
            f"expected {expected.flat[index]:.9g}"
        )
    broken = out.broken() + sum(guarded.broken() for guarded in arrays)
    if broken:
        problems.append(f"{broken} elements outside the arrays were overwritten")
    return Verdict(not problems, 0.0 if not wrong.any() else None, None, "; ".join(problems))


def _special_values(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x[n] and y[n] float32, normal, with some infinities, subnormals and values near the largest."""
    rng = np.random.default_rng([seed, n])
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    special = rng.integers(0, n, 3)
    x[special], y[special[:1]] = (np.inf, 1e-42, 3e38), 3e38
    return x, y


class _ExactVectors(Gate):
    """Operations on fp32 vectors whose result is exactly defined."""

    @abstractmethod
    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Inputs made of `x` and `y`, and the expected output."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for seed in seeds:
            for n in LENGTHS:
                shape = Shape(1, n, 1)
                with np.errstate(over="ignore", invalid="ignore"):
                    inputs, expected = self.data(*_special_values(n, seed))
                verdict = run_exact(session, launch, kernel.problem, shape, inputs, expected)
                yield Judged(Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0)

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class VectorAdd(_ExactVectors):
    """z = x + y, rounded once."""

    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        return [x, y], x + y

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0] + operands.inputs[1]


class VectorAddInPlace(Gate):
    """y = x + y in place, rounded once."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for seed in seeds:
            for n in LENGTHS:
                shape, (x, y) = Shape(1, n, 1), _special_values(n, seed)
                with np.errstate(over="ignore", invalid="ignore"):
                    expected = x + y
                verdict = run_exact(session, launch, kernel.problem, shape, [x], expected, before=y)
                yield Judged(Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0)

    def reference(self, operands: Operands) -> Any:
        """The sum; to be asked for before the launch."""
        return operands.inputs[0] + operands.output

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


class DeviceCopy(_ExactVectors):
    """A copy of elements of 16 bytes."""

    def data(self, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        data = np.concatenate([x, y, x[::-1], y[::-1]])
        return [data], data

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0]


class MatrixCopy(Gate):
    """A copy of a matrix of 16-bit elements."""

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mn"}
        for seed in seeds:
            for m, n in MATRICES:
                shape = Shape(m * step["m"], n * step["n"], 1)
                # Any bits at all, NaNs of every payload among them.
                data = np.random.default_rng([seed, m, n]).integers(0, 2**16, shape.m * shape.n).astype(np.uint16)
                verdict = run_exact(session, launch, kernel.problem, shape, [data], data)
                yield Judged(Case(shape, 1.0, 0.0, "random bits", seed), verdict, 0.0)

    def reference(self, operands: Operands) -> Any:
        return operands.inputs[0]

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        return bit_for_bit(operands.output, reference)


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

    def cases(self, session: Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]) -> Iterator[Judged]:
        for seed in seeds:
            for shape, inputs, problems in self.of_seed(session, kernel, launch, seed):
                verdict = Verdict(not problems, None if problems else 0.0, None, "; ".join(problems))
                yield Judged(Case(shape, 1.0, 0.0, inputs, seed), verdict, 0.0)

    @abstractmethod
    def of_seed(
        self, session: Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        """Launch every case of one seed; yields its shape, its inputs in words, and what is wrong."""

    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """A chain's clocks must have advanced; only experiments time these kernels, and the cases judge the rest."""
        moved = operands.output.size != PROBE_RESULTS or int(operands.output[1]) > 0
        return Verdict(moved, None, None, "" if moved else "the clock did not advance")


def _launched(
    session: Session, launch: Launcher, problem: Problem, shape: Shape, source: Guarded | None, size: int
) -> tuple[np.ndarray, list[str]]:
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
    """The fault of a chain's results: where it ended, and its clocks."""
    ended = int(bits(got)[0])
    problems = [] if ended == expected else [f"the {what} ended at {ended}, expected {expected}"]
    return problems + ([] if got[1] > 0 and got[2] >= 0 else [f"its clocks say {got[1]} cycles and {got[2]} ns"])


class Recurrence(_Probe):
    """A chain of dependent integer multiply-adds, exact."""

    def of_seed(
        self, session: Session, kernel: Kernel, launch: Launcher, seed: int
    ) -> Iterator[tuple[Shape, str, list[str]]]:
        step = kernel.accepts.multiple_of.get("k", 1)
        for start, times in ((1, 1), (12345 + seed % 1000, 7), (2**31 - 1, 40)):
            shape = Shape(1, start, step * times)
            got, problems = _launched(session, launch, kernel.problem, shape, None, PROBE_RESULTS)
            yield shape, "a start", _end(got, advance(start, shape.k), "chain") + problems


class Walk(_Probe):
    """A walk along links, which ends at the right one."""

    def of_seed(
        self, session: Session, kernel: Kernel, launch: Launcher, seed: int
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
        self, session: Session, kernel: Kernel, launch: Launcher, seed: int
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
