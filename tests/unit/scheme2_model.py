"""Scheme II as the device computes it, in NumPy: residues of scaled integers, and the certified mode of `crt`.

R10's and R17's arithmetic, step by step. Inner exponents, offsets, bytes, lowest bits, residues and their
reconstruction are the device's to the bit. Norms and the ratios of a tile are rounded in another order than there, by
parts in 2^40 and 2^20: a decision may differ where a ratio meets its limit that closely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gemmrepro.ozaki import moduli
from gemmrepro.ozaki.decided import (
    _TIME_8_BIT,
    _TIME_BYTE,
    _TIME_DOUBLE,
    _TIME_TILES,
    GROUP,
    LEAST,
    MOST,
    TILE,
    gamma,
)
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


def of(x: np.ndarray, count: int) -> list[np.ndarray]:
    """int8 residues of integer-valued float64 `x`, one matrix per modulus."""
    found = []
    for p in moduli.moduli(count):
        residue = np.fmod(x, float(p))  # exact, of any float
        found.append(symmetric(residue + np.where(residue < 0, float(p), 0.0), p).astype(np.int8))
    return found


def products(a: list[np.ndarray], b: list[np.ndarray]) -> list[np.ndarray]:
    """int8 residues of A'B' from those of A' [m,k] and B' [k,n], k up to 2^17."""
    pairs = zip(a, b, moduli.moduli(len(a)), strict=True)
    return [symmetric((x.astype(float) @ y.astype(float)).astype(np.int64), p).astype(np.int8) for x, y, p in pairs]


SAMPLES = 64
"""Elements of a row, a column or a k that stand for all, where a guess will do."""
SLACK = 6
"""Inner exponents that differ by no more are left alone."""
HEADROOM = 4
"""Binades above the largest sampled element, of e5m2's 31."""
GROUPS, EACH, MANY = 8, 4, 6
"""Groups of rows and of columns that a glance takes, lines of each, and groups that must fail for it to give up."""
_NOTHING, _WHOLE = -100_000, 100_000


_LARGEST_BYTE = 0x7B


@dataclass(frozen=True)
class Decision:
    """What the device decides before the first residue.

    Attributes:
        count: moduli of all tiles that take residues; 0 if none does.
        native: [tile rows, tile columns] bool: multiplied in double.
        inner: d_h [k], int64. flat: whether all are zero.
        s, t: exponents [m] and [n] of rows and columns; zeros where count is 0.
        ratio: [m,n] float64, (x tau + y sigma) / L: Inf where nothing is known, or all of C went to double before.
        limits: the largest ratio that each number of moduli, LEAST to MOST, may have.
        gamma: the componentwise bound of the tiles that take residues.
    """

    count: int
    native: np.ndarray
    inner: np.ndarray
    flat: bool
    s: np.ndarray
    t: np.ndarray
    ratio: np.ndarray
    limits: tuple[float, ...]
    gamma: float


@dataclass(frozen=True)
class _Lines:
    """Measures of the rows of a matrix: see `Measure`, `Summary` and `Gauge` in measures.cuh."""

    size: np.ndarray
    ones: np.ndarray
    biased: np.ndarray
    low: np.ndarray
    offset: np.ndarray
    coarse: np.ndarray
    spoiled: np.ndarray


def _samples(length: int) -> np.ndarray:
    return np.arange(SAMPLES) * length // SAMPLES


def _biased(x: np.ndarray) -> np.ndarray:
    """Exponent fields of float64 `x`, int64."""
    return np.ascontiguousarray(x).view(np.int64) >> 52 & 0x7FF


