"""The family crt: its device functions, compiled as C++, do what gemmrepro.ozaki says; its records fit its sources.

The kernels themselves are judged by the numerical gate on a GPU. Here the very headers that they are made of scale,
round, reduce and reconstruct on the CPU (tests/unit/cuda_words.hpp turns CUDA's words into C++).
"""

import shutil
import subprocess
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from ozaki_matrices import LAST_ROUNDING, exact_product, integers_of
from scheme2_model import symmetric

from gemmrepro import registry
from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.ozaki import inputs, moduli, residues, scheme2

DRIVER = Path(__file__).with_name("crt_words_driver.cpp")
MODES = [(14, 1), (15, 0), (16, 1)]
"""Numbers of moduli, and whether residues are unsigned."""
LAWS = {"normal": inputs.normal, "cancelling": inputs.cancelling}
LAWS |= {"graded": inputs.graded(60), "row_scaled": inputs.row_scaled(40)}


class Device:
    """The headers with so many moduli, compiled for the CPU; `changed` are other texts of them, by name."""

    def __init__(self, folder: Path, count: int, unsigned: int, changed: Mapping[str, str] | None = None) -> None:
        self.count, self.unsigned, self.folder = count, unsigned, folder
        sources = folder / "crt"
        sources.mkdir(parents=True)
        for path in (KERNELS_DIR / "crt").glob("*.cuh"):
            text = (changed or {}).get(f"crt/{path.name}") or path.read_text()
            if path.stem in ("columns", "coarse"):  # their kernels are not called here
                text = text[: text.index("// grid:")]
            # Pins a register of a GPU.
            text = "\n".join("" if "asm volatile" in line else line for line in text.splitlines())
            (sources / f"{path.stem}.inc").write_text(text.replace('.cuh"', '.inc"'))
        flags = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", f"-DNUMBERS={count}", f"-DUNSIGNED={unsigned}"]
        subprocess.run(
            ["g++", *flags, "-I", folder, "-I", Path(__file__).parent, "-o", folder / "driver", DRIVER], check=True
        )

    def run(self, what: str, rows: int, *inputs: np.ndarray, k: int = 0) -> bytes:
        """What the program writes for `inputs`, one after the other."""
        (self.folder / "in").write_bytes(b"".join(np.ascontiguousarray(one).tobytes() for one in inputs))
        program = [self.folder / "driver", what, str(rows), self.folder / "in", self.folder / "out", str(k)]
        subprocess.run(program, check=True)
        return (self.folder / "out").read_bytes()

    def rows(self, x: np.ndarray, exponents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(exponents [m], residues [count, m, k]) of float64 [m, k]; exponents by norms, unless they are given."""
        m, k = x.shape
        given = () if exponents is None else (exponents.astype(np.int32),)
        out = self.run("given" if given else "rows", m, x, *given, k=k)
        found = np.frombuffer(out[4 * m :], np.uint8 if self.unsigned else np.int8).reshape(self.count, m, k)
        return np.frombuffer(out[: 4 * m], np.int32), found.astype(np.int64)

    def coarse(self, x: np.ndarray, peaks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(coarse exponents [m], exponents below those peaks [m], coarse magnitudes [m, k]) of float64 [m, k]."""
        m, k = x.shape
        out = self.run("coarse", m, x, peaks.astype(np.int32), k=k)
        found = np.frombuffer(out[: 8 * m], np.int32).reshape(m, 2)
        return found[:, 0], found[:, 1], np.frombuffer(out[8 * m :], np.uint8).reshape(m, k).astype(np.int64)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Residues [n, count] of sums [n], as they lie in 32 bits."""
        words = (values & 0xFFFFFFFF).astype(np.uint32)
        return np.frombuffer(self.run("sums", len(words), words), np.uint8).reshape(-1, self.count)

    def back(self, residue_bytes: np.ndarray, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """float64 [n] of residues [n, count] and exponents [n]."""
        exponents = np.stack([s, t], axis=1).astype(np.int32)
        return np.frombuffer(self.run("back", len(s), residue_bytes.astype(np.uint8), exponents), np.float64)

    def factors(self, x: np.ndarray, s: np.ndarray, first: bool) -> np.ndarray:
        """Factors [7 count, m / 2, k / 2] of float64 [m, k] in 2 x 2 blocks, B's as its transpose; exponents [m]."""
        m, k = x.shape
        blocks = x.reshape(2, m // 2, 2, k // 8, 4).transpose(1, 3, 0, 2, 4)  # of a row and a quad: halves, neighbours
        given = np.broadcast_to(s.reshape(2, m // 2, 1, 1).transpose(1, 2, 0, 3), (m // 2, k // 8, 2, 2))
        if not first:  # where B's blocks have their columns, the transpose has its rows
            blocks, given = blocks.swapaxes(2, 3), given.swapaxes(2, 3)
        out = self.run("factors", blocks.size // 16, blocks, given.astype(np.int32), k=int(first))
        return np.frombuffer(out, np.uint8).reshape(-1, m // 2, k // 2).astype(np.int64)

    def gemm_in_blocks(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """C[m,n] by seven products a modulus, as R9 computes it; m and n even, n and k multiples of 8."""
        columns = np.ascontiguousarray(b.T)
        (s, _), (t, _) = self.rows(a), self.rows(columns)
        of_a, of_b = self.factors(a, s, True), self.factors(columns, t, False)
        products = np.einsum("qih,qjh->qij", of_a, of_b)
        of = np.arange(len(products))[:, None, None, None] // 7  # the modulus of each product
        found = np.take_along_axis(self.sums(products.ravel()).reshape(*products.shape, -1), of, axis=3)[..., 0]
        m, n = len(s), len(t)
        of_s = np.broadcast_to(s.reshape(2, m // 2, 1, 1, 1), (2, m // 2, 2, n // 8, 4)).transpose(1, 3, 0, 2, 4)
        of_t = np.broadcast_to(t.reshape(1, 1, 2, n // 8, 4), (2, m // 2, 2, n // 8, 4)).transpose(1, 3, 0, 2, 4)
        each = np.stack([of_s.reshape(-1, 16), of_t.reshape(-1, 16)], axis=1).astype(np.int32)
        out = np.frombuffer(self.run("joined", m * n // 16, found.astype(np.uint8), each), np.float64)
        return out.reshape(m // 2, n // 8, 2, 2, 4).transpose(2, 0, 3, 1, 4).reshape(m, n)

    def gemm(self, a: np.ndarray, b: np.ndarray, accurate: bool = False) -> np.ndarray:
        """C[m,n] as the kernels compute it, the products aside, which are exact."""
        columns, s, t = np.ascontiguousarray(b.T), None, None
        if accurate:
            nothing = np.zeros(max(len(a), len(columns)))
            peaks = self.coarse(a, nothing[: len(a)])[2] @ self.coarse(columns, nothing[: len(columns)])[2].T
            s, t = self.coarse(a, peaks.max(axis=1))[1], self.coarse(columns, peaks.max(axis=0))[1]
        (s, of_a), (t, of_b) = self.rows(a, s), self.rows(columns, t)
        products = np.einsum("pih,pjh->ijp", of_a, of_b)
        whole = self.sums(products.ravel()).reshape(-1, self.count, self.count).diagonal(axis1=1, axis2=2)
        m, n = len(s), len(t)
        return self.back(whole, np.repeat(s, n), np.tile(t, m)).reshape(m, n)


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: f"{mode[0]}{'_unsigned' * mode[1]}")
def device(request, tmp_path_factory) -> Device:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    return Device(tmp_path_factory.mktemp("crt"), *request.param)


def test_residues_of_sums(device: Device) -> None:
    """Of any 32 bits: 0 to p - 1, the ends of the range and the neighbours of multiples included."""
    rng = np.random.default_rng(3)
    low, high = (0, 2**32) if device.unsigned else (-(2**31), 2**31)
    values = np.concatenate([rng.integers(low, high, 4000), low + np.arange(600), high - 1 - np.arange(600)])
    around = np.arange(-300, 300)
    values = np.concatenate([values, around[around >= low]])
    found = device.sums(values)
    for p, column in zip(moduli.moduli(device.count), found.T, strict=True):
        assert (column == values % p).all()


def test_reconstruction(device: Device) -> None:
    """C' to 2^-76 M and one rounding: the smallest, the largest that the radius allows, and many between."""
    rng = np.random.default_rng(4)
    whole = moduli.product(device.count)
    most = int(residues.radius(device.count) ** 2 * (1 - 2.0**-21))
    values = [0, 1, -1, most, -most, 3 << 60, -(5 << 70)]
    values += [int(rng.integers(-(2**53), 2**53)) * most >> int(rng.integers(53, 90)) for _ in range(500)]
    values = [value for value in values if abs(value) <= most]
    bytes_ = np.array([[value % p for p in moduli.moduli(device.count)] for value in values])
    zero = np.zeros(len(values), np.int32)
    found = device.back(bytes_, zero, zero)
    for value, back in zip(values, found, strict=True):
        assert abs(Fraction(back) - value) <= Fraction(abs(value), 2**53) + (whole >> 76)
    assert found[0] == 0.0
    digits = integers_of(
        [symmetric(column, p) for column, p in zip(bytes_.T, moduli.moduli(device.count), strict=True)]
    )
    assert [int(value) for value in digits] == values


@pytest.mark.parametrize("name", LAWS)
def test_products_stay_within_the_modes_bounds(device: Device, name: str) -> None:
    """Scaling, residues, sums, reconstruction together, against the exact product."""
    a, b = LAWS[name](np.random.default_rng(5), 20, 12, 64)
    c = device.gemm(a, b)
    wanted = exact_product(a, b)
    bound = (1 + 2.0**-10) * scheme2.fast_bound(a, b, device.count)
    error = wanted.minus(c)
    assert (error <= bound + LAST_ROUNDING * np.abs(c)).all()
    if device.count == 15:  # as the record has
        bound = registry.kernel("crt.accurate").promises.error(a, b, np)
        accurate = device.gemm(a, b, accurate=True)
        assert (wanted.minus(accurate) <= bound + LAST_ROUNDING * np.abs(accurate)).all()
    if device.count == 14:  # where the last rounding does not cover what the integers lost
        assert (0.001 * bound < error).any() and np.median(error / bound) < 0.3


def test_the_accurate_mode_sees_large_elements_that_meet_small_ones(device: Device) -> None:
    if device.count > 15:
        pytest.skip("a scaled integer would not fit 63 bits")
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((16, 64)), rng.standard_normal((64, 16))
    a[:, :32] *= 64
    b[32:] *= 64
    wanted = exact_product(a, b)
    accurate, fast = (wanted.minus(device.gemm(a, b, accurate=mode)) for mode in (True, False))
    assert np.median(accurate) < 0.7 * np.median(fast)


@pytest.mark.parametrize("name", LAWS)
def test_seven_products_make_what_eight_do(device: Device, name: str) -> None:
    """To the bit; rows of zeros, small integers, and a row with an Inf, which spoils no other, among them."""
    if not device.unsigned:
        pytest.skip("R9 takes residues without a sign")
    rng = np.random.default_rng(11)
    a, b = LAWS[name](rng, 20, 16, 64)
    a[3], b[:, 5], a[9], b[:, 7] = 0.0, 0.0, rng.integers(-8, 9, 64), rng.integers(-8, 9, 64)
    a[17] = np.ldexp(a[17], -1040)
    eight = device.gemm(a, b)
    seven = device.gemm_in_blocks(a, b)
    assert (seven == eight).all() and not seven[3].any() and seven[9, 7] == a[9] @ b[:, 7]
    assert (device.factors(a, device.rows(a)[0], True) < np.repeat(moduli.moduli(device.count), 7)[:, None, None]).all()
