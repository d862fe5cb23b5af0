"""What the claims of cuTile count in machine code."""

from __future__ import annotations

import re

from gemmrepro.judge.metrics.calculated import Calculated, Inputs

TENSOR = re.compile(r"(HMMA|IMMA|QMMA|DMMA|HGMMA|QGMMA|IGMMA|UTC\wMMA)(\..*)?")
"""Instructions of a tensor core, of every architecture that cuTile compiles for."""


def tensor_instructions(given: Inputs) -> Calculated:
    """The tensor-core instructions of the first kernel's main entry point, for `given.arch`."""
    counts = {opcode: count for opcode, count in given.codes[0].instructions.items() if TENSOR.fullmatch(opcode)}
    return Calculated(float(sum(counts.values())), ", ".join(f"{count} {opcode}" for opcode, count in counts.items()))
