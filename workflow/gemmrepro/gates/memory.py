"""Memory that kernels are judged in: how much a case takes, and processes side by side only as far as it is free."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator
from threading import Condition

from gemmrepro.errors import GIB, too_large
from gemmrepro.gates.copies import MATRICES, MatrixCopy
from gemmrepro.gates.operations import gate_of
from gemmrepro.operations import Shape, nbytes
from gemmrepro.registry import Kernel

Bytes = tuple[int, int]
"""Memory of the GPU, and of the host."""

PROCESS: Bytes = (GIB // 2, 3 * GIB // 2)
"""What a process takes before it judges anything: CUDA's context, libraries, and a few references."""

DRAWN = 3
"""Memory of the host that a case takes, as a multiple of its arrays: int64 numbers from which 16-bit ones are made."""


def needed_memory(kernel: Kernel) -> Bytes:
    """The most memory that a case of `kernel` takes, with its process."""
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mn"}
    copies = [Shape(m * step["m"], n * step["n"], 1) for m, n in MATRICES if gate_of(kernel.compute.op) is MatrixCopy]
    most = max((nbytes(kernel.problem, shape) for shape in (*copies, *kernel.promises.gate_shapes)), default=0)
    return PROCESS[0] + most, PROCESS[1] + DRAWN * most


class Memory:
    """Free memory that processes share; None where it is not known, which is then taken for enough."""

    def __init__(self, gpu: int | None, host: int | None) -> None:
        self._free = [math.inf if free is None else free for free in (gpu, host)]
        self._left, self._users, self._changed = list(self._free), 0, Condition()

    def lacks(self, needed: Bytes) -> str:
        """Why not even one process that needs so much can run, or ""."""
        kinds = ("", " of the host's memory")
        return next(filter(None, map(too_large, needed, self._free, kinds)), "")

    @contextlib.contextmanager
    def taken(self, needed: Bytes) -> Iterator[None]:
        """Waits until so much is left, and takes it; whoever is alone need not wait."""
        with self._changed:
            self._changed.wait_for(lambda: not self._users or all(map(operator.le, needed, self._left)))
            self._add(-1, needed)
        try:
            yield
        finally:
            with self._changed:
                self._add(1, needed)
                self._changed.notify_all()

    def _add(self, sign: int, needed: Bytes) -> None:
        self._users -= sign
        self._left = [left + sign * each for left, each in zip(self._left, needed, strict=True)]
