"""The gate of every operation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gemmrepro.errors import UserError
from gemmrepro.gates.ceilings import ArithmeticCeiling
from gemmrepro.gates.copies import DeviceCopy, MatrixCopy, VectorAdd, VectorAddInPlace
from gemmrepro.gates.epilogue import GemmEpilogue
from gemmrepro.gates.gate import Gate
from gemmrepro.gates.gemm import Gemm
from gemmrepro.gates.pointwise import Gelu
from gemmrepro.gates.probes import Recurrence, Stream, Walk
from gemmrepro.gates.scaled import ScaledGemm
from gemmrepro.gates.vectors import Histogram, Reduce, VectorCopy
from gemmrepro.operations import operation

GATES: Mapping[str, type[Gate]] = MappingProxyType(
    {
        "gemm": Gemm,
        "gemm_epilogue": GemmEpilogue,
        "gemm_scaled": ScaledGemm,
        "vector_add": VectorAdd,
        "vector_add_in_place": VectorAddInPlace,
        "recurrence": Recurrence,
        "walk": Walk,
        "stream": Stream,
        "copy": MatrixCopy,
        "gelu": Gelu,
        "ceiling_flops": ArithmeticCeiling,
        "ceiling_bytes": DeviceCopy,
        "vector_copy": VectorCopy,
        "reduce": Reduce,
        "histogram": Histogram,
    }
)
"""The gate of each of `operations.OPERATIONS`, by its name."""


def gate_of(op: str) -> type[Gate]:
    """The gate of the operation called `op`. Raises UserError if there is no such operation, or it has no gate."""
    return _gate_of(op, GATES)


def _gate_of(op: str, gates: Mapping[str, type[Gate]]) -> type[Gate]:
    if operation(op).name not in gates:
        raise UserError(f"operation '{op}' has no numerical gate; add one to gemmrepro.gates.operations.")
    return gates[op]


class Gates:
    """The gates of one run, each created once, so that kernels of an operation share what its gate caches."""

    def __init__(self, gates: Mapping[str, type[Gate]] = GATES) -> None:
        self._gates = gates
        self._made: dict[str, Gate] = {}

    def of(self, op: str) -> Gate:
        """The gate of the operation called `op`. Raises UserError if there is no such operation, or it has no gate."""
        if op not in self._made:
            self._made[op] = _gate_of(op, self._gates)()
        return self._made[op]
