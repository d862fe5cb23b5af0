"""Arrays on the GPU that show what was written where: guard bands around them, poison in them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmrepro.core.dtypes import bits

GUARD = 2048
"""Guard elements on each side of an array; 4 KB or more keeps the array's own alignment."""

GUARD_BITS = {8: 0x7FFE5A5A5A5A5A5A, 4: 0x7FE5A5A5, 2: 0x7FE5, 1: 0x7F}
"""Quiet NaNs whose payload no arithmetic makes, by element size; the 16-bit ones are NaN as fp16 and as bf16, that of 8
bits as e4m3 and as e5m2. As an integer each is a number, near the largest where it is signed."""

SOURCE_GUARD_BITS = {8: 0x7FFE3C3C3C3C3C3C, 4: 0x7FE3C3C3, 2: 0x7FE3, 1: 0xFF}
"""The same for what an operation reads and may copy: an element too many would bring the other band's bits with it."""

POISON_BITS = {8: 0x7FFC0DEADC0DEAD0, 4: 0x7FC0DEAD, 2: 0x7FCD, 1: 0x7F}


class Guarded:
    """An array of stored elements on the GPU between two guard bands.

    Both are put there in one copy, and looked at on the host: no kernel of CuPy's own has to be compiled for it.
    `guards` are the bits of a guard element, by element size.
    """

    def __init__(self, values: np.ndarray, guards: Mapping[int, int] = GUARD_BITS) -> None:
        import cupy

        self._guard = guards[values.dtype.itemsize]
        flat = np.empty(values.size + 2 * GUARD, dtype=values.dtype)
        bits(flat)[...] = self._guard
        flat[GUARD : GUARD + values.size] = values.ravel()
        self._flat = cupy.empty(flat.size, dtype=values.dtype)
        self._flat.set(flat)
        self.array = self._flat[GUARD : GUARD + values.size].reshape(values.shape)

    def broken(self) -> int:
        """How many guard elements something wrote to."""
        ends = self._flat[:GUARD].get(), self._flat[-GUARD:].get()
        return sum(int((bits(end) != self._guard).sum()) for end in ends)
