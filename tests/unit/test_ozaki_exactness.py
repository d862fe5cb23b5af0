"""Inner products of digits: exact where the rule says so, and the rule is sharp."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, article, exactness, formats, inputs
from gemmrepro.ozaki.splitting import split

FORMATS = list(formats.FORMATS.values())


@given(st.integers(1, 2**22), st.integers(14, 32))
def test_the_width_is_the_largest_that_is_exact(k: int, accumulator: int) -> None:
    beta = exactness.exact_bits(k, accumulator)
    if beta >= 0:
        assert exactness.is_exact(k, beta, beta, accumulator)
    assert not exactness.is_exact(k, max(beta, -1) + 1, max(beta, -1) + 1, accumulator)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_rho_is_the_articles(fmt: formats.Format) -> None:
    for k in (1, 2, 3, 100, 128, 1000, 1024, 2048, 4096, 8192, 16384, 2**20):
        assert exactness.rho(k, fmt) == max(math.ceil(53 - (24 - math.log2(k)) / 2), 53 - fmt.significant)
    with pytest.raises(UserError, match="smaller k block"):
        exactness.rho(2**23, fmt)


def test_the_articles_argument_for_bf16() -> None:
    """What it leaves out: over the whole of k bf16 is exact to 256 only, and fp16 may be filled to 8 bits."""
    assert exactness.is_exact(128, 8, 8) and not exactness.is_exact(128, 11, 11)
    longest = {fmt.name: exactness.longest_exact(fmt.significant, fmt.significant) for fmt in FORMATS}
    assert longest == {"fp16": 4, "bf16": 256, "e4m3": 65536, "e5m2": 2**18}
    assert (exactness.exact_bits(128), exactness.exact_bits(16384)) == (8, 5)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("mode", ["nearest", "truncate"])
def test_the_longest_exact_product_and_one_more(fmt: formats.Format, mode: str) -> None:
    longest = exactness.longest_exact(fmt.significant, fmt.significant)
    digits = np.full((1, longest), 2.0**fmt.significant)
    assert accumulate.low_precision(digits, digits.T, 16, 24, mode) == accumulate.exact(digits, digits.T) == 2.0**24
    more = np.hstack([digits, [[1.0]]])
    assert accumulate.exact(more, more.T) == 2.0**24 + 1
    assert accumulate.low_precision(more, more.T, longest, 24, mode) == 2.0**24
    # Emptied every `longest` steps the accumulator is exact again.
    blocks = [slice(0, longest), slice(longest, None)]
    assert (
        sum(accumulate.low_precision(more[:, block], more[:, block].T, 16, 24, mode) for block in blocks) == 2**24 + 1
    )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("k", [5, 131, 1000, 4099])
def test_every_inner_product_of_a_split_is_exact(fmt: formats.Format, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = inputs.spread(1.0)(rng, 3, 4, k)
    rho = exactness.rho(k, fmt)
    one, other = split(a, rho, "row", count=6), split(b, rho, "column", count=6)
    for p in (0, 1, 5):
        for q in (0, 2, 5):
            x, y = one.slices[p].digits, other.slices[q].digits
            integers = x.astype(np.int64).astype(object) @ y.astype(np.int64).astype(object)
            assert (accumulate.exact(x, y) == integers).all()
            for k_step, mode in ((1, "truncate"), (16, "nearest"), (32, "truncate")):
                if k_step == 1 and k > 200:
                    continue
                assert (accumulate.low_precision(x, y, k_step, 24, mode) == integers).all()


def test_full_width_fp16_is_exact_only_in_blocks_of_four() -> None:
    rng = np.random.default_rng(3)
    a, b = inputs.normal(rng, 6, 7, 96)
    one, other = split(a, 53 - 11, "row", count=3), split(b, 53 - 11, "column", count=3)
    x, y = one.slices[1], other.slices[1]
    assert (accumulate.low_precision(x.digits, y.digits) != accumulate.exact(x.digits, y.digits)).any()
    blocks = sum(
        accumulate.low_precision(x.digits[:, h : h + 4], y.digits[h : h + 4], k_step=1) for h in range(0, 96, 4)
    )
    assert (blocks == accumulate.exact(x.digits, y.digits)).all()


def test_the_fused_splits_digits_outgrow_the_guarantee_at_16384() -> None:
    """Steps of 7 bits with units of 5 leave digits of 6 from the second slice on: 26 bits in the worst case."""
    k = 16384
    parameters = article.fused(k, "bf16")
    assert (parameters.beta, parameters.step, parameters.count) == (5, 7, 7)
    rng = np.random.default_rng(4)
    a, b = inputs.normal(rng, 8, 8, k)
    one, other = article.fused_split(a, k, "bf16"), article.fused_split(b, k, "bf16")
    largest = [np.abs(part.digits).max() for part in one.slices]
    assert largest[0] <= 2**5 and all(2**5 < most <= 2**6 for most in largest[1:])
    assert exactness.is_exact(k, 5, 5) and not exactness.is_exact(k, 6, 6)
    # Random signs keep the sums far below 2^24 all the same ...
    for p, q in ((1, 1), (2, 5)):
        x, y = one.slices[p].digits, other.slices[q].digits
        assert (accumulate.low_precision(x, y, k_step=128) == accumulate.exact(x, y)).all()
    # ... and equal signs do not.
    a, b = np.full((1, k), 1 + 63 * 2.0**-11), np.full((k, 1), 1 + 63 * 2.0**-11)
    a[0, -1] = 1 + 62 * 2.0**-11
    one, other = article.fused_split(a, k, "bf16"), article.fused_split(b, k, "bf16")
    x, y = one.slices[1].digits, other.slices[1].digits
    assert (accumulate.low_precision(x, y, k_step=128) != accumulate.exact(x, y)).all()


def test_an_accumulator_of_fewer_bits_shortens_what_is_exact() -> None:
    """The 14 bits that fp8 is said to be summed with on some chips would leave e4m3 64 terms."""
    assert exactness.longest_exact(4, 4, 14) == 64
    digits = np.full((1, 65), 16.0)
    digits[0, 64] = 1.0
    assert accumulate.low_precision(digits[:, :64], digits[:, :64].T, 32, 14) == 2.0**14
    assert accumulate.low_precision(digits, digits.T, 32, 14) != accumulate.exact(digits, digits.T)


@given(st.floats(-1e30, 1e30), st.integers(2, 30))
def test_rounding_to_bits(x: float, bits: int) -> None:
    value = np.array([x])
    near, cut = accumulate.round_bits(value, bits)[0], accumulate.round_bits(value, bits, "truncate")[0]
    assert abs(near - x) <= 2.0**-bits * abs(x) and abs(cut) <= abs(x) and abs(cut - x) <= 2.0 ** (1 - bits) * abs(x)
    if bits == 24:
        assert near == np.float32(x) or abs(x) < 1e-37


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32))
def test_exact_products_refuse_what_they_cannot_promise(k: int, seed: int) -> None:
    digits = np.random.default_rng(seed).integers(-(2**30), 2**30, (2, k)).astype(np.float64)
    digits[0, 0] = 2.0**30
    with pytest.raises(UserError, match="2\\^53"):
        accumulate.exact(digits, digits.T)
    with pytest.raises(UserError, match="int32"):
        accumulate.int32(digits, digits.T)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exactness.exact_bits(0), "at least 1"),
        (lambda: accumulate.low_precision(np.ones((1, 1)), np.ones((1, 1)), 0), "k_step"),
        (lambda: accumulate.round_bits(np.ones(1), 8, "up"), "truncate"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
