"""R10 to R17 of crt on the CPU: their sources, launch after launch, against exact sums and the bound of each."""

import shutil
from fractions import Fraction

import hopper_grid
import numpy as np
import pytest
import staged
from certified_cases import CASES, U, relative
from scheme2_model import exponents_by_norms

from gemmrepro.ozaki import decided, inputs, moduli

SHAPE = (10, 200, 48)
"""Two tiles of C, both cut, and less than a step of k."""
SPOILED = -(2**31)
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


@compiles
@pytest.mark.parametrize(
    "name", ["graded along k", "phi = 2", "phi = 3", "phi = 4", "outlier", "large meets zero", "small integers"]
)
def test_every_element_keeps_its_bound(name: str) -> None:
    """By as many moduli as the case is known to take; tiles of residues keep the narrower bound."""
    draw, count = CASES[name]
    a, b = draw(np.random.default_rng(3), *SHAPE)
    got = staged.Certified().run(a, b)
    assert relative(a, b, got.c) <= SHAPE[2] * U + U
    for column, native in enumerate(got.kinds[0]):
        tile = slice(192 * column, 192 * (column + 1))
        assert native or relative(a, b[:, tile], got.c[:, tile]) <= decided.gamma(SHAPE[2]) + U
    assert (count is None or got.count == count) and got.natives == got.kinds.sum()
    assert (count == 0) == got.kinds.all() and (name != "small integers" or (got.c == a @ b).all())


@compiles
@pytest.mark.parametrize("name", ["normal", "A D, D = 2^+-30"])
def test_a_prepared_factor_keeps_the_bound(name: str) -> None:
    """Inner exponents of B alone: the same bits where there are none, and the bound where they are halves of D's."""
    a, b = CASES[name][0](np.random.default_rng(3), *SHAPE)
    got = staged.Certified().run(a, b, prepared=True)
    assert relative(a, b, got.c) <= max(decided.gamma(SHAPE[2]), SHAPE[2] * U) + U
    if name == "normal":
        assert got.count == 14 and (got.c == staged.Certified().run(a, b).c).all()
    else:
        assert got.inner.any() and np.abs(got.inner).max() <= 16


@compiles
def test_inf_and_nan_come_out_as_in_double() -> None:
    """Inf, NaN and finite elements where a sum in double has them; tiles without any take residues."""
    a, b = inputs.normal(np.random.default_rng(4), *SHAPE)
    b[3, 10], b[5, 11], b[:, 12] = np.inf, np.nan, 0.0
    got = staged.Certified().run(a, b)
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    assert (np.isnan(got.c) == np.isnan(wanted)).all()
    assert (got.c[np.isinf(wanted)] == wanted[np.isinf(wanted)]).all()
    finite = np.isfinite(wanted)
    assert np.abs(got.c[finite] - wanted[finite]).max() < 1e-12
    assert got.kinds.tolist() == [[1, 0]] and got.count == 14


@compiles
@pytest.mark.parametrize(("law", "turned"), [("normal", (True, False)), ("phi = 4", (False, True))])
def test_layouts_scalars_and_leading_dimensions(turned: tuple[bool, bool], law: str) -> None:
    """By residues and in double; C's rows stay as they are beyond n, whatever the order of threads and copies."""
    rng = np.random.default_rng(5)
    m, n, k = 13, 21, 35
    a, b = CASES[law][0](rng, m, n, k)
    c = rng.standard_normal((m, n))
    got = staged.Certified().run(a, b, 0.75, -1.5, c, turned, (3, 1, 5), seed=1)
    scale = 0.75 * np.abs(a) @ np.abs(b) + 1.5 * np.abs(c)
    assert (np.abs(got.c - (0.75 * (a @ b) - 1.5 * c)) <= 60 * U * scale).all() and np.isnan(got.beyond).all()
    assert (got.natives > 0) == (law == "phi = 4") and (law == "phi = 4" or got.count == 14)