def inner_exponents(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    """(d [k], whether all are zero): half of what B's row h is above A's column h in the mean exponent of samples.

    Zeros, subnormal numbers, Inf and NaN do not count; a k without any other number keeps 0.
    """
    k = a.shape[1]
    known: dict[int, int] = {}
    of_a, of_b = _biased(a[_samples(a.shape[0])]), _biased(b[:, _samples(b.shape[1])])
    for h in range(k):
        left, right = (e[(e > 0) & (e < 2047)] for e in (of_a[:, h], of_b[h]))
        if len(left) and len(right):
            above = int(right.sum()) * len(left) - int(left.sum()) * len(right)
            known[h] = above // (2 * len(left) * len(right))
    if not known or max(known.values()) - min(known.values()) <= SLACK:
        return np.zeros(k, np.int64), True
    middle = (min(known.values()) + max(known.values())) // 2
    return np.array([known.get(h, middle) - middle for h in range(k)], np.int64), False


def coarse(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Bytes of e5m2: the largest numbers that are no more than |x| 2^shift, in the units of their line; uint8."""
    high = (np.ascontiguousarray(x).view(np.int64) >> 32) & 0x7FFFFFFF
    return np.where(high < 0x100000, 0, np.clip((high >> 18) + 4 * shift, 0, _LARGEST_BYTE)).astype(np.uint8)


def decoded(byte: np.ndarray) -> np.ndarray:
    """The numbers that bytes of e5m2 stand for, of the finite ones without a sign; float64."""
    field, fraction = byte.astype(np.int64) >> 2, byte.astype(np.int64) & 3
    normal = np.ldexp(4.0 + fraction, field - 17)
    return np.where(field > 0, normal, np.ldexp(1.0 * fraction, -16))


def _measured(x: np.ndarray, inner: np.ndarray) -> _Lines:
    """Measures of the rows of `x`, whose elements count times 2^inner."""
    k = x.shape[1]
    spoiled = ~np.isfinite(x).all(axis=1)
    finite = np.where(np.isfinite(x), x, 0.0)
    fraction, exponent = np.frexp(np.abs(finite))
    zero = finite == 0.0
    biased = np.where(zero, _NOTHING, exponent + 1022 + inner)
    top = biased.max(axis=1)
    unit = np.where(zero, 0.0, np.ldexp(2.0 * fraction, np.maximum(biased - top[:, None], -1000)))
    away = 1.0 + (k + 64) * 2.0**-52
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    trailing = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    low = np.where(zero, _WHOLE, biased - 1023 - 52 + trailing).min(axis=1)
    sampled = _samples(k)
    field = _biased(x[:, sampled])
    seen = np.where((field == 0) | (field == 2047), _NOTHING, field + inner[sampled]).max(axis=1)
    spoiled |= (seen == _NOTHING) & ~zero.all(axis=1)  # no sample says where its numbers lie
    offset = np.where(seen == _NOTHING, 0, seen + HEADROOM - 30)
    return _Lines(
        np.sqrt((unit * unit).sum(axis=1)) * away,
        unit.sum(axis=1) * away,
        top,
        low,
        offset,
        coarse(x, inner - offset[:, None]),
        spoiled,
    )


def _radius(count: int, k: int) -> float:
    return math.sqrt(moduli.product(count) / 2) * (1 - 2.0**-22) - 0.51 * math.sqrt(k)


def _exponents(lines: _Lines, count: int, k: int) -> np.ndarray:
    """The largest exponents with which the norms stay within the radius; 0 of zeros and of rows with Inf or NaN."""
    room = _radius(count, k) / np.where(lines.size > 0, lines.size, 1.0)
    free = np.frexp(room)[1] - 1 + 1023 - lines.biased
    return np.where((lines.size > 0) & ~lines.spoiled, free, 0).astype(np.int64)


def _gauges(lines: _Lines, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(norms, sums) of lines in the units of their bytes; a norm is 0 where all elements are integers once scaled."""
    above = lines.biased - lines.offset - 15
    unit = np.ldexp(1.0, np.clip(above, -60, 60))
    exact = (lines.low + _exponents(lines, LEAST, k) >= 0) & ~lines.spoiled
    unknown = lines.spoiled | (above > 60)
    norm = np.where(unknown, np.inf, np.where(exact | (lines.size == 0), 0.0, lines.size * unit))
    return norm, np.where(unknown, np.inf, np.where(lines.size == 0, 0.0, lines.ones * unit))


def _ratios(rows: _Lines, columns: _Lines, k: int) -> np.ndarray:
    (x, sigma), (y, tau) = _gauges(rows, k), _gauges(columns, k)
    least = decoded(rows.coarse) @ decoded(columns.coarse).T
    with np.errstate(invalid="ignore", divide="ignore"):
        error = x[:, None] * tau + y * sigma[:, None]
        ratio = np.where(error < 1e38, error / least, np.inf)
    return np.where(error == 0.0, 0.0, ratio)


def _by_tiles(ratio: np.ndarray) -> np.ndarray:
    """The largest ratio of each tile."""
    (m, n), (height, width) = ratio.shape, TILE
    corners = [[ratio[i : i + height, j : j + width].max() for j in range(0, n, width)] for i in range(0, m, height)]
    return np.array(corners)


def _first_wave(worst: np.ndarray, wave: int) -> np.ndarray:
    """The largest ratios [1, wave] of the tiles that R17 bounds first, of `worst` [tile rows, tile columns].

    Tiles are in the order of listed.cuh: column by column in groups of 16 rows.
    """
    in_order = np.concatenate([worst[row : row + GROUP].T.ravel() for row in range(0, len(worst), GROUP)])
    wave = min(wave, len(in_order))
    length, longer = divmod(len(in_order), wave)
    return np.array([[in_order[run * length + min(run, longer) + run % length] for run in range(wave)]])


def _chosen(worst: np.ndarray, limits: tuple[float, ...], shape: tuple[int, int, int], eager: bool) -> int:
    m, n, k = shape
    work, elements, out = 2.0 * m * n * k, 1.0 * m * k + 1.0 * k * n, 1.0 * m * n
    count, least = 0, 0.0 if eager else work * _TIME_DOUBLE
    for candidate, limit in zip(range(LEAST, MOST + 1), limits, strict=True):
        good = float((worst <= limit).mean())
        time = (1 - good) * work * _TIME_TILES + good * candidate * work * _TIME_8_BIT
        time += (candidate + 8) * (elements + good * out) * _TIME_BYTE
        cost = -good if eager else time
        if good > 0 and cost < least:
            count, least = candidate, cost
    return count


def hopeless(a: np.ndarray, b: np.ndarray, inner: np.ndarray, limit: float) -> bool:
    """Whether a glance at 32 rows and 32 columns finds elements that fail `limit` in most groups of either."""
    (m, k), n = a.shape, b.shape[1]
    lines = np.arange(GROUPS * EACH)
    some_a, some_b = a[lines * m // len(lines)], np.ascontiguousarray(b[:, lines * n // len(lines)].T)
    sides = (some_a, _measured(some_a, inner), inner), (some_b, _measured(some_b, -inner), -inner)
    magnitudes, norms, ones = [], [], []
    for x, measured, shift in sides:
        seen = measured.offset - HEADROOM + 30
        top = np.where(measured.offset == 0, np.where((seen == 30 - HEADROOM), 1023, seen), seen)
        scaled = np.clip(1023 - top[:, None] + shift, -1200, 1200).astype(np.int32)
        finite = np.where(np.isfinite(x), x, 0.0)
        unit = np.ldexp(1.0, np.clip(measured.biased - top, -500, 500))
        exact = measured.low + _exponents(measured, LEAST, k) >= 0
        with np.errstate(over="ignore", under="ignore"):
            magnitudes.append(np.abs(np.ldexp(finite, scaled)))
        norms.append(np.where(exact | measured.spoiled, 0.0, measured.size * unit))
        ones.append(np.where((measured.size == 0) | measured.spoiled, 0.0, measured.ones * unit))
    with np.errstate(over="ignore", invalid="ignore"):
        least = magnitudes[0] @ magnitudes[1].T
        fails = norms[0][:, None] * ones[1] + norms[1] * ones[0][:, None] > limit * least
    fails &= ~sides[0][1].spoiled[:, None] & ~sides[1][1].spoiled
    groups = fails.reshape(GROUPS, EACH, GROUPS, EACH).any(axis=(1, 3))
    return bool(groups.any(axis=1).sum() >= MANY and groups.any(axis=0).sum() >= MANY)


def decide(a: np.ndarray, b: np.ndarray, loosened: int = 0, eager: bool = False, wave: int = 0) -> Decision:
    """What the device decides of A[m,k] and B[k,n].

    Args:
        loosened: the bound is 2 sqrt(k) u times 2 to that.
        eager: take residues wherever the bound allows it, even where double would be faster.
        wave: tiles that are bounded first, and may send all of C to double, in R17; 0: R10's glance may.
    """
    (m, k), n = a.shape, b.shape[1]
    inner, flat = inner_exponents(a, b)
    margin = (1 + k * 2.0**-18) * (1 + 2.0**-8)
    bound = gamma(k, loosened)
    limits = tuple(bound * _radius(count, k) / margin for count in range(LEAST, MOST + 1))
    rows, columns = _measured(a, inner), _measured(np.ascontiguousarray(b.T), -inner)
    given_up = not eager and not wave and hopeless(a, b, inner, limits[-1])
    ratio = np.full((m, n), np.inf) if given_up else _ratios(rows, columns, k)
    worst = _by_tiles(ratio)
    if wave and not eager and not _chosen(_first_wave(worst, wave), limits, (m, n, k), eager):
        ratio, worst = np.full((m, n), np.inf), np.full(worst.shape, np.inf)
    count = _chosen(worst, limits, (m, n, k), eager)
    native = ~(worst <= limits[count - LEAST]) if count else np.ones(worst.shape, bool)
    s, t = (_exponents(lines, count, k) if count else np.zeros(len(lines.size), np.int64) for lines in (rows, columns))
    return Decision(count, native, inner, flat, s, t, ratio, limits, bound)


def _integers(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = np.ldexp(x, np.clip(exponent, -1200, 1200).astype(np.int32))
    return np.rint(np.where(np.isfinite(x), scaled, 0.0)) + 0.0


def _cut(x: int, bits: int) -> int:
    """`x` less what lies below its first `bits` bits."""
    below = max(0, x.bit_length() - bits)
    return x >> below << below


_whole = np.frompyfunc(int, 1, 1)


def _multiplied_and_added(x: np.ndarray, y: int, z: np.ndarray) -> np.ndarray:
    """fma(x, y, z) of integers: exact, and rounded once, which is how Python turns an integer into a float."""
    return (_whole(x) * y + _whole(z)).astype(np.float64)


def reconstructed(found: list[np.ndarray]) -> np.ndarray:
    """C' [m,n] float64 from int8 residues, by the operations of reconstruction.cuh in their order."""
    whole = moduli.product(len(found))
    low = whole.bit_length() - 41

    def halves(x: int) -> tuple[int, int]:
        upper = x >> low << low
        return upper, _cut(x - upper, 53)

    high_sum, low_sum = np.zeros(found[0].shape), np.zeros(found[0].shape)
    for residue, p in zip(found, moduli.moduli(len(found)), strict=True):
        upper, lower = halves(whole // p * pow(whole // p, -1, p))
        r = residue.astype(np.int64) % p
        high_sum = _multiplied_and_added(r, upper, high_sum)
        low_sum = _multiplied_and_added(r, lower, low_sum)
    times = np.rint(high_sum * (1.0 / _cut(whole, 53)))
    upper, lower = halves(whole)
    return _multiplied_and_added(-times, upper, high_sum) + _multiplied_and_added(-times, lower, low_sum)


def product(a: np.ndarray, b: np.ndarray, decision: Decision) -> np.ndarray:
    """C[m,n] as the device returns it under `decision`; tiles in double are NumPy's product."""
    with np.errstate(over="ignore", invalid="ignore"):
        native = a @ b
    if decision.count == 0:
        return native
    whole_a = _integers(a, decision.s[:, None] + decision.inner)
    whole_b = _integers(b, decision.t - decision.inner[:, None])
    found = products(of(whole_a, decision.count), of(whole_b, decision.count))
    exponent = np.clip(-(decision.s[:, None] + decision.t), -4000, 4000).astype(np.int32)
    with np.errstate(over="ignore", under="ignore"):
        c = np.ldexp(reconstructed(found), exponent) + 0.0
    in_double = np.repeat(np.repeat(decision.native, TILE[0], axis=0), TILE[1], axis=1)
    return np.where(in_double[: a.shape[0], : b.shape[1]], native, c)
