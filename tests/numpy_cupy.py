"""NumPy in CuPy's place, for tests that need no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np


class Array(np.ndarray):
    """A NumPy array with what the gate asks of a CuPy array."""

    def get(self) -> np.ndarray:
        return np.array(self)

    def set(self, values: np.ndarray) -> None:
        self[...] = values


class NumpyCupy:
    """A module `cupy` whose arrays are NumPy's."""

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> Array:
        return np.empty(shape, dtype).view(Array)

    @staticmethod
    def asarray(values: Any) -> Array:
        return np.asarray(values).view(Array)