@compiles
@pytest.mark.parametrize("level", ["R11", "R17"])
@pytest.mark.parametrize(
    ("law", "shape", "turned"),
    [
        ("outlier", SHAPE, (False, False)),
        ("phi = 4", (20, 70, 75), (False, True)),
        ("phi = 1", (260, 390, 20), (True, False)),
        ("normal", (5, 390, 60), (True, True)),
    ],
)
def test_later_rungs_decide_and_compute_the_same_bits(law, shape, turned, level):
    """As R10, by residues and in double, with several tiles a block and more steps than stages."""
    rng = np.random.default_rng(6)
    a, b = CASES[law][0](rng, *shape)
    c = rng.standard_normal((shape[0], shape[1]))
    old, new = (staged.Certified(each).run(a, b, 0.75, -1.5, c, turned, (3, 1, 5), seed=1) for each in ("R10", level))
    assert (old.c.view(np.int64) == new.c.view(np.int64)).all() and np.isnan(new.beyond).all()
    assert (old.plan[:3] == new.plan[:3]).all()
    for name in ("kinds", "inner", "worst", "exponents_a", "exponents_b"):
        assert np.array_equal(getattr(old, name), getattr(new, name), equal_nan=True), name


@compiles
@pytest.mark.parametrize(
    ("failing", "native"), [([(0, 1)], 1), ([(0, 0), (0, 2)], 9)], ids=["another tile", "all of the first wave"]
)
def test_the_first_wave_alone_may_send_all_of_c_to_double(failing, native):
    """Two blocks begin with tiles (0, 0) and (0, 2) of nine. Where a tile fails, a large number meets a zero.
    Passes over A, B and C take no time here, so that residues are faster for small products, too."""
    free = hopper_grid.with_plant(staged.source_text("R17"), r"(TIME_BYTE = )1\.0 / 2\.9e6", r"\g<1>0.0")
    free_passes = staged.Certified("R17", free)
    a, b = inputs.normal(np.random.default_rng(15), 300, 400, 20)
    for h, (row, column) in enumerate(failing):
        a[128 * row + h, h], b[h], b[h, 192 * column + 7] = 2.0**60, 1.0, 0.0
    got = free_passes.run(a, b, eager=False, seed=1)
    assert got.natives == native and (got.count == 0) == (native == 9) == np.isnan(got.worst).any()
    assert free_passes.run(a, b, eager=True).natives == len(failing)
    assert relative(a, b, got.c) <= 20 * U + U


@compiles
def test_beta_of_zero_takes_no_c() -> None:
    a, b = inputs.normal(np.random.default_rng(9), 6, 7, 8)
    assert not staged.Certified().run(a, b, 0.0, 0.0, np.full((6, 7), np.nan), loosened=99).c.any()


