"""R10 of crt on the CPU: its own source, launch after launch, against exact products and against `ozaki.decided`.

Inputs are those on which schemes like this one are known to fail: grading tests for classical products (J. Demmel et
al.), A D with D^-1 B, complementary halves, wide exponents, gradual underflow, cancellation, Inf and NaN.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import certified_grid
import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided, exact, inputs, residues, scheme2

Draw = Callable[[np.random.Generator, int, int, int], inputs.Pair]
U = 2.0**-53
SHAPE = (140, 200, 96)
"""Four tiles of C, three of them cut, and less than a step of k."""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> certified_grid.Device:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    return certified_grid.Device(tmp_path_factory.mktemp("certified"))


def diagonal(bits: int) -> Draw:
    """A D and D^-1 B, D = 2^-bits to 2^bits at random."""

    def draw(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
        a, b = inputs.normal(rng, m, n, k)
        d = rng.integers(-bits, bits + 1, k).astype(np.int32)
        return np.ldexp(a, d), np.ldexp(b, -d[:, None])

    return draw


def halves(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """The first half of A is 1e12 and meets 1e-12 in B; the second half the other way round."""
    a, b = inputs.normal(rng, m, n, k)
    d = np.where(np.arange(k) < k // 2, 1e12, 1e-12)
    return a * d, b / d[:, None]


def integers(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    return rng.integers(-8, 9, (m, k)).astype(float), rng.integers(-8, 9, (k, n)).astype(float)


def zeroed(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """Large rows and columns that a Strassen step would add to small ones, and zeros that it would not leave zero."""
    a, b = inputs.normal(rng, m, n, k)
    a[: m // 2] *= 1e12
    b[:, : n // 2] *= 1e12
    a[m // 2 + 3], a[5], b[:, 7] = 0.0, 0.0, 0.0
    a[:, 11], b[13] = 0.0, 0.0
    return a, b


def underflowing(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """Products around the least subnormal number."""
    a, b = inputs.normal(rng, m, n, k)
    return a * 2.0**-540, b * 2.0**-530


def outlier(rng: np.random.Generator, m: int, n: int, k: int) -> inputs.Pair:
    """One element of A far above all others, one k that is zero in A: neither says anything of D."""
    a, b = inputs.normal(rng, m, n, k)
    a[3, 17], a[:, 40] = 2.0**60, 0.0
    return a, b


CASES: dict[str, tuple[Draw, int | None]] = {
    "normal": (inputs.normal, 14),
    "phi = 1": (inputs.spread(1.0), 15),
    "phi = 2": (inputs.spread(2.0), 16),
    "phi = 4": (inputs.spread(4.0), 0),
    "phi = 8": (inputs.spread(8.0), 0),
    "A D, D = 2^+-30": (diagonal(30), 14),
    "A D, D = 2^+-500": (diagonal(500), 14),
    "complementary halves": (halves, 14),
    "large meets zero": (inputs.complementary, 0),
    "rows and columns scaled": (inputs.row_scaled(300), 14),
    "zeroed rows and columns": (zeroed, 14),
    "cancelling": (inputs.cancelling, 14),
    "gradual underflow": (underflowing, 14),
    "outlier": (outlier, None),
    "small integers": (integers, 13),
}
"""Inputs, and the moduli that they should take; None: tiles differ."""


def relative(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """max |C - AB| / |A||B|, after 2^-1074 an element for underflow; where |A||B| is 0, C must be."""
    error = np.maximum(exact.product(a, b).minus(c) - a.shape[1] * 2.0**-1074, 0.0)
    magnitudes = exact.product(np.abs(a), np.abs(b)).nearest()
    assert not c[magnitudes == 0.0].any()
    return float((error / np.where(magnitudes > 0, magnitudes, 1.0)).max())


@pytest.mark.parametrize("name", CASES)
def test_every_element_keeps_its_bound(device: certified_grid.Device, name: str) -> None:
    """And the device decides and computes what the model does, to the bit where tiles take residues."""
    draw, count = CASES[name]
    a, b = draw(np.random.default_rng(3), *SHAPE)
    got, wanted = device.run(a, b), decided.decide(a, b, eager=True)
    assert relative(a, b, got.c) <= max(wanted.gamma, SHAPE[2] * U) + U
    assert count is None or got.count == count
    assert (got.count, got.flat) == (wanted.count, wanted.flat)
    assert (got.kinds == wanted.native).all() and got.natives == wanted.native.sum()
    assert (got.inner[: SHAPE[2]] == wanted.inner).all()
    by_residues = ~np.repeat(np.repeat(wanted.native, 128, axis=0), 192, axis=1)[: SHAPE[0], : SHAPE[1]]
    if by_residues.any():
        assert (got.exponents_a == wanted.s).all() and (got.exponents_b == wanted.t).all()
        assert (got.c == decided.product(a, b, wanted))[by_residues].all()
    if name == "small integers":
        assert (got.c == a @ b).all()


def test_inf_and_nan_come_out_as_in_double(device: certified_grid.Device) -> None:
    """Inf, NaN and finite elements where a sum in double has them; tiles without any take residues."""
    a, b = inputs.normal(np.random.default_rng(4), *SHAPE)
    a[2, 5], a[7, 9], a[9, 0], b[3, 10], b[:, 12] = np.inf, -np.inf, np.nan, np.inf, 0.0
    got = device.run(a, b)
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    assert (np.isnan(got.c) == np.isnan(wanted)).all()
    assert (got.c[np.isinf(wanted)] == wanted[np.isinf(wanted)]).all()
    finite = np.isfinite(wanted)
    assert np.abs(got.c[finite] - wanted[finite]).max() < 1e-12
    assert got.kinds.tolist() == [[1, 1], [1, 0]] and got.count == 14


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("law", ["normal", "phi = 4"])
def test_layouts_scalars_and_leading_dimensions(
    device: certified_grid.Device, turned: tuple[bool, bool], law: str
) -> None:
    """By residues and in double; C's rows stay as they are beyond n, whatever the order of threads and copies."""
    rng = np.random.default_rng(5)
    a, b = CASES[law][0](rng, 131, 197, 53)
    c = rng.standard_normal((131, 197))
    got = device.run(a, b, 0.75, -1.5, c, transposed=turned, padding=(3, 1, 5), seed=1)
    scale = 0.75 * np.abs(a) @ np.abs(b) + 1.5 * np.abs(c)
    assert (np.abs(got.c - (0.75 * (a @ b) - 1.5 * c)) <= 60 * U * scale).all() and np.isnan(got.beyond).all()
    assert (got.natives > 0) == (law == "phi = 4") and (law == "phi = 4" or got.count == 14)


