"""Scheme II: moduli, exponents and residues, against Python's integers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ozaki_matrices import LAST_ROUNDING, SLACK, error_and_scale, integers_of, operand_bound

from gemmrepro.errors import UserError
from gemmrepro.ozaki import inputs, moduli, residues, scheme2

EXPONENTS = {"norms": residues.exponents_by_norms, "products": residues.exponents_by_products}
MODES = [(exponents, rounding) for exponents in EXPONENTS for rounding in residues.ROUNDINGS]


def multiplied(a: np.ndarray, b: np.ndarray, mode: tuple[str, str], count: int):
    """(residues of A' B', s, t), after a check that C' is the integer product and stays below half of M."""
    exponents, rounding = mode
    s, t = EXPONENTS[exponents](a, b, count, rounding)
    whole_a, whole_b = residues.integers(a, s, rounding), residues.integers(b, t, rounding)
    one, other = (np.array([int(value) for value in x.flat], object).reshape(x.shape) for x in (whole_a, whole_b))
    assert 2 * max((abs(one) @ abs(other)).flat) < moduli.product(count)
    found = residues.products(residues.of(whole_a, count), residues.of(whole_b, count))
    assert (integers_of(found) == one @ other).all()
    return found, s, t


def test_moduli() -> None:
    assert moduli.moduli(15) == (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197)
    chosen = moduli.moduli(moduli.MOST)
    assert math.lcm(*chosen) == math.prod(chosen) == moduli.product(24) and max(chosen) == 256
    # Greedy: nothing between two neighbours is coprime to all before.
    for index, (high, low) in enumerate(itertools.pairwise(chosen)):
        assert all(any(math.gcd(p, q) > 1 for q in chosen[: index + 1]) for p in range(low + 1, high))


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


def test_rounding_up_has_room() -> None:
    """Rows that fill R to the last 1e-9 and are rounded up: without the margins for that, M / 2 is passed."""
    a = np.full((1, 53), residues.radius(2) / math.sqrt(53) * (1 - 1e-9))
    assert 2 * 53 * np.rint(a[0, 0]) ** 2 >= moduli.product(2)
    multiplied(a, a.T, ("norms", "nearest"), 2)
    a = np.full((1, 72), 82 / 124 * (1 - 1e-9))
    assert 2 * 72 * np.rint(a[0, 0] * 2**9) ** 2 >= moduli.product(3)
    multiplied(a, a.T, ("products", "nearest"), 3)


@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("name", inputs.INPUTS)
def test_products_of_hard_inputs_keep_their_bounds(name: str, mode: tuple[str, str]) -> None:
    """The error is that of the operands and one rounding; the fast mode's is below its promise for any input."""
    a, b = inputs.INPUTS[name](np.random.default_rng(31), 7, 6, 59)
    for count in (8, 15):
        found, s, t = multiplied(a, b, mode, count)
        exponents = np.broadcast_to(-(s + t), found[0].shape)
        whole = zip(integers_of(found).flat, exponents.flat, strict=True)
        c = np.array([float(n * Fraction(2) ** int(e)) for n, e in whole]).reshape(exponents.shape)
        error, _ = error_and_scale(c, a, b)
        last = LAST_ROUNDING * (np.abs(c) + error)
        assert (error <= SLACK * (operand_bound(a, b, s, t, mode[1]) + last)).all()
        if mode == ("norms", "truncate"):
            assert (error <= SLACK * (scheme2.fast_bound(a, b, count) + last)).all()


def test_full_use_of_the_moduli() -> None:
    """The exponents are not merely safe: of like elements, each mode uses the room up to a factor of four, or eight."""
    a = np.full((1, 64), 1.0)
    for exponents, unused in (("norms", 8), ("products", 16)):
        for count in (6, 15):
            s, t = EXPONENTS[exponents](a, a.T, count)
            used = 64 * 2 ** int(s[0, 0] + t[0, 0])
            assert moduli.product(count) / unused <= used < moduli.product(count) / 2


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_exponents_follow_powers_of_two(mode: tuple[str, str]) -> None:
    rng = np.random.default_rng(36)
    a, b = inputs.normal(rng, 6, 5, 23)
    a[2], b[:, 3] = 0.0, 0.0  # whose exponents are 0
    rows, columns = rng.integers(-300, 300, (6, 1)).astype(np.int32), rng.integers(-300, 300, (1, 5)).astype(np.int32)
    rows[2], columns[:, 3] = 0, 0
    s, t = EXPONENTS[mode[0]](a, b, 12, mode[1])
    s2, t2 = EXPONENTS[mode[0]](np.ldexp(a, rows), np.ldexp(b, columns), 12, mode[1])
    assert (s2 == s - rows).all() and (t2 == t - columns).all() and s[2, 0] == t[0, 3] == 0


def test_the_longest_inner_product_of_one_int32_accumulator() -> None:
    """2^17 products of -128 with -128 wrap int32 to -2^31, which is 2^31 modulo 256 all the same."""
    k = moduli.LONGEST_K
    assert 127**2 * k < 2**31 == 128**2 * k and (-(2**31) - 2**31) % 256 == 0
    for length in (k, k + 3):
        x = np.full((1, length), -128.0)
        found = residues.products(residues.of(x, 5), residues.of(x.T, 5))
        assert integers_of(found)[0, 0] == 128**2 * length


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: moduli.moduli(1), "choose 2 to 24"),
        (lambda a, b: moduli.moduli(25), "choose 2 to 24"),
        (lambda a, b: residues.integers(a, 3, "up"), "truncate, nearest"),
        (lambda a, b: residues.exponents_by_products(a, b, 2), "take more moduli"),
        (lambda a, b: residues.exponents_by_norms(np.ones((1, 70_000)), np.ones((70_000, 1)), 2), "take more moduli"),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(np.ones((2, 3)), np.ones((3, 2)))