def uneven(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A [m,k] and B [k,n] whose rows and columns differ in size, largest where a kernel might not look."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a *= 2.0 ** rng.integers(-40, 40, (m, 1))
    b *= 2.0 ** rng.integers(-40, 40, (1, n))
    for column in range(n):  # a column's norm is known only if all of its parts are looked at
        b[(column * 977 + k - 1) % k, column] *= 2.0**20
    return a, b


def wrong(passes: staged.OnePass, m: int, n: int, k: int, seed: int = 0) -> str:
    """What is wrong with exponents, residues or C; "" if nothing is."""
    a, b = uneven(m, n, k)
    s, t, of_a, of_b, c = passes.run(a, b, seed)
    for name, found, wanted in zip("AB", (s, t), exponents_by_norms(a, b, staged.COUNT), strict=True):
        wanted = wanted.ravel()
        # The device's radius is 2^-22 below the reference's.
        if (found > wanted).any() or (found < wanted - 1).any() or (found == wanted).mean() < 0.9:
            return f"exponents of {name}"
    whole_a, whole_b = np.rint(np.ldexp(a, s[:, None])), np.rint(np.ldexp(b, t[None, :]))
    for name, found, whole in (("A", of_a, whole_a), ("B", of_b, whole_b.T)):
        for i, p in enumerate(moduli.moduli(staged.COUNT)):
            if (found[i, :, :k] != whole.astype(np.int64) % p).any() or found[i, :, k:].any():
                return f"residues of {name}"
    exactly = whole_a.astype(np.int64).astype(object) @ whole_b.astype(np.int64).astype(object)
    slack = moduli.product(staged.COUNT) >> 76
    for i in range(m):
        for j in range(n):
            scale = Fraction(2) ** int(s[i] + t[j])
            error = abs(Fraction(float(c[i, j])) * scale - exactly[i, j]) if np.isfinite(c[i, j]) else None
            if error is None or error > abs(exactly[i, j]) / 2**52 + slack:
                return f"C[{i}, {j}]"
    return ""


LONG_ROW = (1, 1, 24 * 1024 + 3)
"""A row that does not fit and is read again."""


@compiles
@pytest.mark.parametrize("level", ["R15", "R16"])
@pytest.mark.parametrize(
    "shape",
    [(3, 20, 40), (5, 17, 37), (1, 33, 530), (2, 18, 4700), (129, 193, 16), (20, 400, 16), LONG_ROW],
    ids=["one block has rows", "odd", "two blocks", "read twice", "tiles", "208 and 192 columns", "a long row"],
)
def test_exponents_residues_and_c_are_right(level: str, shape: tuple[int, int, int]) -> None:
    for seed in (0, 3):
        assert wrong(staged.OnePass(level), *shape, seed) == ""


@compiles
@pytest.mark.parametrize("level", ["R15", "R16"])
def test_inf_and_nan_spoil_their_row_or_column_alone(level: str) -> None:
    a, b = uneven(3, 20, 600)
    clean = staged.OnePass(level).run(a, b)[4]
    a[1, 5], b[599, 7] = np.inf, np.nan
    s, t, _, _, c = staged.OnePass(level).run(a, b)
    assert s[1] == SPOILED and (np.delete(s, 1) != SPOILED).all()
    assert t[7] == SPOILED and (np.delete(t, 7) != SPOILED).all()
    spoiled = np.zeros(c.shape, bool)
    spoiled[1], spoiled[:, 7] = True, True
    assert np.isnan(c[spoiled]).all() and (c[~spoiled] == clean[~spoiled]).all()


PLANTS = [
    ("R15", "peers do not meet", r"cluster_sync\(\);", ";", (2, 18, 4000)),
    ("R15", "a chunk overwritten while it is stored", r"__syncthreads\(\);  // all have stored.*", ";", (2, 18, 4700)),
    ("R15", "kept pairs in another order", r"row % NEIGHBOURS / 2", "(row % NEIGHBOURS / 2 ^ 1)", (2, 18, 40)),
    ("R15", "rows' pairs in another order", r"(again\[i\] = load_pair\(row, )group", r"\g<1>0 * group", LONG_ROW),
    ("R15", "copies not awaited", r"copy_wait<0>\(\);", ";", (2, 18, 40)),
    ("R16", "16 columns of a tile left out", r"part \* 16 >= columns", "part * 16 + 16 >= columns", (2, 400, 16)),
]


@compiles
@pytest.mark.parametrize(
    ("level", "name", "pattern", "replacement", "shape"), PLANTS, ids=[plant[1] for plant in PLANTS]
)
def test_a_planted_bug_is_found(level: str, name: str, pattern: str, replacement: str, shape) -> None:
    planted = staged.OnePass(level, hopper_grid.with_plant(staged.source_text(level), pattern, replacement))

    def found(seed: int) -> bool:
        try:
            return wrong(planted, *shape, seed) != ""
        except hopper_grid.Broken:  # the model saw a rule broken
            return True

    assert any(found(seed) for seed in range(6)), name
