"""Scheme II, backward: the integer C' with |C'| < M / 2 from its residues.

In mixed radix, C' = v_0 + p_0 (v_1 + p_1 (v_2 + ...)) with digits v_i symmetric modulo p_i (Garner). The digits take N
(N - 1) / 2 small modular steps per element, all in int32 range. As symmetric digits below the highest nonzero one never
sum to more than half its weight, Horner's rule from the top loses at most a bit to cancellation, so double-double keeps
about 100 bits *of the result*. (The classical sum of M / p_i weights subtracts a multiple of M at the end and loses
as many bits as C' lies below M.) `python_integers` is exact and slow; the double-double version is tested against it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmrepro.ozaki import moduli
from gemmrepro.ozaki.arrays import namespace
from gemmrepro.ozaki.double_double import add, times
from gemmrepro.ozaki.residues import symmetric


def mixed_radix(residues: list[Any]) -> list[Any]:
    """Digits v_i, int64 arrays, |v_i| <= p_i / 2, of the integers with those int8 residues."""
    factors = moduli.moduli(len(residues))
    digits: list[Any] = []
    for i, p in enumerate(factors):
        digit = residues[i].astype(np.int64)
        for v, q in zip(digits, factors, strict=False):
            digit = symmetric((digit - v) * pow(q, -1, p), p)
        digits.append(symmetric(digit, p))
    return digits


def to_double_double(residues: list[Any]) -> tuple[Any, Any]:
    """(hi, lo) float64: C' to a relative 2^-97: 24 moduli, each a product and a sum of 2^-104, and one bit lost."""
    digits = mixed_radix(residues)
    xp = namespace(digits[0])
    hi, lo = digits[-1].astype(xp.float64), xp.zeros(digits[-1].shape)
    for v, p in zip(reversed(digits[:-1]), reversed(moduli.moduli(len(residues))[:-1]), strict=True):
        hi, lo = add(*times(hi, lo, float(p)), v.astype(xp.float64))
    return hi, lo


def python_integers(residues: list[np.ndarray]) -> np.ndarray:
    """C' exactly, as Python integers in an object array; NumPy only. By the classical formula, sum r_i w_i modulo M."""
    modulus = moduli.product(len(residues))
    total = np.zeros(residues[0].shape, dtype=object)
    for r, p in zip(residues, moduli.moduli(len(residues)), strict=True):
        weight = modulus // p * pow(modulus // p, -1, p)
        total = total + r.astype(object) * weight
    total = total % modulus
    return np.where(total >= modulus // 2, total - modulus, total) if total.size else total
