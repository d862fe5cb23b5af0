"""Element types: size, storage, rounding to a type, exact conversion to float64, how Inf and NaN spread; random inputs.

Arrays are NumPy's or CuPy's.

8-bit floats follow the Open Compute Project (OCP 8-bit Floating Point Specification, revision 1.0) without saturation:
values that round beyond the largest number become infinity in e5m2 and NaN in e4m3, which has no infinity. Integers
saturate; no integer stands for NaN.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPES = {"fp32": 4, "fp16": 2, "bf16": 2, "tf32": 4, "fp64": 8, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "int32": 4}
"""Bytes per element. tf32 is stored as fp32."""

STORAGE = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": np.uint16,
    "tf32": np.float32,
    "fp64": np.float64,
    "fp8_e4m3": np.uint8,
    "fp8_e5m2": np.uint8,
    "int8": np.int8,
    "int32": np.int32,
}
"""NumPy type that stores the elements of each dtype; types unknown to NumPy are stored as unsigned integers."""

INTEGERS = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
"""Smallest and largest number of the integer types."""


@dataclass(frozen=True)
class Float8:
    """An 8-bit float: bits of the fraction, exponent bias, and the codes of the largest number, overflow and NaN."""

    fraction: int
    bias: int
    largest: int
    overflow: int
    nan: int


FLOAT8 = {"fp8_e4m3": Float8(3, 7, 0x7E, 0x7F, 0x7F), "fp8_e5m2": Float8(2, 15, 0x7B, 0x7C, 0x7F)}


def bits(array: Any) -> Any:
    """A view of `array` as unsigned integers of its element size."""
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])


def narrow(values: Any, dtype: str) -> Any:
    """Round `values` to nearest, ties to even, and return them as stored elements of `dtype`.
    `values` are float32, or float64 for fp64, fp32, fp16 and integers. NaN stays NaN; overflow is described in the
    module's docstring."""
    if dtype in INTEGERS:
        low, high = INTEGERS[dtype]
        return values.round().clip(low, high).astype(STORAGE[dtype])
    if dtype in FLOAT8:
        return _narrow_to_8_bits(values, FLOAT8[dtype])
    if dtype == "tf32":
        word = values.view(np.uint32)
        finite = (word & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
        rounded = (word + np.uint32(0xFFF) + ((word >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
        # Some NaNs would lose all bits of their fraction, so the lowest one that TF32 keeps is set.
        special = (word & np.uint32(0xFFFFE000)) | (((word & np.uint32(0x7FFFFF)) != 0) * np.uint32(1 << 13))
        return (rounded * finite + special * ~finite).astype(np.uint32).view(np.float32)
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(STORAGE[dtype], copy=False)
    word = values.view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Rounding up would carry some NaNs into infinity, so a NaN keeps its upper half, made quiet.
    quiet = (word >> np.uint32(16)) | np.uint32(0x40)
    nan = (word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (rounded * ~nan + quiet * nan).astype(np.uint16)


def _narrow_to_8_bits(values: Any, kind: Float8) -> Any:
    word = values.view(np.uint32)
    sign, size = (word >> np.uint32(24)) & np.uint32(0x80), word & np.uint32(0x7FFFFFFF)
    dropped = 23 - kind.fraction
    # A carry out of the fraction correctly increments the exponent.
    rounded = size + np.uint32((1 << (dropped - 1)) - 1) + ((size >> np.uint32(dropped)) & np.uint32(1))
    normal = (rounded >> np.uint32(dropped)).astype(np.int32) - ((127 - kind.bias) << kind.fraction)
    # Subnormal numbers are evenly spaced; their code is the number of steps from zero.
    least = 1 - kind.bias
    small = size < np.uint32((127 + least) << 23)
    with np.errstate(invalid="ignore"):  # infinities and NaNs, which `small` excludes
        steps = (abs(values) * np.float32(2.0 ** (kind.fraction - least))).round().clip(0, 256).astype(np.int32)
    code = normal * ~small + steps * small
    code = code * (code <= kind.largest) + kind.overflow * (code > kind.largest)
    nan = size > np.uint32(0x7F800000)
    return (code * ~nan + kind.nan * nan + sign).astype(np.uint8)


def float8_values(dtype: str) -> np.ndarray:
    """The values of all 256 codes of an 8-bit float: [256] float64, indexed by code."""
    kind = FLOAT8[dtype]
    codes = np.arange(128)
    exponent, fraction = codes >> kind.fraction, codes & ((1 << kind.fraction) - 1)
    leading = np.where(exponent > 0, 1.0, 0.0)
    values = (leading + fraction / 2.0**kind.fraction) * 2.0 ** (np.maximum(exponent, 1) - kind.bias)
    values[kind.largest + 1 :] = np.nan
    if kind.overflow != kind.nan:
        values[kind.overflow] = np.inf
    return np.concatenate([values, -values])


def widen(array: Any, dtype: str) -> Any:
    """Convert stored elements of `dtype` to float64, exactly."""
    if dtype in FLOAT8:
        if isinstance(array, np.ndarray):
            return float8_values(dtype)[array]
        import cupy

        return cupy.asarray(float8_values(dtype))[array]
    if dtype == "bf16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return array.astype(np.float64)


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


SPREAD = {"int8": 32.0}
"""Standard deviation of random elements by dtype; 1 for all others."""

DISTRIBUTIONS = {
    "uniform": "uniform",
    "skewed": "log-uniform: bin b with probability log(1 + 1/(b + 1)) / log(bins + 1)",
    "constant": "all in one bin",
}
"""Distributions of a histogram's ids, each with its description."""


def draw_ids(distribution: str, n: int, bins: int, seed: int, xp: Any) -> Any:
    """ids[n] in [0, bins), int32, from `distribution` (one of DISTRIBUTIONS); `xp` is NumPy or CuPy."""
    if distribution == "constant":
        return xp.full(n, bins // 2, xp.int32)
    drawn = xp.random.default_rng(seed).random(n)  # float64, so that millions of bins are drawn evenly
    if distribution == "skewed":
        drawn *= math.log(bins + 1)
        xp.exp(drawn, out=drawn)
        drawn -= 1.0
    else:
        drawn *= bins
    return xp.minimum(drawn.astype(xp.int32), bins - 1)


def draw_normal(counts: tuple[int, ...], dtype: str, seed: int, xp: Any) -> list[Any]:
    """For each of `counts` an array of that many normal elements, deviation as in SPREAD, stored as `dtype`."""
    rng = xp.random.default_rng(seed)
    wide = xp.float64 if dtype == "fp64" else xp.float32
    arrays = []
    for count in counts:
        values = rng.standard_normal(count, dtype=wide)
        if dtype in SPREAD:
            values *= wide(SPREAD[dtype])
        arrays.append(narrow(values, dtype))
    return arrays


def draw_scaled(lengths: tuple[int, int, int], dtype: str, seed: int, xp: Any, block: int = 128) -> list[Any]:
    """Normal A [m, k] and B [n, k] in 8-bit floats with block scales, for `lengths` m, n and k; flat arrays.
    A has an fp32 scale for each row and `block` of k ([blocks of k, m]), B for each `block` by `block` ([blocks of n,
    blocks of k to a multiple of 4]); a block's largest element becomes the largest of `dtype`."""
    m, n, k = lengths
    rng = xp.random.default_rng(seed)
    largest = xp.float32(float8_values(dtype)[FLOAT8[dtype].largest])
    depth = -(-k // block)
    stored, scales = [], []
    for rows, height in ((m, 1), (n, block)):
        bands = -(-rows // height)
        values = xp.zeros((bands * height, depth * block), xp.float32)
        values[:rows, :k] = rng.standard_normal((rows, k), dtype=xp.float32)
        cells = values.reshape(bands, height, depth, block)
        scale = abs(cells).max(axis=(1, 3)) / largest
        cells /= scale[:, None, :, None]
        stored.append(narrow(xp.ascontiguousarray(values[:rows, :k]).ravel(), dtype))
        scales.append(scale)
    padded = xp.zeros((scales[1].shape[0], -(-depth // 4) * 4), xp.float32)
    padded[:, :depth] = scales[1]
    return [*stored, xp.ascontiguousarray(scales[0].T).ravel(), padded.ravel()]


def draw_words(n: int, seed: int, xp: Any) -> Any:
    """words[n], int32, of any bits."""
    return xp.random.default_rng(seed).integers(-(2**31), 2**31, n, dtype=xp.int64).astype(xp.int32)


def draw_ring(words: int, spacing: int, seed: int, xp: Any) -> Any:
    """links[words], int32, in memory of its own: every `spacing` words (even) lies a link of 64 bits.
    A link is the address of the next. They form one random cycle through all of them; all other words are zero."""
    links = xp.zeros(words, xp.int32)
    places = np.random.default_rng(seed).permutation(max(1, words // spacing)) * (spacing * 4)
    link_to(links, places, np.roll(places, -1), xp)
    return links


def address_of(array: Any) -> int:
    """Where the elements of a CuPy or NumPy array lie."""
    return int(array.data.ptr) if hasattr(array.data, "ptr") else int(array.ctypes.data)


def link_to(links: Any, places: Any, targets: Any, xp: Any) -> None:
    """Make the links at `places` of `links` lead to `targets`; both in bytes from its start, multiples of 8."""
    wide = links[: links.size // 2 * 2].view(xp.int64)
    wide[xp.asarray(places) // 8] = xp.asarray(targets) + address_of(links)
