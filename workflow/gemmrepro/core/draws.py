"""Random inputs, drawn with NumPy or CuPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import FLOAT8, float8_values, narrow

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
