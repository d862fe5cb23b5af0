"""Inner products of digits: exact, or as an accumulator of few bits rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmrepro.errors import UserError
from gemmrepro.ozaki.arrays import namespace

DOUBLE_BITS = 53
INT32_LIMIT = 2**31 - 1


def _largest(digits: Any) -> int:
    return int(namespace(digits).abs(digits).max()) if digits.size else 0


def exact(a: Any, b: Any) -> Any:
    """The product of integer-valued float64 `a` [m,k] and `b` [k,n], exactly.

    Computed as a float64 product, whose partial sums are integers of at most 2^53. With CuPy arrays that is a cuBLAS
    DGEMM: leave its FP64 emulation off.

    Raises:
        UserError: the digits are too large for a guarantee.
    """
    if a.shape[1] * _largest(a) * _largest(b) > 1 << DOUBLE_BITS:
        raise UserError("these digits sum beyond 2^53, where float64 rounds; split k into blocks or use exact.product.")
    return a @ b


def int32(a: Any, b: Any) -> Any:
    """The same product as an int32 accumulator computes it, returned as int64 [m,n].

    Raises:
        UserError: a sum of absolute values may pass 2^31 - 1, so the accumulator may overflow.
    """
    if a.shape[1] * _largest(a) * _largest(b) > INT32_LIMIT:
        raise UserError(f"inner products of {a.shape[1]} of these digits may overflow int32; split k into blocks.")
    return exact(a, b).astype(np.int64)


def round_bits(x: Any, bits: int, mode: str = "nearest") -> Any:
    """float64 `x` rounded to `bits` significant bits: "nearest" (ties to even) or "truncate" (toward zero).

    Exponents are unbounded: sums of scaled digits neither overflow nor underflow fp32.

    Raises UserError for another mode.
    """
    xp = namespace(x)
    if mode not in ("nearest", "truncate"):
        raise UserError(f"mode is {mode!r}; choose 'nearest' or 'truncate'.")
    _, exponent = xp.frexp(x)
    shift = (exponent - bits).astype(xp.int32)
    scaled = xp.ldexp(x, -shift)
    return xp.ldexp(xp.rint(scaled) if mode == "nearest" else xp.trunc(scaled), shift)


def low_precision(a: Any, b: Any, k_step: int = 16, bits: int = 24, mode: str = "truncate") -> Any:
    """The product as a tensor core's accumulator of `bits` bits would hold it: a model, not a measurement.

    Every `k_step` products are summed exactly, as an instruction does, and added to the accumulator with one rounding.
    Real hardware aligns the terms of one addition to the largest and drops what lies below (M. Fasi, N. J. Higham, M.
    Mikaitis and S. Pranesh, PeerJ Computer Science 7:e330, 2021); where `exactness` calls a product exact, every such
    model agrees with `exact`.
    """
    if k_step < 1 or not 2 <= bits <= DOUBLE_BITS:
        raise UserError(f"k_step = {k_step}, bits = {bits}: k_step must be at least 1 and bits from 2 to 53.")
    xp = namespace(a)
    total = xp.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], k_step):
        block = slice(start, start + k_step)
        total = round_bits(total + exact(a[:, block], b[block]), bits, mode)
    return total
