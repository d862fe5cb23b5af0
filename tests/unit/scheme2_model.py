"""Scheme II of `crt` in NumPy: what its one-pass rungs and device functions must find."""

from __future__ import annotations

import math

import numpy as np

from gemmrepro.ozaki.residues import _SAFE, _floor_log2, normalised, radius


def exponents_by_norms(a: np.ndarray, b: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(s [m,1], t [1,n]), int32: the largest with ||a'|| <= R and ||b'|| <= R, rounded to nearest; 0 of zeros."""
    k = a.shape[1]
    room = radius(count) - 0.5 * math.sqrt(k) * (1 + _SAFE)
    exponents = []
    for x, scale, axis in ((a, "row", 1), (b, "column", 0)):
        unit, exponent = normalised(x, scale)
        norm = np.sqrt((unit * unit).sum(axis=axis, keepdims=True)) * (1.0 + (k + 8) * 2.0**-52)
        free = _floor_log2(room * (1.0 - _SAFE) / np.where(norm > 0, norm, 1.0)) - exponent
        exponents.append(np.where(norm > 0, free, 0).astype(np.int32))
    return exponents[0], exponents[1]


def symmetric(x: np.ndarray, p: int) -> np.ndarray:
    """The residues of integer-valued `x` modulo `p` of least magnitude; 256 gives -128 to 127."""
    residue = x % p
    return np.where(residue > (p - 1) // 2, residue - p, residue)
