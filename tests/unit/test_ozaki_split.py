"""Slices: what they add up to, what they are made of, what a power of two does to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import any_floats, fractions

from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.errors import UserError
from gemmrepro.ozaki import article, bounds, exactness, formats
from gemmrepro.ozaki.arrays import ceil_log2, peak
from gemmrepro.ozaki.splitting import extract, extract_sigma, slices_needed, split

FORMATS = list(formats.FORMATS.values())
SCALES = ("matrix", "row", "column")
LEAST = 5e-324


@settings(deadline=None, max_examples=60)
@given(any_floats(3, 3), st.sampled_from(FORMATS), st.sampled_from([1, 100, 1024, 16384]), st.sampled_from(SCALES))
@example(np.array([[0.0, -0.0], [LEAST, -LEAST]]), FORMATS[0], 1024, "row")
@example(np.array([[2.0**1023, -(2 - 2.0**-52) * 2.0**1023], [LEAST, 1.0]]), FORMATS[1], 7, "matrix")
def test_a_split_is_exact(x: np.ndarray, fmt: formats.Format, k: int, scale: str) -> None:
    rho = exactness.rho(k, fmt)
    parts = split(x, rho, scale)
    assert not parts.residual.any()
    total = sum((fractions(part.digits) * fractions_of_two(part.exponent) for part in parts.slices), fractions(0.0 * x))
    assert (total == fractions(x)).all()
    for part in parts.slices:
        assert (part.digits == np.rint(part.digits)).all()
        assert np.abs(part.digits).max() <= 2.0**parts.beta
        assert not np.signbit(part.digits[part.digits == 0]).any()
        assert part.exponent.shape == peak(x, scale).shape
        assert (part.stored(fmt, parts.beta) == np.ldexp(part.digits, -parts.beta)).all()
    assert slices_needed(x, rho, scale) == len(parts)


def fractions_of_two(exponent: np.ndarray) -> np.ndarray:
    from fractions import Fraction

    return np.array([Fraction(2) ** int(e) for e in exponent.flat], dtype=object).reshape(exponent.shape)


@settings(deadline=None, max_examples=100)
@given(any_floats(), st.integers(42, 50))
def test_the_scaled_rounding_is_the_articles_sigma(x: np.ndarray, rho: int) -> None:
    largest = peak(x, "matrix")
    c = ceil_log2(largest)
    if (c + rho > 1023).any():
        return
    assert (extract(x, c, rho).value() == extract_sigma(x, c, rho)).all()


def test_ties_go_to_even_as_in_sigma() -> None:
    units = np.arange(-16, 17)[None, :] + 0.5
    x = np.hstack([np.ldexp(units, -5), [[1.0]]])  # beta = 5: halves of the unit 2^-5
    part = extract(x, np.zeros((1, 1), np.int32), 48)
    assert (part.value() == extract_sigma(x, np.zeros((1, 1), np.int32), 48)).all()
    assert (part.digits[:, :-1] % 2 == 0).all()


def test_the_exponent_of_the_maximum_is_exact_beside_powers_of_two() -> None:
    x = np.array([1.0, np.nextafter(1, 2), np.nextafter(1, 0), 2.0**-1074, 3 * 2.0**-1074, np.finfo(float).max, 8.0])
    assert ceil_log2(x).tolist() == [0, 1, 0, -1074, -1072, 1024, 3]
    assert ceil_log2(np.zeros(1)) == 0


@settings(deadline=None, max_examples=40)
@given(any_floats(4, 4), st.data())
def test_a_scale_a_row_ignores_powers_of_two(x: np.ndarray, data: st.DataObject) -> None:
    x = np.clip(x, -1e200, 1e200)
    x = np.where(np.abs(x) < 1e-200, 0.0, x)
    powers = data.draw(st.lists(st.integers(-150, 150), min_size=x.shape[0], max_size=x.shape[0]))
    shift = np.array(powers, np.int32)[:, None]
    plain, scaled = split(x, 46, "row", count=5), split(np.ldexp(x, shift), 46, "row", count=5)
    for one, other in zip(plain.slices, scaled.slices, strict=True):
        assert (one.digits == other.digits).all()
        rows = one.digits.any(axis=1)
        assert (other.exponent[rows] - one.exponent[rows] == shift[rows]).all()


def test_one_scale_a_matrix_does_not() -> None:
    x = np.random.default_rng(0).standard_normal((4, 8))
    scaled = x * np.array([[1.0], [1.0], [1.0], [2.0**-20]])
    losses = []
    for scale in ("matrix", "row"):
        left = split(scaled, 46, scale, count=5).residual[3] / scaled[3]
        losses.append(np.abs(left).max())
    assert losses[0] > 2.0**18 * losses[1]


@settings(deadline=None, max_examples=40)
@given(any_floats(4, 4), st.integers(3, 8), st.integers(1, 6), st.integers(-2, 2))
def test_fixed_steps_leave_what_they_say(x: np.ndarray, beta: int, count: int, more: int) -> None:
    x = np.clip(x, -1e250, 1e250)
    step = beta + more
    parts = split(x, 53 - beta, "row", count=count, step=step)
    whole = sum((part.value() for part in reversed(parts.slices)), parts.residual)
    assert (whole == x).all() or count * step > 40  # summed in float64, exact while 53 bits hold
    top = peak(x, "row")
    c = ceil_log2(top)
    digits = max(beta, step - 1)
    assert all(np.abs(part.digits).max() <= 2.0**digits for part in parts.slices)
    left = c - beta - 1 - (count - 1) * step
    # A step beyond beta + 1 leaves no gap: digits grow instead.
    assert (np.abs(parts.residual) <= np.ldexp(np.ones(c.shape), left)).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_the_number_of_slices_follows_from_the_bits(fmt: formats.Format) -> None:
    rng = np.random.default_rng(5)
    for k in (64, 1024, 8192):
        x = rng.standard_normal((60, 61)) * np.exp(rng.standard_normal((60, 61)))
        rho = exactness.rho(k, fmt)
        fraction, exponent = np.frexp(x)
        mantissa = np.ldexp(fraction, 53).astype(np.int64)
        trailing = np.log2(mantissa & -mantissa).astype(int)
        last_bit = int((exponent - 53 + trailing).min())
        predicted = bounds.predicted_slices(int(ceil_log2(peak(x, "matrix"))[0, 0]), last_bit, 53 - rho)
        assert predicted <= slices_needed(x, rho) <= predicted + 1


def test_slices_that_are_not_scaled_leave_the_type() -> None:
    x = np.random.default_rng(1).standard_normal((8, 8))
    parts = article.naive_split(x, 1024, "fp16")
    deep = parts.slices[4]
    assert formats.representable(deep.stored(formats.named("fp16"), parts.beta), formats.named("fp16")).all()
    assert not formats.representable(deep.value(), formats.named("fp16")).all()


def test_rounding_to_formats() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(4000) * np.exp2(rng.integers(-30, 20, 4000))
    with np.errstate(over="ignore"):
        assert (formats.convert(x, formats.named("fp16")) == x.astype(np.float16).astype(np.float64)).all()
    single = x.astype(np.float32)
    bf16 = widen(narrow(single, "bf16"), "bf16")
    assert (formats.convert(single.astype(np.float64), formats.named("bf16")) == bf16).all()
    e4m3 = formats.convert(np.array([448.0, 464.0, 465.0, 2.0**-9, 2.0**-10, 1.0625, 1.1875, -0.0]), FORMATS[2])
    assert np.array_equal(e4m3, [448.0, 448.0, np.nan, 2.0**-9, 0.0, 1.0, 1.25, -0.0], equal_nan=True)
    e5m2 = formats.convert(np.array([57344.0, 61440.0, 2.0**-16, -1e9]), FORMATS[3])
    assert np.array_equal(e5m2, [57344.0, np.inf, 2.0**-16, -np.inf])


@pytest.mark.parametrize(
    ("x", "arguments", "message"),
    [
        (np.ones(3), {}, "two dimensions"),
        (np.ones((2, 2), np.float32), {}, "float64"),
        (np.array([[np.inf]]), {}, "Inf or NaN"),
        (np.ones((2, 2)), {"rho": 53}, "rho is 53"),
        (np.ones((2, 2)), {"scale": "rows"}, "choose 'matrix'"),
        (np.ones((2, 2)), {"count": 0}, "at least one slice"),
        (np.ones((2, 2)), {"step": 4}, "count of slices"),
        (np.ones((2, 2)), {"step": 40, "count": 2}, "low-precision type"),
    ],
)
def test_bad_arguments(x: np.ndarray, arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        split(x, **{"rho": 46, **arguments})


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(UserError, match="e4m3"):
        formats.named("fp8")
