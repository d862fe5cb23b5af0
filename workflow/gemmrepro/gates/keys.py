"""Gate keys: the keys that verdicts of the numerical gate are filed under.

A verdict holds for one run (`registry.keys.run_key`), one protocol and one bound. The protocol is the code that draws
cases and judges results, so any edit of that code makes older verdicts stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gemmrepro.core.dependencies import code_hash
from gemmrepro.core.trees import digest
from gemmrepro.gates.operations import gate_of
from gemmrepro.registry import Kernel, card, keys
from gemmrepro.registry.callables import described

JUDGING = frozenset({"gemmrepro.gates", "gemmrepro.core.draws", "gemmrepro.core.dtypes"})
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