def test_no_scalar_and_no_c_is_read_in_vain(device: certified_grid.Device) -> None:
    """beta = 0 takes no C, which is NaN here; alpha = 0 no product, whose operands hold Inf."""
    a, b = inputs.normal(np.random.default_rng(6), 20, 30, 40)
    a[1, 2] = np.inf
    c = np.random.default_rng(7).standard_normal((20, 30))
    assert not device.run(a, b, 0.0, 0.0, np.full((20, 30), np.nan)).c.any()
    assert (device.run(a, b, 0.0, 2.0, c).c == 2 * c).all()
    assert (device.run(a, b, 0.0, 2.0, c, loosened=99).c == 2 * c).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (257, 1, 17), (1, 385, 300)])
def test_any_shape(device: certified_grid.Device, shape: tuple[int, int, int]) -> None:
    a, b = inputs.normal(np.random.default_rng(8), *shape)
    for loosened in (0, 99):
        assert relative(a, b, device.run(a, b, loosened=loosened).c) <= (2 * shape[2] ** 0.5 + 1) * U + shape[2] * U


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_any_order_of_threads_copies_and_products_gives_the_same(device: certified_grid.Device, seed: int) -> None:
    """Of three steps of k, so that the rings go round; one tile in double, three by residues."""
    a, b = inputs.normal(np.random.default_rng(13), 140, 200, 300)
    a[2, 5] = 2.0**40
    a[2, 6:] *= 2.0**-40
    got, usual = device.run(a, b, seed=seed), device.run(a, b)
    assert (got.c == usual.c).all() and (got.kinds == usual.kinds).all()


