"""Arrays on the GPU that show what was written where: guard bands around them, poison in them."""

from __future__ import annotations

import numpy as np

from gemmrepro.operands import bits

GUARD = 2048
"""Guard elements on each side of an array; 4 KB or more keeps the array's own alignment."""
GUARD_BITS = {4: 0x7FE5A5A5, 2: 0x7FE5}
"""Quiet NaNs whose payload no arithmetic makes, by element size; the 16-bit ones are NaN as fp16 and as bf16."""
POISON_BITS = {4: 0x7FC0DEAD, 2: 0x7FCD}


class Guarded:
    """An array of stored elements on the GPU between two guard bands."""

    def __init__(self, values: np.ndarray) -> None:
        import cupy

        self._flat = cupy.empty(values.size + 2 * GUARD, dtype=values.dtype)
        self._bits, self._guard = bits(self._flat), GUARD_BITS[values.dtype.itemsize]
        self._bits[...] = self._guard
        self.array = self._flat[GUARD : GUARD + values.size].reshape(values.shape)
        self.array.set(np.ascontiguousarray(values))

    def broken(self) -> int:
        """How many guard elements something wrote to."""
        low, high = self._bits[:GUARD], self._bits[-GUARD:]
        return int((low != self._guard).sum() + (high != self._guard).sum())
