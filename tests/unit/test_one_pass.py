"""The passes of R15 and R16 over A, B and C, by their own sources on the CPU (tests/unit/hopper_grid.hpp)."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import certified_grid
import hopper_grid
import numpy as np
import pytest

from gemmrepro.ozaki import moduli, residues

COUNT = 12
"""Moduli: as few as moduli.cuh takes."""

SPOILED = -(2**31)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


class Device:
    """The program of a level's source, or of a planted one."""

    def __init__(self, folder: Path, level: str, source: str | None = None) -> None:
        self.folder = folder
        model = hopper_grid.as_model(source or certified_grid.source_text(level))
        text = Path(__file__).with_name("one_pass_driver.cpp").read_text().replace("SOURCE;", model)
        given = [f"-DNUMBERS={COUNT}", *(("-DTWO_WIDTHS",) if level == "R16" else ())]
        hopper_grid.compile_program(text, folder / "one_pass", "certified_grid.hpp", hopper_grid.EXACT, given)

    def run(self, a: np.ndarray, b: np.ndarray, seed: int = 0) -> tuple[np.ndarray, ...]:
        """(exponents of A [m] and B [n], residues [COUNT, m, pitch] and [COUNT, n, pitch], C [m,n])."""
        (m, k), n = a.shape, b.shape[1]
        (self.folder / "in").write_bytes(a.tobytes() + b.tobytes())
        command = [self.folder / "one_pass", *map(str, (m, n, k, seed)), self.folder / "in", self.folder / "out"]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)
        data, wide, found = (self.folder / "out").read_bytes(), -(-k // 16) * 16, []
        for kind, shape in (
            *((np.int32, (m,)), (np.int32, (n,)), (np.uint8, (COUNT, m, wide))),
            *((np.uint8, (COUNT, n, wide)), (np.float64, (m, n))),
        ):
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            found.append(np.frombuffer(data[:size], kind).reshape(shape))
            data = data[size:]
        return tuple(found)


@pytest.fixture(scope="module", params=["R15", "R16"])
def device(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Device:
    return Device(tmp_path_factory.mktemp("one_pass"), request.param)


def draw(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A [m,k] and B [k,n] whose rows and columns differ in size, largest where a kernel might not look."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a *= 2.0 ** rng.integers(-40, 40, (m, 1))
    b *= 2.0 ** rng.integers(-40, 40, (1, n))
    for column in range(n):  # a column's norm is known only if all of its parts are looked at
        b[(column * 977 + k - 1) % k, column] *= 2.0**20
    return a, b


def wrong(device: Device, m: int, n: int, k: int, seed: int = 0) -> str:
    """What is wrong with exponents, residues or C; "" if nothing is."""
    a, b = draw(m, n, k)
    s, t, of_a, of_b, c = device.run(a, b, seed)
    one = np.ones
    wanted_s = residues.exponents_by_norms(a, one((k, 1)), COUNT, "nearest")[0].ravel()
    wanted_t = residues.exponents_by_norms(one((1, k)), b, COUNT, "nearest")[1].ravel()
    for name, found, wanted in (("A", s, wanted_s), ("B", t, wanted_t)):
        # The device's radius is 2^-22 below the reference's.
        if (found > wanted).any() or (found < wanted - 1).any() or (found == wanted).mean() < 0.9:
            return f"exponents of {name}"
    whole_a, whole_b = np.rint(np.ldexp(a, s[:, None])), np.rint(np.ldexp(b, t[None, :]))
    for name, found, whole in (("A", of_a, whole_a), ("B", of_b, whole_b.T)):
        for i, p in enumerate(moduli.moduli(COUNT)):
            if (found[i, :, :k] != whole.astype(np.int64) % p).any() or found[i, :, k:].any():
                return f"residues of {name}"
    exactly = whole_a.astype(np.int64).astype(object) @ whole_b.astype(np.int64).astype(object)
    slack = moduli.product(COUNT) >> 76
    for i in range(m):
        for j in range(n):
            scale = Fraction(2) ** int(s[i] + t[j])
            error = abs(Fraction(float(c[i, j])) * scale - exactly[i, j]) if np.isfinite(c[i, j]) else None
            if error is None or error > abs(exactly[i, j]) / 2**52 + slack:
                return f"C[{i}, {j}]"
    return ""


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(3, 20, 40), (5, 17, 37), (1, 33, 530), (2, 18, 4700)],
    ids=["one block has rows", "odd", "two blocks", "read twice"],
)
def test_exponents_residues_and_c_are_right(device: Device, m: int, n: int, k: int, seed: int) -> None:
    assert wrong(device, m, n, k, seed) == ""


def test_tiles_at_the_edge_of_c(device: Device) -> None:
    """More than one tile each way: 129 rows; 193 columns, and 400, which R16 cuts into 208 and 192."""
    assert wrong(device, 129, 193, 16) == ""
    assert wrong(device, 20, 400, 16) == ""


def test_a_row_that_does_not_fit_is_read_again(device: Device) -> None:
    assert wrong(device, 1, 1, 24 * 1024 + 3) == ""


def test_inf_and_nan_spoil_their_row_or_column_alone(device: Device) -> None:
    a, b = draw(3, 20, 600)
    clean = device.run(a, b)[4]
    a[1, 5], b[599, 7] = np.inf, np.nan
    s, t, _, _, c = device.run(a, b)
    assert s[1] == SPOILED and (np.delete(s, 1) != SPOILED).all()
    assert t[7] == SPOILED and (np.delete(t, 7) != SPOILED).all()
    spoiled = np.zeros(c.shape, bool)
    spoiled[1], spoiled[:, 7] = True, True
    assert np.isnan(c[spoiled]).all() and (c[~spoiled] == clean[~spoiled]).all()


PLANTS = [
    ("R15", "peers do not meet", r"cluster_sync\(\);", ";", (2, 18, 4000)),
    ("R15", "one peer's norm left out", r"peer < PEERS", "peer < PEERS - 1", (2, 18, 4096)),
    ("R15", "warps' norms not joined", r"w < COLUMN_THREADS / 32", "w < COLUMN_THREADS / 64", (2, 18, 600)),
    ("R15", "a chunk not loaded again", r"load\(chunk\);(?=\n *__syncthreads)", ";", (2, 18, 4700)),
    ("R15", "a chunk overwritten while it is stored", r"__syncthreads\(\);  // all have stored.*", ";", (2, 18, 4700)),
    ("R15", "only the first chunk's norm", r"chunk = chunks - 1; chunk >= 0", "chunk = 0; chunk >= 0", (2, 18, 4700)),
    ("R15", "kept pairs in another order", r"row % NEIGHBOURS / 2", "(row % NEIGHBOURS / 2 ^ 1)", (2, 18, 40)),
    ("R15", "halves of a unit swapped", r"half \* 16 \+", "(1 - half) * 16 +", (2, 18, 40)),
    (
        "R15",
        "rows' pairs in another order",
        r"again\[i\] = load_pair\(row, group",
        "again[i] = load_pair(row, 0 * group",
        None,
    ),
    ("R15", "copies not awaited", r"copy_wait<0>\(\);", ";", (2, 18, 40)),
    ("R16", "narrow tiles begin late", r"min\(col, wide\)", "col", (2, 800, 16)),
    ("R16", "16 columns of a tile left out", r"part \* 16 >= columns", "part * 16 + 16 >= columns", (2, 400, 16)),
]


@pytest.mark.parametrize(
    ("level", "name", "pattern", "replacement", "shape"), PLANTS, ids=[plant[1] for plant in PLANTS]
)
def test_a_planted_bug_is_found(tmp_path: Path, level: str, name: str, pattern: str, replacement: str, shape) -> None:
    planted = hopper_grid.with_plant(certified_grid.source_text(level), pattern, replacement)
    device = Device(tmp_path, level, planted)

    def found(seed: int) -> bool:
        try:
            return wrong(device, *(shape or (1, 1, 24 * 1024 + 3)), seed) != ""
        except subprocess.CalledProcessError:  # the model saw a rule broken
            return True

    assert any(found(seed) for seed in range(6)), name
