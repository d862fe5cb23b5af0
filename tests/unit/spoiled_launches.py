"""What a launch may do wrong besides its numbers, and what a gate must say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import bits
from gemmrepro.gates.gate import POISON_BITS
from gemmrepro.operands import Operands


def _bits(array: Any) -> np.ndarray:
    stored: np.ndarray = bits(np.asarray(array).reshape(-1))
    return stored


def spoil_input(given: Operands, place: int) -> None:
    """Change one bit of an input."""
    _bits(given.inputs[place])[:1] ^= 1


def _left(given: Operands, number: int) -> None:
    stored = _bits(given.output)
    stored[:1] = POISON_BITS[stored.itemsize]


def _raced(given: Operands, number: int) -> None:
    _bits(given.output)[:1] ^= number


def _outside(given: Operands, number: int) -> None:
    whole = np.asarray(given.output)
    while isinstance(whole.base, np.ndarray):  # up to the allocation that holds the guard bands
        whole = whole.base
    _bits(whole)[:1] ^= 1


SPOILED: dict[str, Callable[[Operands, int], None]] = {
    "some elements were never written": _left,
    "launches on the same input differ: a race": _raced,
    "elements outside the arrays were overwritten": _outside,
}
"""By what the gate says: what is done to the operands after a right launch; launches are counted from 0."""
