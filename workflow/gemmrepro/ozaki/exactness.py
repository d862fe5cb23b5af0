"""How long an inner product of digits stays exact, and the article's argument for bf16.

Digits |D| <= 2^beta are integers, so all their products and sums are. An accumulator with t significant bits holds
every integer up to 2^t, so a sum of k products is exact, *in any order and however the hardware aligns*, if

    k 2^(beta_a + beta_b) <= 2^t.

k depends on when the accumulator is drained: if it runs over the whole inner dimension, k is K; if it is added to an
FP64 sum and reset every TILE_K steps, k is TILE_K. A tile loop by itself drains nothing.

For beta_a = beta_b this is the article's rho: with t = 24, rho = ceil(53 - (24 - log2 k) / 2), and beta = 53 - rho.
The least rho that the format allows is 53 - m2. Everything here is in integers: no rounded logarithm decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki.arrays import namespace
from gemmrepro.ozaki.formats import FORMATS, Format
from gemmrepro.ozaki.splitting import Slice

MANTISSA = 53
FP32_BITS = 24


def exact_bits(k: int, accumulator: int = FP32_BITS) -> int:
    """The largest beta with k 2^(2 beta) <= 2^accumulator: floor((accumulator - log2 k) / 2). Negative if none is."""
    if k < 1:
        raise UserError(f"an inner product of {k} terms has no slice width; k must be at least 1.")
    return (accumulator - (k - 1).bit_length()) // 2


def rho(k: int, fmt: Format, accumulator: int = FP32_BITS) -> int:
    """The article's rho = max(ceil(53 - (accumulator - log2 k) / 2), 53 - m2), of inner products of `k` terms.

    Raises:
        UserError: so many terms that not even one bit per slice is exact.
    """
    bits = min(exact_bits(k, accumulator), fmt.significant)
    if bits < 1:
        raise UserError(
            f"inner products of {k} terms leave no bit per slice in an accumulator of {accumulator} bits; "
            "empty it more often (a smaller k block)."
        )
    return MANTISSA - bits


def is_exact(k: int, bits_a: int, bits_b: int, accumulator: int = FP32_BITS) -> bool:
    """Whether every inner product of `k` pairs of digits of those widths is exact in such an accumulator."""
    return k << (bits_a + bits_b) <= 1 << accumulator


def longest_exact(bits_a: int, bits_b: int, accumulator: int = FP32_BITS) -> int:
    """The largest k for which `is_exact` holds; 0 if not even one product fits."""
    return (1 << accumulator) >> (bits_a + bits_b)


def exact_for(a: Slice, b: Slice, accumulator: int = FP32_BITS, k_block: int | None = None) -> bool:
    """Whether *these* digits are summed exactly: max (|D_a||D_b|) <= 2^accumulator, over each block of k.

    Weaker than `is_exact`, which covers all digits of that width: random digits stay far below the worst case.
    Sufficient for every order of summation, but not necessary for a particular one.
    """
    k = a.digits.shape[1]
    xp = namespace(a.digits)
    for start in range(0, k, k_block or max(k, 1)):
        block = slice(start, start + (k_block or k))
        if float((xp.abs(a.digits[:, block]) @ xp.abs(b.digits[block])).max()) > 2.0**accumulator:
            return False
    return True


@dataclass(frozen=True)
class Width:
    """The article's argument applied to one format.

    Attributes:
        bits: bits that a sum of `tile_k` products of full-width slices needs: 2 m2 + ceil(log2 tile_k).
        exact_tile: whether that fits the accumulator.
        longest: the largest k for which full-width slices are exact; above it an accumulator that is not emptied
            may round.
        beta_tile: bits per slice that are exact if the accumulator is emptied every `tile_k` steps.
        beta_whole: bits per slice that are exact over the whole inner dimension.
    """

    format: str
    bits: int
    exact_tile: bool
    longest: int
    beta_tile: int
    beta_whole: int


def article_argument(k: int, tile_k: int = 128, accumulator: int = FP32_BITS) -> list[Width]:
    """The article's case for bf16 over fp16 and fp8, evaluated for every format.

    It says: 16 + log2(128) = 23 <= 24 bits, so bf16 is exact, and 22 + 7 = 29 > 24, so fp16 is not. Both sums are
    right, and two steps are missing. (1) They hold for an accumulator that sees 128 products. One that runs over the
    inner dimension is exact for bf16 up to k = 256 only; beyond, the slices must be narrower than the format (rho does
    that) or the accumulator must be emptied. (2) fp16 need not be filled: with the 8 bits that rho leaves it at
    k = 128 it is exactly as good as bf16, slice for slice, since both take `beta_tile` bits. What speaks for bf16 over
    fp16 is not in this argument; what speaks against fp8 is: 4 or 3 bits per slice mean four to seven times the pairs.
    """
    return [
        Width(
            fmt.name,
            2 * fmt.significant + (tile_k - 1).bit_length(),
            is_exact(tile_k, fmt.significant, fmt.significant, accumulator),
            longest_exact(fmt.significant, fmt.significant, accumulator),
            min(exact_bits(tile_k, accumulator), fmt.significant),
            min(exact_bits(k, accumulator), fmt.significant),
        )
        for fmt in FORMATS.values()
    ]


def digit_bits(digits: Any) -> int:
    """The least beta with |digits| <= 2^beta; 0 if all are zero."""
    xp = namespace(digits)
    largest = int(xp.abs(digits).max()) if digits.size else 0
    return max(largest - 1, 0).bit_length()