@pytest.mark.parametrize("shape", [Shape(1, 1, 1), Shape(129, 385, 65), Shape(700, 1030, 600), Shape.cube(4096)])
def test_launches_cover_every_shape(shape: Shape) -> None:
    kernel = registry.kernel("crt.certified")
    grids = {step.entry: step.launch(shape).grid for step in kernel.own_launches}
    room = {name: array.lengths(shape) for name, array in kernel.run.workspace.items()}
    tiles = -(-shape.m // 128) * -(-shape.n // 192)
    assert room["worst"][0] == room["list"][0] == room["natives"][0] == room["kinds"][0] == tiles
    assert grids["measure_rows"][0] == grids["rows_to_residues"][0] == shape.m
    assert grids["measure_columns"][0] * 32 >= shape.n and grids["measure_columns"][1] * 256 >= shape.k
    assert grids["measure_columns"][1] == room["partial"][0] and grids["join_columns"][0] * 128 >= shape.n
    assert grids["columns_to_residues"][0] * 32 >= shape.n and grids["columns_to_residues"][1] * 128 >= shape.k
    assert grids["sample_inner"][0] * 32 >= shape.k and room["inner"][0] >= shape.k
    assert grids["reconstruct"][0] * grids["reconstruct"][1] == tiles * 6 and room["residues"][0] == decided.MOST


def test_time_decides_between_residues_and_double(device: certified_grid.Device) -> None:
    """A product so small is faster in double, though its bound would allow residues."""
    a, b = inputs.normal(np.random.default_rng(9), 20, 30, 40)
    assert device.run(a, b).count == 14 and device.run(a, b, eager=False).count == 0
    assert decided.decide(a, b).count == 0


@pytest.mark.parametrize(("law", "gives_up"), [("normal", False), ("phi = 4", True), ("half of the rows", False)])
def test_a_glance_gives_up_where_all_would_fail(device: certified_grid.Device, law: str, gives_up: bool) -> None:
    """The kernels that come after it leave then: what they would write keeps all its bits."""
    rng = np.random.default_rng(12)
    a, b = CASES["phi = 4" if law == "phi = 4" else "normal"][0](rng, *SHAPE)
    if law == "half of the rows":
        a[:70] *= np.exp(6 * rng.standard_normal((70, SHAPE[2])))
    got = device.run(a, b, eager=False)
    assert (got.coarse_a == 0xFF).all() == (got.coarse_b == 0xFF).all() == np.isnan(got.worst).all() == gives_up
    found = decided.hopeless(a, b, got.inner[: SHAPE[2]], decided.decide(a, b).limits[-1])
    assert found == gives_up and relative(a, b, got.c) <= SHAPE[2] * U + U


# The model alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, *inputs.INPUTS])
@pytest.mark.parametrize("loosened", [0, 3])
def test_the_model_keeps_the_bound(name: str, loosened: int) -> None:
    draw = CASES[name][0] if name in CASES else inputs.INPUTS[name]
    for seed, (m, n, k) in enumerate(((40, 30, 70), (17, 33, 300))):
        a, b = draw(np.random.default_rng(seed), m, n, k)
        decision = decided.decide(a, b, loosened, eager=True)
        if decision.count:
            assert relative(a, b, decided.product(a, b, decision)) <= decision.gamma + U


@pytest.mark.parametrize("phi", [0.0, 1.0, 3.0])
def test_bytes_are_lower_bounds_of_a_quarter_at_most(phi: float) -> None:
    rng = np.random.default_rng(10)
    x = inputs.spread(phi)(rng, 30, 30, 200)[0]
    x[3, :50], x[4], x[5, 7] = 0.0, 2.0**-1070, np.inf
    offset = decided._measured(x, np.zeros(200, np.int64)).offset
    byte = decided.coarse(x, -offset[:, None])
    low = np.ldexp(decided.decoded(byte), (offset - 1008)[:, None].astype(np.int32))
    assert (low <= np.abs(x)).all() and not low[4].any()
    within = (byte >= 4) & (byte < 0x7B)  # neither below e5m2's normal numbers nor at its largest
    assert within.mean() > 0.5 and (low >= 0.8 * np.abs(x))[within].all()


def test_limits_are_those_of_the_radius() -> None:
    """A decision's limit times the ratio of an element is gamma times what the error's bound is to R."""
    a, b = inputs.normal(np.random.default_rng(11), 20, 24, 64)
    found = decided.decide(a, b, eager=True)
    finite_a, finite_b = np.abs(a), np.abs(b)
    for count, limit in zip(range(decided.LEAST, decided.MOST + 1), found.limits, strict=True):
        s, t = residues.exponents_by_norms(a, b, count, "nearest")
        step_a, step_b = 2.0 ** -s.astype(float), 2.0 ** -t.astype(float)
        bound = 0.5 * (step_a * finite_b.sum(axis=0) + step_b * finite_a.sum(axis=1, keepdims=True))
        passed = found.ratio <= limit
        assert (bound[passed] <= found.gamma * (finite_a @ finite_b)[passed]).all()
        assert (scheme2.operand_bound(a, b, s, t, "nearest") <= 1.01 * bound).all()


def test_what_the_device_cannot_take_is_refused() -> None:
    with pytest.raises(UserError, match="the certified mode takes 1 to 65536 at a time"):
        decided.decide(np.zeros((1, 0)), np.zeros((0, 1)))


# Planted bugs -------------------------------------------------------------------------------------------------------

PLANTS = [
    ("a sign of the inner exponents lost", "flat || !there ? 0 : sign * inner[depth + h];", "sign * ", ""),
    ("norms of the smallest number of moduli", "(exact ? 0.0f : __double2float_ru(x.size * unit))", "exact", "true"),
    ("a stage filled while it is read", "__syncthreads();  // this stage is there for all", "__syncthreads();", ""),
    ("rows with an Inf take residues", "if (x.low == SPOILED || x.biased - offset", "x.low == SPOILED ||", ""),
]


@pytest.mark.parametrize(("what", "line", "old", "new"), PLANTS, ids=lambda part: part if " " in part else "")
def test_planted_bugs_show(what: str, line: str, old: str, new: str, tmp_path: Path) -> None:
    """Each makes a bound fail, or elements differ from those of the model."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    source = certified_grid.source_text()
    line = line.strip("()")
    assert source.count(line) >= 1, what
    planted = certified_grid.Device(tmp_path, source.replace(line, line.replace(old, new), 1))
    caught = False
    for name in ("A D, D = 2^+-30", "phi = 2", "phi = 4", "Inf"):
        a, b = (CASES[name][0] if name in CASES else inputs.normal)(np.random.default_rng(3), *SHAPE)
        if name == "Inf":
            a[2, 5] = np.inf
            with np.errstate(invalid="ignore"):
                caught = caught or not np.array_equal(np.isfinite(planted.run(a, b, seed=1).c), np.isfinite(a @ b))
        else:
            wanted = decided.decide(a, b, eager=True)
            got = planted.run(a, b, seed=1)
            caught = caught or got.count != wanted.count or not np.isfinite(got.c).all()
            caught = caught or relative(a, b, got.c) > max(wanted.gamma, SHAPE[2] * U) + U
    assert caught, what
