"""Gate keys: what a verdict of the numerical gate is filed under.

A verdict holds for one run (`registry.keys.run_key`), one protocol and one bound. The protocol is the code that draws
the cases and judges the results, so a verdict that an edited gate has not given is stale, however the edit is made.
"""

from __future__ import annotations

import json

from gemmrepro.core.dependencies import code_hash
from gemmrepro.core.trees import digest
from gemmrepro.gates.operations import gate_of
from gemmrepro.registry import Kernel, keys
from gemmrepro.registry.callables import described

JUDGING = frozenset({"gemmrepro.gates", "gemmrepro.core.arrays", "gemmrepro.core.draws", "gemmrepro.core.dtypes"})
"""Where code that judges stands; how a kernel is launched is part of the run."""


def protocol(kernel: Kernel) -> str:
    """A hash of the code that judges kernels of this operation."""
    gate = gate_of(kernel.compute.op)
    return code_hash(f"{gate.__module__}:{gate.__name__}", within=JUDGING)


def gate_key(kernel: Kernel, build_key: str) -> str:
    """What a verdict on this kernel's binary is filed under, as 16 hex digits."""
    bound = [
        described(kernel.promises.error),
        kernel.promises.error_copies,
        kernel.promises.spoils,
        kernel.compute.dtype_acc,
    ]
    return digest(json.dumps([keys.run_key(kernel, build_key), protocol(kernel), bound]))
