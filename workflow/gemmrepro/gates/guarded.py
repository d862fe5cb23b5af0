"""Arrays on the GPU between guard bands, and bit patterns to poison them with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmrepro.core.dtypes import bits

GUARD = 2048
"""Guard elements on each side of an array; 4 KB or more keeps the array's own alignment."""

GUARD_BITS = {8: 0x7FFE5A5A5A5A5A5A, 4: 0x7FE5A5A5, 2: 0x7FE5, 1: 0x7F}
"""Quiet NaNs whose payload no arithmetic produces, by element size in bytes. The 16-bit one is NaN in fp16 and bf16,
the 8-bit one in e4m3 and e5m2; as signed integers they are near the largest."""

SOURCE_GUARD_BITS = {8: 0x7FFE3C3C3C3C3C3C, 4: 0x7FE3C3C3, 2: 0x7FE3, 1: 0xFF}
"""Guard bits of inputs. They differ from those of outputs, so that a copy of one element too many is detected."""

POISON_BITS = {8: 0x7FFC0DEADC0DEAD0, 4: 0x7FC0DEAD, 2: 0x7FCD, 1: 0x7F}


class Guarded:
    """An array of stored elements on the GPU between two guard bands.

    The bands are written in one copy and checked on the host, so that CuPy compiles no kernel for it. `guards` are the
    bits of a guard element by element size.
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
        """The number of guard elements that were overwritten."""
        ends = self._flat[:GUARD].get(), self._flat[-GUARD:].get()
        return sum(int((bits(end) != self._guard).sum()) for end in ends)
