"""Scheme II: moduli, residues, reconstruction and its three modes, against Python's integers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import SLACK, UNIT, error_and_scale, pairs

from gemmrepro.errors import UserError
from gemmrepro.ozaki import crt, exact, inputs, measures, moduli, residues, scheme2

MODES = [(exponents, rounding) for exponents in ("norms", "products") for rounding in residues.ROUNDINGS]
EXPONENTS = {"norms": residues.exponents_by_norms, "products": residues.exponents_by_products}


def as_object(x: np.ndarray) -> np.ndarray:
    """Integer-valued float64 as Python integers."""
    return np.array([int(value) for value in x.flat], dtype=object).reshape(x.shape)


def test_moduli() -> None:
    assert moduli.moduli(15) == (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197)
    chosen = moduli.moduli(moduli.MOST)
    assert math.lcm(*chosen) == math.prod(chosen) and max(chosen) == 256
    # Greedy: nothing between two neighbours is coprime to all before.
    for index, (high, low) in enumerate(itertools.pairwise(chosen)):
        for between in range(low + 1, high):
            assert any(math.gcd(between, p) > 1 for p in chosen[: index + 1])
    assert moduli.bits(15) == pytest.approx(117.8, abs=0.1)
    assert moduli.operand_bits(15, 1) == pytest.approx(moduli.bits(15) / 2 - 0.5, abs=1e-9)
    for bad in (1, 25):
        with pytest.raises(UserError, match="choose 2 to 24"):
            moduli.moduli(bad)
    with pytest.raises(UserError, match="ask for fewer bits"):
        moduli.needed(100, 1024)
    assert (
        moduli.operand_bits(moduli.needed(53, 4096), 4096)
        >= 53
        > moduli.operand_bits(moduli.needed(53, 4096) - 1, 4096)
    )


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**90), 2.0**90).map(math.trunc).map(float), min_size=1, max_size=6))
@example([2.0**80 + 2.0**30, -(2.0**60), -128.0, 128.0, 127.0, -1.0])
def test_residues_are_those_of_python(values: list[float]) -> None:
    for p, found in zip(moduli.moduli(24), residues.of(np.array([values]), 24), strict=True):
        for value, residue in zip(values, found[0].tolist(), strict=True):
            assert (int(value) - residue) % p == 0 and -p / 2 <= residue <= (p - 1) / 2
    # Of integers, too.
    whole = np.array([-300, -128, -1, 0, 127, 128, 40_000], dtype=np.int64)
    assert (residues.symmetric(whole, 256) == [-44, -128, -1, 0, 127, -128, 64]).all()


@settings(deadline=None)
@given(st.integers(2, 24), st.data())
def test_reconstruction(count: int, data: st.DataObject) -> None:
    half = moduli.product(count) // 2
    bound = half - 1
    shrink = data.draw(st.integers(0, bound.bit_length()))
    wanted = [data.draw(st.integers(-(bound >> shrink), bound >> shrink)), bound, -bound, 0, 1, -1]
    found = [
        np.array([(n + (p - 1 if p == 256 else p) // 2 + (p == 256)) % p - p // 2 for n in wanted]).astype(np.int8)[
            None
        ]
        for p in moduli.moduli(count)
    ]
    for p, residue in zip(moduli.moduli(count), found, strict=True):
        assert all((n - int(r)) % p == 0 for n, r in zip(wanted, residue[0], strict=True))
    assert crt.python_integers(found)[0].tolist() == wanted
    weights = [math.prod(moduli.moduli(count)[:i]) for i in range(count)]
    digits = crt.mixed_radix(found)
    assert [sum(int(v[0, j]) * w for v, w in zip(digits, weights, strict=True)) for j in range(len(wanted))] == wanted
    hi, lo = crt.to_double_double(found)
    for j, n in enumerate(wanted):
        value = Fraction(float(hi[0, j])) + Fraction(float(lo[0, j]))
        assert abs(value - n) <= abs(n) * Fraction(2) ** -97


@settings(deadline=None, max_examples=60)
@given(pairs(40), st.sampled_from(MODES), st.integers(6, 20), st.booleans())
def test_the_integer_product_stays_below_half_of_the_moduli(operands, mode, count: int, one_sign: bool) -> None:
    a, b = operands
    if one_sign:
        a, b = np.abs(a), np.abs(b)
    check_room(a, b, mode, count)


def check_room(a: np.ndarray, b: np.ndarray, mode: tuple[str, str], count: int) -> None:
    exponents, rounding = mode
    s, t = EXPONENTS[exponents](a, b, count, rounding)
    whole_a, whole_b = residues.integers(a, s, rounding), residues.integers(b, t, rounding)
    one, other = as_object(whole_a), as_object(whole_b)
    assert 2 * max((abs(one) @ abs(other)).flat) < moduli.product(count)
    found = residues.products(residues.of(whole_a, count), residues.of(whole_b, count))
    assert (crt.python_integers(found) == one @ other).all()


def test_rounding_up_has_room() -> None:
    """Rows that fill R to the last 1e-9 and are rounded up: without the margins for that, M / 2 is passed."""
    a = np.full((1, 53), residues.radius(2) / math.sqrt(53) * (1 - 1e-9))
    assert 2 * 53 * np.rint(a[0, 0]) ** 2 >= moduli.product(2)
    check_room(a, a.T, ("norms", "nearest"), 2)
    a = np.full((1, 72), 82 / 124 * (1 - 1e-9))
    assert 2 * 72 * np.rint(a[0, 0] * 2**9) ** 2 >= moduli.product(3)
    check_room(a, a.T, ("products", "nearest"), 3)


@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("name", inputs.INPUTS)
def test_hard_inputs_stay_within_the_moduli_and_the_bounds(name: str, mode: tuple[str, str]) -> None:
    exponents, rounding = mode
    a, b = inputs.INPUTS[name](np.random.default_rng(31), 7, 6, 59)
    size = np.abs(exact.product(a, b).nearest())
    for count in (8, 15):
        check_room(a, b, mode, count)
        c = scheme2.gemm(a, b, count, exponents, rounding)
        error, _ = error_and_scale(c, a, b)
        s, t = EXPONENTS[exponents](a, b, count, rounding)
        last = scheme2.LAST_ROUNDING * (size + error)
        assert (error <= SLACK * (scheme2.operand_bound(a, b, s, t, rounding) + last)).all()
        if mode == ("norms", "truncate"):
            assert (error <= SLACK * (scheme2.fast_bound(a, b, count) + last)).all()


@settings(deadline=None, max_examples=40)
@given(pairs(60), st.integers(5, 20))
def test_the_fast_mode_keeps_its_promise_for_any_input(operands, count: int) -> None:
    a, b = operands
    c = scheme2.gemm(a, b, count)
    error, _ = error_and_scale(c, a, b)
    assert (error <= SLACK * (scheme2.fast_bound(a, b, count) + scheme2.LAST_ROUNDING * (np.abs(c) + error))).all()


def test_full_use_of_the_moduli() -> None:
    """The exponents are not merely safe: of like elements, the fast mode uses the room up to a factor of four."""
    a = np.full((1, 64), 1.0)
    for count in (6, 15):
        s, t = residues.exponents_by_norms(a, a.T, count)
        assert moduli.product(count) / 8 <= 64 * 2 ** int(s[0, 0] + t[0, 0]) < moduli.product(count) / 2
        s, t = residues.exponents_by_products(a, a.T, count)
        assert moduli.product(count) / 16 <= 64 * 2 ** int(s[0, 0] + t[0, 0]) < moduli.product(count) / 2


def test_accuracy_against_the_number_of_moduli() -> None:
    a, b = inputs.normal(np.random.default_rng(32), 64, 64, 200)
    hi, lo = exact.product_double_double(a, b)
    for count in (8, 9, 10, 11, 12):
        errors = {}
        for rounding in residues.ROUNDINGS:
            c = scheme2.gemm(a, b, count, rounding=rounding)
            errors[rounding] = measures.frobenius(exact.minus_double_double(c, hi, lo), hi)
            least, most = scheme2.predicted_fro(count, 200, rounding)
            assert 0.9 * least <= errors[rounding] <= 1.1 * most
        assert errors["truncate"] / errors["nearest"] == pytest.approx(2.43, rel=0.06)
    assert measures.scaled(*error_and_scale(scheme2.gemm(a[:8], b[:, :8], 16), a[:8], b[:, :8])) < 1.0


def test_the_accurate_mode_sees_what_norms_do_not() -> None:
    """Large in different places: |A||B| is far below the product of the norms. Seven bits see 2^-14 of that at most."""
    a, b = inputs.complementary(np.random.default_rng(33), 8, 8, 64)
    fast, accurate = (
        measures.scaled(*error_and_scale(scheme2.gemm(a, b, 20, how), a, b)) for how in ("norms", "products")
    )
    assert fast / 2.0**14 < accurate < fast / 2.0**4


@pytest.mark.parametrize("name", inputs.INPUTS)
def test_the_certified_mode_on_hard_inputs(name: str) -> None:
    a, b = inputs.INPUTS[name](np.random.default_rng(34), 12, 11, 73)
    check_certified(a, b, scheme2.certified(a, b))
    loose = scheme2.certified(a, b, gamma=2.0**-30, rounding="truncate", exponents="norms")
    check_certified(a, b, loose)
    assert loose.count <= scheme2.certified(a, b).count
    if name in ("normal", "phi = 0", "rows and columns scaled, 30 bits", "cancelling"):
        assert not loose.fallback.any() and not scheme2.certified(a, b).fallback.any()


@pytest.mark.parametrize("rounding", residues.ROUNDINGS)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_certificate_counts_both_operands(rounding: str, swapped: bool) -> None:
    """One flat, one peaked, all positive: nearly all of the error comes from cutting the peaked one."""
    rng = np.random.default_rng(38)
    a, b = rng.uniform(0.9, 1.0, (4, 300)), np.ldexp(rng.uniform(0.5, 1.0, (300, 4)), -20)
    b[0] = 1.0
    if swapped:
        a, b = b.T.copy(), a.T.copy()
    s, t = residues.exponents_by_norms(a, b, 8, rounding)
    error, scale = error_and_scale(scheme2.gemm(a, b, 8, "norms", rounding), a, b)
    seen = set()
    for exponent in np.arange(-40, -10, 0.25):
        good = scheme2.certificate(a, b, s, t, 2.0**exponent, rounding)
        assert (error[good] <= SLACK * (2.0**exponent + UNIT) * scale[good]).all()
        seen.add(bool(good.all()))
    assert seen == {True, False}


def check_certified(a: np.ndarray, b: np.ndarray, found: scheme2.Certified) -> None:
    error, scale = error_and_scale(found.c, a, b)
    k = a.shape[1]
    native = k * UNIT / (1 - k * UNIT)
    promised = np.where(found.fallback, native, found.gamma)
    assert (error <= SLACK * (promised * scale + scheme2.LAST_ROUNDING * (np.abs(found.c) + error))).all()


@settings(deadline=None, max_examples=40)
@given(pairs(60), st.floats(2.0**-50, 2.0**-10), st.sampled_from(MODES), st.integers(6, 20))
def test_the_certified_mode_keeps_its_promise_for_any_input(operands, gamma: float, mode, most: int) -> None:
    a, b = operands
    check_certified(a, b, scheme2.certified(a, b, gamma, *mode, most=most))


def test_what_cannot_be_certified_falls_back_and_says_so() -> None:
    rng = np.random.default_rng(35)
    a, b = inputs.graded(400)(rng, 6, 6, 50)
    found = scheme2.certified(a, b)
    assert found.fallback.all() and found.count == 20
    assert (found.c == a @ b).all()
    # Only the rows that need it.
    a2, b2 = inputs.normal(rng, 6, 6, 50)
    a2[2] = a[2]
    some = scheme2.certified(a2, np.ldexp(b2, np.linspace(0, 90, 50).astype(np.int32)[:, None]), most=16)
    assert not some.fallback.all()
    # A product that is zero because nothing meets: certified, and exactly zero.
    apart = scheme2.certified(np.array([[1e200, 0.0]]), np.array([[0.0], [1e-200]]))
    assert apart.c == 0 and not apart.fallback.any()


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_powers_of_two(mode: tuple[str, str]) -> None:
    rng = np.random.default_rng(36)
    a, b = inputs.normal(rng, 6, 5, 23)
    rows, columns = rng.integers(-300, 300, (6, 1)).astype(np.int32), rng.integers(-300, 300, (1, 5)).astype(np.int32)
    scaled = np.ldexp(a, rows), np.ldexp(b, columns)
    if mode[0] == "norms":
        assert (scheme2.gemm(*scaled, 12, *mode) == np.ldexp(scheme2.gemm(a, b, 12, *mode), rows + columns)).all()
    s, t = EXPONENTS[mode[0]](a, b, 12, mode[1])
    s2, t2 = EXPONENTS[mode[0]](*scaled, 12, mode[1])
    assert (s2 == s - rows).all() and (t2 == t - columns).all()


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_special_values(mode: tuple[str, str]) -> None:
    a, b = inputs.normal(np.random.default_rng(37), 6, 5, 17)
    plain = scheme2.gemm(a, b, 15, "norms", mode[1])
    a[1, 3], a[4, 0], b[2, 4] = np.inf, np.nan, -np.inf
    a[0], b[:, 1] = -0.0, 0.0
    for c in (scheme2.gemm(a, b, 15, *mode), scheme2.certified(a, b, None, *mode).c):
        assert np.isnan(c[[1, 4]]).all() and np.isnan(c[:, 4]).all()
        zeros = np.concatenate([c[0, :4], c[[2, 3, 5], 1]])
        assert (zeros == 0).all() and not np.signbit(zeros).any()
        kept = np.ix_([2, 3, 5], [0, 2, 3])
        assert np.allclose(c[kept], plain[kept], rtol=1e-12)
    with pytest.raises(UserError, match="2 rows of A and 1 columns of B"):
        scheme2.gemm(a, b, 15, *mode, nonfinite="raise")
    for m, n, k in ((0, 2, 3), (2, 0, 3), (2, 3, 0), (1, 1, 1)):
        assert (scheme2.gemm(np.ones((m, k)), np.ones((k, n)), 15, *mode) == np.full((m, n), float(k))).all()
    tiny = np.full((1, 3), 3 * 2.0**-1074)
    assert scheme2.gemm(tiny, np.full((3, 1), 2.0**1000), 15, *mode) == 9 * 2.0**-74
    assert scheme2.gemm(tiny, np.ones((3, 1)), 15, *mode) == 9 * 2.0**-1074
    assert np.isinf(scheme2.gemm(np.full((1, 1), 1e200), np.full((1, 1), -1e200), 15, *mode))


def test_the_longest_inner_product_of_one_int32_accumulator() -> None:
    """2^17 products of -128 with -128 wrap int32 to -2^31, which is 2^31 modulo 256 all the same."""
    k = moduli.LONGEST_K
    assert 127**2 * k < 2**31 == 128**2 * k and (-(2**31) - 2**31) % 256 == 0
    for length in (k, k + 3):
        x = np.full((1, length), -128.0)
        found = residues.products(residues.of(x, 5), residues.of(x.T, 5))
        assert crt.python_integers(found)[0, 0] == 128**2 * length


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: scheme2.gemm(a, b, 1), "choose 2 to 24"),
        (lambda a, b: scheme2.gemm(a, b, 15, "max"), "'norms' \\(fast\\) or 'products'"),
        (lambda a, b: scheme2.gemm(a, b, 15, "norms", "up"), "truncate, nearest"),
        (lambda a, b: scheme2.gemm(a, b, 2, "products"), "take more moduli"),
        (lambda a, b: scheme2.gemm(np.ones((1, 70_000)), np.ones((70_000, 1)), 2), "take more moduli"),
        (lambda a, b: scheme2.gemm(a, b[:2], 15), "must agree"),
        (lambda a, b: scheme2.certified(a, b, gamma=0.0), "above zero"),
        (lambda a, b: scheme2.certified(a, b, most=30), "choose 2 to 24"),
        (lambda a, b: residues.integers(a, 3, "up"), "truncate, nearest"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(np.ones((2, 3)), np.ones((3, 2)))
