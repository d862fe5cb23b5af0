"""NumPy in CuPy's place, for tests that need no GPU."""

from types import SimpleNamespace
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


class Random:
    """A generator whose arrays are the stand-in's."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def random(self, count: int) -> Array:
        return self._rng.random(count).view(Array)

    def standard_normal(self, count: int, dtype: type) -> Array:
        return self._rng.standard_normal(count, dtype=dtype).view(Array)


class StandIn(NumpyCupy):
    """CuPy's names that a workspace asks for."""

    float32, float64, int32, uint8 = np.float32, np.float64, np.int32, np.uint8
    random = SimpleNamespace(default_rng=Random)
    exp, minimum, abs = np.exp, np.minimum, np.abs
    where, bincount = staticmethod(np.where), staticmethod(np.bincount)
    zeros, repeat = staticmethod(np.zeros), staticmethod(np.repeat)
    ascontiguousarray = staticmethod(np.ascontiguousarray)

    @staticmethod
    def get_default_memory_pool() -> SimpleNamespace:
        return SimpleNamespace(free_all_blocks=lambda: None)
