"""How many blocks of a launch fit on an SM: by its registers, by its shared memory, and in all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gemmrepro.registry import Launch

WARP = 32
"""Threads of a warp."""

PARTITIONS = 4
"""An SM's registers are in so many parts; a warp's are all in one (since Volta)."""

REGISTER_UNIT, SHARED_UNIT = 256, 128
"""Registers are given to a warp, and bytes of shared memory to a block, in multiples of this (since Volta)."""


@dataclass(frozen=True)
class Multiprocessor:
    """What blocks share: the registers and bytes of shared memory of an SM, of which each block costs `reserved`."""

    count: int
    registers: int
    shared_bytes: int
    reserved_bytes: int

    def by_registers(self, registers: int, threads: int) -> int:
        """Blocks of `threads`, of so many registers each, whose registers an SM has."""
        each = REGISTER_UNIT * math.ceil(registers * WARP / REGISTER_UNIT)
        warps = PARTITIONS * (self.registers // PARTITIONS // each)
        return warps // math.ceil(threads / WARP)

    def by_shared_memory(self, shared_bytes: int) -> int:
        """Blocks whose shared memory, static and dynamic, an SM has."""
        each = SHARED_UNIT * math.ceil((shared_bytes + self.reserved_bytes) / SHARED_UNIT)
        return self.shared_bytes // each


@dataclass(frozen=True)
class Occupancy:
    """Blocks per SM that the registers, the shared memory, and all that limits them allow; waves of the grid."""

    by_registers: int
    by_shared_memory: int
    resident: int
    waves: float


def occupancy(function: Any, launch: Launch) -> Occupancy:
    """The occupancy of a launch of `function`, a kernel of cuda.core's, on the current GPU."""
    from cuda.core import Device

    properties = Device().properties
    sm = Multiprocessor(
        properties.multiprocessor_count,
        properties.max_registers_per_multiprocessor,
        properties.max_shared_memory_per_multiprocessor,
        properties.reserved_shared_memory_per_block,
    )
    threads = math.prod(launch.block)
    held = function.attributes
    resident = function.occupancy.max_active_blocks_per_multiprocessor(threads, launch.shared_bytes)
    return Occupancy(
        by_registers=sm.by_registers(held.num_regs, threads),
        by_shared_memory=sm.by_shared_memory(held.shared_size_bytes + launch.shared_bytes),
        resident=resident,
        waves=math.prod(launch.grid) / (sm.count * resident),
    )
