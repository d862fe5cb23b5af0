"""The low-precision types of slices: significant bits, range, rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki.arrays import namespace


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
    """The format of that name.

    Raises:
        UserError: there is none; the message lists all formats.
    """
    if name not in FORMATS:
        raise UserError(f"there is no slice format {name!r}; choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def convert(x: Any, fmt: Format) -> Any:
    """float64 `x` rounded to nearest, ties to even, to `fmt`, subnormals kept; returned as float64."""
    xp = namespace(x)
    _, exponent = xp.frexp(x)
    unit = xp.maximum(exponent - fmt.significant, fmt.least_exponent).astype(xp.int32)
    rounded = xp.ldexp(xp.rint(xp.ldexp(x, -unit)), unit)
    beyond = xp.copysign(xp.inf, x) if fmt.infinite else xp.full_like(x, xp.nan)
    return xp.where(xp.abs(rounded) > fmt.largest, beyond, rounded)


def toward_zero(x: Any, fmt: Format) -> Any:
    """float64 `x` rounded toward zero to `fmt`, subnormals kept; beyond the largest value, that value."""
    xp = namespace(x)
    _, exponent = xp.frexp(x)
    unit = xp.maximum(exponent - fmt.significant, fmt.least_exponent).astype(xp.int32)
    return xp.clip(xp.ldexp(xp.trunc(xp.ldexp(x, -unit)), unit), -fmt.largest, fmt.largest)


def representable(x: Any, fmt: Format) -> Any:
    """Elementwise, whether float64 `x` is a value of `fmt`."""
    return convert(x, fmt) == x
