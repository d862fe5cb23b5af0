"""Helpers for NumPy and CuPy arrays, and how Inf and NaN spread in a product."""

from __future__ import annotations

from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """The module, NumPy or CuPy, that `array` belongs to."""
    if type(array).__module__.split(".")[0] == "cupy":
        import cupy

        return cupy
    return np


def nonfinite_lines(a: Any, b: Any) -> tuple[Any, Any]:
    """Masks of the rows of A ([m,1], bool) and of the columns of B ([1,n], bool) that contain Inf or NaN."""
    xp = namespace(a)
    return ~xp.isfinite(a).all(axis=1, keepdims=True), ~xp.isfinite(b).all(axis=0, keepdims=True)


def spoil(c: Any, rows: Any, columns: Any) -> Any:
    """C[m,n] with NaN in the masked `rows` [m,1] and `columns` [1,n], and every zero as +0."""
    xp = namespace(c)
    return xp.where(rows | columns, xp.nan, c + 0.0)
