"""The low-precision types of slices, how long an inner product of their digits stays exact, and the case for bf16.

Digits |D| <= 2^beta are integers, so all their products and sums are. An accumulator with t significant bits holds
every integer up to 2^t, so a sum of k products is exact, *in any order and however the hardware aligns*, if

    k 2^(beta_a + beta_b) <= 2^t.

k depends on when the accumulator is drained: if it runs over the whole inner dimension, k is K; if it is added to an
FP64 sum and reset every TILE_K steps, k is TILE_K. A tile loop by itself drains nothing.

For beta_a = beta_b this is the article's rho: with t = 24, rho = ceil(53 - (24 - log2 k) / 2), and beta = 53 - rho.
The least rho that the format allows is 53 - m2. Everything here is in integers: no rounded logarithm decides.

The article's case for bf16 is that 16 + log2(128) = 23 <= 24 bits are exact and fp16's 22 + 7 = 29 are not. Both sums
are right, and two steps are missing. They hold for an accumulator that sees 128 products; one that runs over the inner
dimension is exact for bf16 up to k = 256 only. And fp16 need not be filled: with the 8 bits that rho leaves it at
k = 128 it is as good as bf16, slice for slice. What speaks against fp8 is 4 or 3 bits per slice, which mean four to
seven times the pairs.
"""

from dataclasses import dataclass

from gemmrepro.errors import UserError

MANTISSA = 53
FP32_BITS = 24


@dataclass(frozen=True)
class Format:
    """A binary floating-point type.

    Attributes:
        significant: significant bits, including the hidden one (the article's m2).
        largest: the largest finite value.
        least_exponent: the smallest positive value, a subnormal, is 2^least_exponent.
        infinite: whether it has infinities; e4m3 overflows to NaN.
    """

    name: str
    significant: int
    largest: float
    least_exponent: int
    infinite: bool = True


FORMATS = {
    fmt.name: fmt
    for fmt in (
        Format("fp16", 11, 65504.0, -24),
        Format("bf16", 8, (2 - 2.0**-7) * 2.0**127, -133),
        Format("e4m3", 4, 448.0, -9, infinite=False),
        Format("e5m2", 3, 57344.0, -16),
    )
}


def named(name: str) -> Format:
    """The format of that name. Raises UserError, with all formats, if there is none."""
    if name not in FORMATS:
        raise UserError(f"there is no slice format {name!r}; choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def exact_bits(k: int, accumulator: int = FP32_BITS) -> int:
    """The largest beta with k 2^(2 beta) <= 2^accumulator: floor((accumulator - log2 k) / 2). Negative if none is."""
    if k < 1:
        raise UserError(f"an inner product of {k} terms has no slice width; k must be at least 1.")
    return (accumulator - (k - 1).bit_length()) // 2


def rho(k: int, fmt: Format, accumulator: int = FP32_BITS) -> int:
    """The article's rho = max(ceil(53 - (accumulator - log2 k) / 2), 53 - m2), of inner products of `k` terms.
    Raises UserError for so many terms that not even one bit per slice is exact."""
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
