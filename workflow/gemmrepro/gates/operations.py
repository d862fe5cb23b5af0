"""The gate of every operation, the key that its verdicts are filed under, and what it takes and allows.

A verdict of the numerical gate holds for one run (`registry.keys.run_key`), one protocol and one bound. The protocol is
the code that draws cases and judges results, so any edit of that code makes older verdicts stale.
"""

import contextlib
import json
import math
import operator
from collections.abc import Iterator, Mapping
from threading import Condition
from types import MappingProxyType
from typing import Any

from gemmrepro.core.dependencies import code_hash
from gemmrepro.core.trees import digest
from gemmrepro.errors import GIB, UserError, too_large
from gemmrepro.gates import copies
from gemmrepro.gates.bounds import UNIT_ROUNDOFF, allowed_error
from gemmrepro.gates.ceilings import ArithmeticCeiling
from gemmrepro.gates.epilogue import SLOPE, GemmEpilogue
from gemmrepro.gates.gate import Gate
from gemmrepro.gates.gemm import Gemm
from gemmrepro.gates.pointwise import GAMMA, UNIT, Gelu
from gemmrepro.gates.scaled import ScaledGemm
from gemmrepro.gates.vectors import Histogram, Reduce, VectorCopy, WholeCopy
from gemmrepro.operations import Shape, nbytes, operation
from gemmrepro.registry import Kernel, card, keys
from gemmrepro.registry.keys import described

GATES: Mapping[str, type[Gate]] = MappingProxyType(
    {
        "gemm": Gemm,
        "gemm_epilogue": GemmEpilogue,
        "gemm_scaled": ScaledGemm,
        "vector_add": copies.VectorAdd,
        "vector_add_in_place": copies.VectorAddInPlace,
        "recurrence": copies.Recurrence,
        "walk": copies.Walk,
        "stream": copies.Stream,
        "copy": copies.MatrixCopy,
        "gelu": Gelu,
        "ceiling_flops": ArithmeticCeiling,
        "ceiling_bytes": copies.DeviceCopy,
        "vector_copy": VectorCopy,
        "whole_copy": WholeCopy,
        "reduce": Reduce,
        "histogram": Histogram,
    }
)
"""The gate of each of `operations.OPERATIONS`, by its name."""


def gate_of(op: str, gates: Mapping[str, type[Gate]] = GATES) -> type[Gate]:
    """The gate of the operation called `op`. Raises UserError if there is no such operation, or it has no gate."""
    if operation(op).name not in gates:
        raise UserError(f"operation '{op}' has no numerical gate; add one to gemmrepro.gates.operations.")
    return gates[op]


class Gates:
    """The gates of one run, each created once, so that kernels of an operation share what its gate caches."""

    def __init__(self, gates: Mapping[str, type[Gate]] = GATES) -> None:
        self._gates = gates
        self._made: dict[str, Gate] = {}

    def of(self, op: str) -> Gate:
        """As `gate_of`, created."""
        if op not in self._made:
            self._made[op] = gate_of(op, self._gates)()
        return self._made[op]


JUDGING = frozenset({"gemmrepro.gates", "gemmrepro.core.dtypes"})
"""Modules with code that judges; how a kernel is launched is part of the run."""


def protocol(kernel: Kernel) -> str:
    """A hash of the code that judges kernels of this operation."""
    gate = gate_of(kernel.compute.op)
    return code_hash(f"{gate.__module__}:{gate.__name__}", within=JUDGING)


def key_on(verdict: Mapping[str, Any], kernel: Kernel, build_key: str) -> str:
    """The key of a verdict on the card that gave `verdict`, a kernel's object in a numerical gate."""
    with card.of(verdict):
        return gate_key(kernel, build_key)


def gate_key(kernel: Kernel, build_key: str) -> str:
    """The key of a verdict on this kernel's binary: 16 hex digits."""
    bound = [
        described(kernel.promises.error),
        kernel.promises.error_copies,
        kernel.promises.spoils,
        kernel.compute.dtype_acc,
        kernel.compute.promoted,
    ]
    return digest(json.dumps([keys.run_key(kernel, build_key, timed=False), protocol(kernel), bound]))


Bytes = tuple[int, int]
"""Memory of the GPU, and of the host."""

PROCESS: Bytes = (GIB // 2, 3 * GIB // 2)
"""Memory that a process takes before it judges anything: CUDA's context, libraries, and a few references."""

DRAWN = 3
"""Memory of the host that a case takes, as a multiple of its arrays: int64 numbers from which 16-bit ones are made."""


def needed_memory(kernel: Kernel) -> Bytes:
    """The most memory that a case of `kernel` takes, with its process."""
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mn"}
    matrices = copies.MATRICES if gate_of(kernel.compute.op) is copies.MatrixCopy else ()
    shapes = (*(Shape(m * step["m"], n * step["n"], 1) for m, n in matrices), *kernel.promises.gate_shapes)
    most = max((nbytes(kernel.problem, shape) for shape in shapes), default=0)
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


def allowed(kernel: Kernel, gamma: float | None) -> float | None:
    """The largest error that passes, in units of |A||B| and the output's roundoff; None where there is no such bound.
    `gamma`: of the product's sum. An epilogue's is in units of S, and at its largest, where |y| and |D| are S."""
    found = allowed_error(gamma, kernel.compute.dtype_out)
    if not found or gamma is None or gate_of(kernel.compute.op) is not GemmEpilogue:
        return found
    unit = UNIT_ROUNDOFF[kernel.compute.dtype_out]
    limit = gamma + 4 * UNIT
    if kernel.run.steps:
        limit += unit * (1 + limit)
    limit = SLOPE * limit + GAMMA + 2 * UNIT
    return (limit + unit * (1 + limit)) / unit
